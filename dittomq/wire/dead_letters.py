"""ditto.admin.v1.GroupService ↔ values: dead letters. From the wire comes a valid value or InvalidField."""

from dittomq._pb.ditto.admin.v1 import groups_pb2 as pb
from dittomq.consumer.dead_letters import (
    DEFAULT_DEAD_LETTERS,
    MAX_DEAD_LETTERS,
    DeadLetterMessage,
    DeadLetterPage,
    DeadLetterQuery,
    LetterPlace,
    ReplayedLetter,
    ReplayOrder,
    ReplayResult,
    cursor_of,
)
from dittomq.errors import InvalidField
from dittomq.wire.messaging import fill_stored, stored_message
from dittomq.wire.times import ms_from_pb, timestamp_to_pb


def letters_request(query: DeadLetterQuery) -> pb.ListDeadLettersRequest:
    """Ask for a page, bodies as they are."""
    request = pb.ListDeadLettersRequest(group=query.group, page_size=query.page_size, page_token=query.page_token)
    if query.from_ms:
        request.from_time.CopyFrom(timestamp_to_pb(query.from_ms))
    return request


def letter_query(request: pb.ListDeadLettersRequest | pb.ReplayDeadLettersRequest) -> DeadLetterQuery:
    """Which page is asked for. That there is such a group is checked where it is read."""
    if not 0 <= request.page_size <= MAX_DEAD_LETTERS:
        raise InvalidField("page_size", f"{request.page_size:,} is outside 0 to {MAX_DEAD_LETTERS}; 0 means {DEFAULT_DEAD_LETTERS}")
    from_ms = max(0, ms_from_pb(request.from_time)) if request.HasField("from_time") else 0
    query = DeadLetterQuery(request.group, from_ms, request.page_size or DEFAULT_DEAD_LETTERS, request.page_token)
    cursor_of(query)
    return query


def letters_response(page: DeadLetterPage, *, prefer_text: bool) -> pb.ListDeadLettersResponse:
    """Encode a page."""
    response = pb.ListDeadLettersResponse(next_page_token=page.next_token)
    for letter in page.letters:
        added = response.dead_letters.add(origin_topic=letter.origin_topic, tries=letter.tries)
        fill_stored(added.message, letter.message, prefer_text=prefer_text)
    return response


def letter_page(response: pb.ListDeadLettersResponse) -> DeadLetterPage:
    """Decode a page."""
    return DeadLetterPage(
        tuple([DeadLetterMessage(stored_message(each.message)) for each in response.dead_letters]), response.next_page_token
    )


def replay_request(order: ReplayOrder) -> pb.ReplayDeadLettersRequest:
    """Ask for copies."""
    query = order.query
    request = pb.ReplayDeadLettersRequest(group=query.group, validate_only=order.validate_only)
    if order.only is not None:
        request.queue, request.offset = order.only
        return request
    request.page_size, request.page_token = query.page_size, query.page_token
    if query.from_ms:
        request.from_time.CopyFrom(timestamp_to_pb(query.from_ms))
    return request


def replay_order(request: pb.ReplayDeadLettersRequest) -> ReplayOrder:
    """What is to be replayed."""
    if not (request.HasField("queue") or request.HasField("offset")):
        return ReplayOrder(letter_query(request), validate_only=request.validate_only)
    for field in ("queue", "offset"):
        if not request.HasField(field) or getattr(request, field) < 0:
            raise InvalidField(field, "is 0 or more, given together with the other: the place of one dead letter")
    for field in ("from_time", "page_size", "page_token"):
        if request.HasField(field) if field == "from_time" else getattr(request, field):
            raise InvalidField(field, "is not given with the place of one dead letter")
    return ReplayOrder(DeadLetterQuery(request.group), LetterPlace(request.queue, request.offset), request.validate_only)


def replay_response(result: ReplayResult) -> pb.ReplayDeadLettersResponse:
    """Encode what was replayed."""
    return pb.ReplayDeadLettersResponse(
        replayed=[
            pb.ReplayedLetter(queue=each.place.queue, offset=each.place.offset, retry_queue=each.retry_queue) for each in result.replayed
        ],
        next_page_token=result.next_token,
    )


def replay_result(response: pb.ReplayDeadLettersResponse) -> ReplayResult:
    """Decode what was replayed."""
    replayed = [ReplayedLetter(LetterPlace(each.queue, each.offset), each.retry_queue) for each in response.replayed]
    return ReplayResult(tuple(replayed), response.next_page_token)
