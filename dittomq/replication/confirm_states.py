"""⑦ How a slave comes to be in sync and leaves, and how a group comes to confirm with fewer copies than asked."""

from dittomq.replication.moves import Label, Moves


class Member(Label):
    """Whether a slave counts as a copy; the value says it in words."""

    CARRIED = "in sync when the last run ended and not heard of since: counts as in sync"
    RETURNED = "was carried over, heard of since, and not caught up yet: counts as in sync, and is not called so"
    LOST = "was carried over, and did not come in time"
    BEHIND = "heard of, not in sync"
    IN_SYNC = "heard of, in sync"


class Change(Label):
    """What a membership is judged by."""

    ACKED = "the slave acknowledged"
    MASTER_MOVED = "the master's log grew or was flushed"
    DEADLINE_MISSED = "a producer waited in vain for bytes that the slave lacks"
    TICKED = "time passed"
    DISK_GONE = "the disk that spoke for it speaks for another slave, or it has another disk now"


MEMBER_MOVES = Moves(
    title="Confirm: one slave",
    first=Member.BEHIND,
    rows={
        Member.CARRIED: {
            Change.ACKED: (Member.RETURNED, Member.IN_SYNC, Member.BEHIND),
            Change.DEADLINE_MISSED: (Member.CARRIED, Member.LOST),
            Change.MASTER_MOVED: (Member.CARRIED, Member.LOST),
            Change.TICKED: (Member.CARRIED, Member.LOST),
            Change.DISK_GONE: (Member.CARRIED,),
        },
        Member.RETURNED: {
            Change.ACKED: (Member.RETURNED, Member.IN_SYNC, Member.BEHIND),
            Change.DEADLINE_MISSED: (Member.RETURNED, Member.BEHIND),
            Change.MASTER_MOVED: (Member.RETURNED, Member.BEHIND),
            Change.TICKED: (Member.RETURNED, Member.BEHIND),
            Change.DISK_GONE: (Member.BEHIND,),
        },
        Member.LOST: {
            Change.ACKED: (Member.IN_SYNC, Member.BEHIND),
            Change.DEADLINE_MISSED: (Member.LOST,),
            Change.MASTER_MOVED: (Member.LOST,),
            Change.TICKED: (Member.LOST,),
            Change.DISK_GONE: (Member.LOST,),
        },
        Member.BEHIND: {
            Change.ACKED: (Member.BEHIND, Member.IN_SYNC),
            Change.DEADLINE_MISSED: (Member.BEHIND,),
            Change.MASTER_MOVED: (Member.BEHIND,),
            Change.TICKED: (Member.BEHIND,),
            Change.DISK_GONE: (Member.BEHIND,),
        },
        Member.IN_SYNC: {
            Change.ACKED: (Member.IN_SYNC, Member.BEHIND),
            Change.DEADLINE_MISSED: (Member.IN_SYNC, Member.BEHIND),
            Change.MASTER_MOVED: (Member.IN_SYNC, Member.BEHIND),
            Change.TICKED: (Member.IN_SYNC, Member.BEHIND),
            Change.DISK_GONE: (Member.BEHIND,),
        },
    },
)


class Degrade(Label):
    """Whether the group confirms with fewer copies than asked; the value says it in words."""

    NO = "as many copies as asked confirm, or nothing is confirmed"
    RECORDING = "must degrade, and the range is not durably recorded yet: confirmed stands still"
    YES = "the copies that are there confirm"


class Copies(Label):
    """What a group's degradation is judged by."""

    ENOUGH = "as many in sync as asked"
    TOO_FEW = "fewer than asked, as many as the minimum; or what is next to be confirmed is damaged here"
    BELOW_MINIMUM = "fewer than the minimum"
    RANGE_RECORDED = "where the degraded range begins is durable"


DEGRADE_MOVES = Moves(
    title="Confirm: the group",
    first=Degrade.NO,
    rows={
        Degrade.NO: {
            Copies.ENOUGH: (Degrade.NO,),
            Copies.TOO_FEW: (Degrade.RECORDING,),
            Copies.BELOW_MINIMUM: (Degrade.NO,),
            Copies.RANGE_RECORDED: (Degrade.NO,),
        },
        Degrade.RECORDING: {
            Copies.ENOUGH: (Degrade.NO,),
            Copies.TOO_FEW: (Degrade.RECORDING,),
            Copies.BELOW_MINIMUM: (Degrade.RECORDING,),
            Copies.RANGE_RECORDED: (Degrade.YES,),
        },
        Degrade.YES: {
            Copies.ENOUGH: (Degrade.NO,),
            Copies.TOO_FEW: (Degrade.YES,),
            Copies.BELOW_MINIMUM: (Degrade.YES,),
        },
    },
)
