"""Where a starting master may stand before it leads, and what leads where."""

from collections.abc import Collection, Mapping

from dittomq.replication.moves import Kind, Label, Moves


class Standing(Label):
    """Where a start stands; the value says it in words."""

    WAITING = "more is to be heard before it may lead"
    TAKING_OVER = "the longest tail of the newest lineage is being fetched"
    HOLDING = "it holds the tail that it fetched; nothing more is waited for"
    REFUSING = "an operator must decide"
    GIVING_UP = "it writes down that its log is a part of what slaves hold, whatever epoch it has opened"
    ANNOUNCING = "every replica that it reaches is told which epoch it opens"
    LEADING = "it opens its epoch"
    FOLLOWING = "it is another node's slave"


class Found(Label):
    """What the rules find whenever they are asked, and what the fetching of a tail reports."""

    MORE_TO_HEAR = "slaves or nameservers that must be heard are missing, its id is taken, or there is time left for others"
    LONGER_TAIL = "a slave that was heard has a newer or longer log"
    TAIL_OUT_OF_REACH = "it has, and this log cannot be joined to it"
    CONFIRMED_MISSING = "a slave knows bytes to be confirmed that this log lacks, and nobody accepted the loss"
    OUTGROWN = "the same, and that slave has all of this log, whose newest epoch this node opened"
    GAVE_UP = "that is written down"
    NUMBERS_HIDDEN = "it holds damaged bytes of which nobody here knows the queue offsets and sequences, and nobody accepted the loss"
    OUTRANKED = "nothing is missing, and another master that recovers has a higher claim: for a moment that one comes first"
    NEWER_ELSEWHERE = "a node with another configured id has opened a newer epoch"
    NOT_ANNOUNCED = "nothing is missing, or the loss was accepted; the others were not told of its epoch just now"
    ANNOUNCED = "whoever answers has noted the epoch, and said what it knew before"
    ENOUGH = "nothing is missing, and the others were told"
    TOOK_OVER = "the tail is here, durably"


_DECIDED: Mapping[Kind, Collection[Standing]] = {
    Found.LONGER_TAIL: (Standing.TAKING_OVER,),
    Found.TAIL_OUT_OF_REACH: (Standing.REFUSING,),
    Found.CONFIRMED_MISSING: (Standing.REFUSING,),
    Found.NUMBERS_HIDDEN: (Standing.WAITING,),
    Found.OUTRANKED: (Standing.WAITING,),
    Found.NEWER_ELSEWHERE: (Standing.FOLLOWING,),
    Found.NOT_ANNOUNCED: (Standing.ANNOUNCING,),
}
_OUTGROWN: Mapping[Kind, Collection[Standing]] = {Found.OUTGROWN: (Standing.GIVING_UP,)}
_MUST_HEAR: Mapping[Kind, Collection[Standing]] = {Found.MORE_TO_HEAR: (Standing.WAITING,)}

MOVES = Moves(
    title="Leadership",
    first=Standing.WAITING,
    rows={
        Standing.WAITING: {**_MUST_HEAR, **_DECIDED, **_OUTGROWN, Found.ENOUGH: (Standing.LEADING,)},
        Standing.TAKING_OVER: {Found.TOOK_OVER: (Standing.HOLDING,), **_MUST_HEAR, **_DECIDED, **_OUTGROWN},
        Standing.HOLDING: _DECIDED,
        Standing.REFUSING: {**_MUST_HEAR, **_DECIDED, **_OUTGROWN},
        Standing.GIVING_UP: {Found.GAVE_UP: (Standing.WAITING,)},
        Standing.ANNOUNCING: {Found.ANNOUNCED: (Standing.WAITING,)},
    },
)
