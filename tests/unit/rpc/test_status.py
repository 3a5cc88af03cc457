import dataclasses
import string
from collections.abc import Iterator
from urllib.parse import quote

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from dittomq import errors
from dittomq._pb.ditto.error.v1 import error_pb2
from dittomq.errors import DittoError, DuplicateBrokerId, Unavailable
from dittomq.rpc import status


def leaves(kind: type[DittoError]) -> Iterator[type[DittoError]]:
    below = kind.__subclasses__()
    if not below:
        yield kind
    for each in below:
        yield from leaves(each)


CROSSING: list[type[DittoError]] = [*leaves(errors.Refused), errors.StorageFailure, errors.FencedEpoch]
AS_THEY_ARE = (string.ascii_letters + string.digits + string.punctuation + " ").replace("%", "")  # gRPC writes others as %16
SAMPLES = {str: "a/1 …ü%\n", int: -7, bool: True, int | None: None}


def sample(kind: type[DittoError]) -> DittoError:
    return kind(**{field.name: SAMPLES[field.type] for field in dataclasses.fields(kind)})  # type: ignore[arg-type, index]


def failed_call(refusal: grpc.Status) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(refusal.code, grpc.aio.Metadata(), grpc.aio.Metadata(*refusal.trailing_metadata), refusal.details)


def details(error: DittoError) -> status_pb2.Status:
    [(_, content)] = status.encode(error).trailing_metadata
    return status_pb2.Status.FromString(content)


def test_every_refusal_has_a_status_and_nothing_else_has() -> None:
    assert set(status.STATUS_OF) == set(CROSSING)


def test_every_refusal_has_a_reason_of_its_own_that_the_contract_names() -> None:
    reasons = [kind.reason for kind in CROSSING]

    assert len(set(reasons)) == len(reasons)
    assert {f"ERROR_REASON_{reason}" for reason in reasons} == set(error_pb2.ErrorReason.keys()) - {"ERROR_REASON_UNSPECIFIED"}


@pytest.mark.parametrize("kind", CROSSING)
def test_a_refusal_arrives_as_the_same_error_with_the_same_fields(kind: type[DittoError]) -> None:
    sent = sample(kind)

    received = status.decode(failed_call(status.encode(sent)), "a/0")

    assert type(received) is kind
    assert dataclasses.asdict(received) == dataclasses.asdict(sent)  # type: ignore[call-overload]
    assert str(received) == str(sent)


@pytest.mark.parametrize("kind", CROSSING)
def test_a_refusal_inside_a_batch_is_rebuilt_from_its_facts(kind: type[DittoError]) -> None:
    sent = sample(kind)

    facts = status.facts(sent)

    assert str(status.rebuild(facts.reason, facts.metadata)) == str(sent) == facts.message


def test_a_long_field_is_cut_so_that_the_details_fit_in_a_header() -> None:
    sent = errors.TopicExists("t" * 100_000, "f" * 100_000, "e" * 100_000, "ä" * 100_000)

    encoded = status.encode(sent)

    assert len(encoded.trailing_metadata[0][1]) + len(encoded.details) < 8_000
    assert isinstance(status.decode(failed_call(encoded), "a/0"), errors.TopicExists)


def test_the_longest_field_is_cut_first_and_by_what_it_costs_in_a_header() -> None:
    sent = errors.InvalidField("topic", "€" * 100_000)

    encoded = status.encode(sent)
    received = status.decode(failed_call(encoded), "a/0")

    assert isinstance(received, errors.InvalidField)
    assert (received.field, received.problem[:300], received.problem[-1]) == ("topic", "€" * 300, "…")
    assert len(encoded.trailing_metadata[0][1]) + 3 * len(encoded.details.encode()) < 8_000


@pytest.mark.parametrize("character", ["ä", "\x16", "𐀀", "%", "t"])
def test_a_sentence_that_names_a_long_field_twice_fits_in_a_header(character: str) -> None:
    encoded = status.encode(errors.TopicNotFound(character * 100_000, "dittomq"))

    assert len(encoded.trailing_metadata[0][1]) + len(quote(encoded.details, safe=AS_THEY_ARE)) < 8_000
    assert isinstance(status.decode(failed_call(encoded), "a/0"), errors.TopicNotFound)


LACKS = "a/1 knows 41,943,040,112 bytes to be confirmed and this log agrees with it only up to 41,900,000,000"
REMEDY = "empty the data_dir of a/0 to copy its master, or let the slave take its place: dittomq ha failover a/1 --allow-data-loss"


@pytest.mark.parametrize(
    "sent", [errors.NeedsOperator("a/0", f"{LACKS}; {REMEDY}"), errors.PermissionDenied(f"refused: a/0 takes no writes: {LACKS}; {REMEDY}")]
)
def test_what_an_operator_is_to_type_arrives_whole(sent: DittoError) -> None:
    received = status.decode(failed_call(status.encode(sent)), "a/0")

    assert str(received) == str(sent)


def test_a_bad_field_is_named_in_bad_request() -> None:
    bad = error_details_pb2.BadRequest()
    assert details(errors.InvalidField("topic", "is empty")).details[1].Unpack(bad)

    assert [(each.field, each.description) for each in bad.field_violations] == [("topic", "is empty")]


def test_where_waiting_helps_the_answer_says_how_long() -> None:
    retry = error_details_pb2.RetryInfo()
    assert details(errors.LimitReached("appends", 10)).details[1].Unpack(retry)

    assert retry.retry_delay.ToMilliseconds() == 100


def test_numbers_that_code_acts_on_have_details_of_our_own() -> None:
    master, offsets = error_pb2.NotMaster(), error_pb2.OffsetOutOfRange()
    assert details(errors.NotMaster("a/1", "a-0:10911")).details[1].Unpack(master)
    assert details(errors.OffsetOutOfRange("queue offset", 5, 0, 3)).details[1].Unpack(offsets)

    assert master.master_address == "a-0:10911"
    assert (offsets.asked, offsets.start, offsets.end) == (5, 0, 3)


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED])
def test_silence_is_unavailable(code: grpc.StatusCode) -> None:
    error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "connection refused")

    assert str(status.decode(error, "a/0 at h:1")) == "a/0 at h:1 does not answer: connection refused"


def test_who_cannot_be_connected_to_is_named_once() -> None:
    details = (
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4:1: Failed to connect to remote host: Connection refused"
    )
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details)

    assert str(status.decode(error, "a/0 at 1.2.3.4:1")) == "a/0 at 1.2.3.4:1 does not answer: cannot connect: Connection refused"


@pytest.mark.parametrize(
    ("code", "details", "problem"),
    [
        (
            "UNAVAILABLE",
            "errors resolving no.such:9876: [field:hostname lookup error:address lookup failed for no.such:9876: Domain name not found]",
            "its host name is not known; check the address",
        ),
        (
            "UNAVAILABLE",
            "DNS resolution failed for nosuch:1: C-ares status is not ARES_SUCCESS qtype=A name=nosuch: Domain name not found",
            "its host name is not known; check the address",
        ),
        ("UNIMPLEMENTED", "Received http2 header with status: 404", "something else than dittomq listens there; check the address"),
        ("UNIMPLEMENTED", "Method not found!", "it does not know this call; check whether the address is a nameserver's or a broker's"),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:1.2.3.4:1: Failed parsing HTTP/2 (Expected SETTINGS …)",
            "something else than dittomq listens there; check the address",
        ),
        ("INTERNAL", "Internal error from Core", "it ended the call while a message was on its way to it"),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", "no answer in time"),
        ("UNAVAILABLE", "Socket closed", "the connection broke"),
        ("UNAVAILABLE", "recvmsg:Connection reset by peer", "the connection broke"),
        ("UNAVAILABLE", "GOAWAY received; Error code: 2; Debug Text: Cancelling all calls", "it was stopped"),
        ("UNAVAILABLE", "ping timeout", "it fell silent and the connection was given up"),
        ("UNAVAILABLE", "one thing\n\tand another {and: more}\n", "one thing and another {and: more}"),
        ("INTERNAL", "x" * 1_000, "INTERNAL: " + "x" * 199 + "…"),
    ],
)
def test_what_grpc_says_of_a_connection_is_told_in_one_short_line(code: str, details: str, problem: str) -> None:
    error = grpc.aio.AioRpcError(grpc.StatusCode[code], grpc.aio.Metadata(), grpc.aio.Metadata(), details)

    assert str(status.decode(error, "a/0 at h:1")) == f"a/0 at h:1 does not answer: {problem}"


def test_an_answer_that_is_not_ours_names_its_code() -> None:
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNIMPLEMENTED, grpc.aio.Metadata(), grpc.aio.Metadata(), "no such method")

    decoded = status.decode(error, "h:1")

    assert isinstance(decoded, Unavailable)
    assert decoded.problem == "UNIMPLEMENTED: no such method"


@pytest.mark.parametrize("content", [b"\xff\xff", b"", status_pb2.Status(code=5, message="x").SerializeToString()])
def test_foreign_or_broken_details_are_ignored(content: bytes) -> None:
    trailing = grpc.aio.Metadata((status.DETAILS_KEY, content))
    error = grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, grpc.aio.Metadata(), trailing, "x")

    assert isinstance(status.decode(error, "h:1"), Unavailable)


@pytest.mark.parametrize("metadata", [{}, {"node": "a/0"}, {"node": "a/0", "in_sync": "many", "demanded": "2"}])
def test_facts_with_a_missing_or_malformed_field_are_not_guessed(metadata: dict[str, str]) -> None:
    assert status.rebuild("NOT_ENOUGH_REPLICAS", metadata) is None


def test_a_field_that_an_older_version_does_not_send_has_its_default() -> None:
    sent = {"node": "a/0", "holder": "h:1", "silent_ms": "7"}

    received = status.rebuild("DUPLICATE_BROKER_ID", sent)

    assert isinstance(received, DuplicateBrokerId)
    assert (received.silent_ms, received.holder_node) == (7, "")
