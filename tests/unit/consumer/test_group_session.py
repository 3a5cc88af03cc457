import random
from dataclasses import replace

import pytest

from dittomq.consumer.assignment import Strategy, TopicQueue
from dittomq.consumer.group_session import MAX_MEMBERS, SESSION_S, ConsumeMode, GroupSession, JoinOrder
from dittomq.errors import LimitReached, PreconditionFailed, SessionExpired

QUEUES = [TopicQueue("orders", queue) for queue in range(4)]
BILLS = [TopicQueue("bills", queue) for queue in range(2)]


def order(member: str, **other: object) -> JoinOrder:
    return replace(JoinOrder(member, f"process of {member}", {"orders": "*"}), **other)  # type: ignore[arg-type]


def session(settled_at: float = 0.0, epoch: int = 1) -> GroupSession:
    return GroupSession("billing", epoch=epoch, settled_at=settled_at)


def obey(group: GroupSession, member: str, now: float = 0.0) -> frozenset[str]:
    return group.heartbeat(member, f"process of {member}", group.assignment(member).generation, now)


def numbers(group: GroupSession, member: str) -> list[int]:
    return sorted(queue.queue for queue in group.assignment(member).queues)


def test_the_first_member_reads_all_queues() -> None:
    group = session()

    assert group.join(order("a"), QUEUES, 0.0) == {"a"}

    assert numbers(group, "a") == [0, 1, 2, 3]
    assert group.assignment("a").members == ("a",)


def test_a_queue_changes_hands_only_after_its_holder_let_go() -> None:
    group = session()
    group.join(order("a"), QUEUES, 0.0)

    group.join(order("b"), QUEUES, 1.0)
    assert numbers(group, "a") == [0, 1]
    assert numbers(group, "b") == []
    assert obey(group, "b", 1.0) == set()

    assert "b" in obey(group, "a", 2.0)
    assert numbers(group, "b") == [2, 3]


def test_a_heartbeat_of_an_old_generation_frees_nothing() -> None:
    group = session()
    group.join(order("a"), QUEUES, 0.0)
    old = group.assignment("a").generation
    group.join(order("b"), QUEUES, 1.0)

    assert group.heartbeat("a", "process of a", old, 2.0) == set()

    assert numbers(group, "b") == []


def test_a_heartbeat_of_a_generation_that_nobody_gave_is_refused() -> None:
    group = session()
    group.join(order("a"), QUEUES, 0.0)

    with pytest.raises(SessionExpired):
        group.heartbeat("a", "process of a", group.assignment("a").generation + 1, 1.0)


def test_a_silent_member_loses_its_queues_after_the_session_timeout() -> None:
    group = session()
    group.join(order("a"), QUEUES, 0.0)
    group.join(order("b"), QUEUES, 0.0)
    obey(group, "b", SESSION_S - 1)

    assert group.look(QUEUES, SESSION_S - 0.1) == set()
    assert "b" in group.look(QUEUES, SESSION_S)

    assert numbers(group, "b") == [0, 1, 2, 3]
    with pytest.raises(SessionExpired):
        group.heartbeat("a", "process of a", 1, SESSION_S)


def test_a_member_that_leaves_frees_its_queues_at_once() -> None:
    group = session()
    group.join(order("a"), QUEUES, 0.0)
    group.join(order("b"), QUEUES, 0.0)

    group.leave("a", "process of a", 1.0)

    assert numbers(group, "b") == [0, 1, 2, 3]


def test_another_process_with_a_living_members_name_is_refused() -> None:
    group = session()
    group.join(order("a"), QUEUES, 0.0)

    with pytest.raises(PreconditionFailed, match="a name of its own"):
        group.join(order("a", process="another"), QUEUES, 1.0)
    with pytest.raises(SessionExpired):
        group.heartbeat("a", "another", group.assignment("a").generation, 1.0)
    group.leave("a", "another", 1.0)

    assert numbers(group, "a") == [0, 1, 2, 3]
    assert group.join(order("a", process="another"), QUEUES, SESSION_S) == {"a"}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"mode": ConsumeMode.BROADCASTING}, "mode"),
        ({"strategy": Strategy.STICKY}, "strategy"),
        ({"subscriptions": {"orders": "paid"}}, "tag"),
    ],
)
def test_a_member_that_does_not_fit_the_living_ones_is_refused(change: dict[str, object], what: str) -> None:
    group = session()
    group.join(order("a"), QUEUES, 0.0)

    with pytest.raises(PreconditionFailed, match=what):
        group.join(order("b", **change), QUEUES, 1.0)

    assert group.members == ("a",)
    assert group.join(order("b", **change), QUEUES, SESSION_S) == {"b"}


def test_a_group_takes_a_bounded_number_of_members() -> None:
    group = session()
    for number in range(MAX_MEMBERS):
        group.join(order(f"{number}"), [], 0.0)

    with pytest.raises(LimitReached):
        group.join(order("one more"), [], 0.0)


def test_a_member_that_changes_its_subscription_gets_other_queues() -> None:
    group = session()
    group.join(order("a"), QUEUES, 0.0)

    group.join(order("a", subscriptions={"bills": "*"}), BILLS, 1.0)
    obey(group, "a", 1.0)

    assert group.assignment("a").queues == set(BILLS)
    assert group.topics == {"bills"}


@pytest.mark.parametrize("change", [{"subscriptions": {"events": "*"}}, {"process": "another"}, {"mode": ConsumeMode.BROADCASTING}])
def test_a_join_repeats_what_the_member_has_only_if_it_asks_for_the_same(change: dict[str, object]) -> None:
    group = session()
    before = group.repeats(order("a"))
    group.join(order("a"), QUEUES, 0.0)

    assert (before, group.repeats(order("a")), group.repeats(order("a", **change))) == (False, True, False)


def test_a_queue_that_is_added_is_given_to_one_member() -> None:
    group = session()
    group.join(order("a"), QUEUES[:3], 0.0)

    assert group.look(QUEUES, 1.0) == {"a"}

    assert numbers(group, "a") == [0, 1, 2, 3]


def test_every_member_of_a_broadcasting_group_reads_all() -> None:
    group = session(settled_at=100.0)

    for name in "ab":
        group.join(order(name, mode=ConsumeMode.BROADCASTING), QUEUES, 0.0)

    assert [numbers(group, name) for name in "ab"] == [[0, 1, 2, 3]] * 2


def test_after_a_failover_members_keep_what_they_hold_and_the_rest_waits() -> None:
    group = session(settled_at=SESSION_S, epoch=2)

    group.join(order("b", held=frozenset(QUEUES[2:])), QUEUES, 0.0)

    assert numbers(group, "b") == [2, 3]
    obey(group, "b", SESSION_S - 1)
    group.look(QUEUES, SESSION_S)
    assert numbers(group, "b") == [0, 1, 2, 3]


def test_generations_grow_across_a_failover() -> None:
    old, new = session(epoch=1), session(epoch=2)
    for number in range(50):
        old.join(order(f"m{number}"), QUEUES, 0.0)
    new.join(order("a"), QUEUES, 0.0)

    assert new.assignment("a").generation > old.assignment("m49").generation


@pytest.mark.parametrize("seed", range(60))
def test_no_two_members_read_one_queue_at_once_whatever_happens(seed: int) -> None:
    """Members obey late, go silent, come back and count their own time from when they sent what was answered."""
    chance = random.Random(seed)
    group, now = session(settled_at=chance.choice([0.0, 5.0])), 0.0
    strategy = chance.choice(list(Strategy))
    reads: dict[str, frozenset[TopicQueue]] = {}
    applied: dict[str, int] = {}
    last_seen: dict[str, float] = {}

    def told(name: str, sent: float) -> None:
        last_seen[name] = sent
        given = group.assignment(name)
        reads[name], applied[name] = given.queues, given.generation

    for _ in range(120):
        now += chance.choice([0.0, 0.5, 3.0])
        for name in list(reads):
            if now - last_seen[name] >= SESSION_S:
                del reads[name]
        name = chance.choice("abcd")
        if name not in reads:
            group.join(order(name, strategy=strategy), QUEUES, now)
            told(name, now)
        elif chance.random() < 0.2:
            group.leave(name, f"process of {name}", now)
            del reads[name]
        else:
            try:
                group.heartbeat(name, f"process of {name}", applied[name], now)
            except SessionExpired:
                del reads[name]
            else:
                told(name, now)
        queues = [queue for held in reads.values() for queue in held]
        assert len(queues) == len(set(queues)), f"seed {seed}"

    for _ in range(15):
        now += 1.0
        group.look(QUEUES, now)
        for name in [name for name in reads if now - last_seen[name] < SESSION_S]:
            group.heartbeat(name, f"process of {name}", applied[name], now)
            told(name, now)
        reads = {name: held for name, held in reads.items() if now - last_seen[name] < SESSION_S}
    assert not reads or {queue for held in reads.values() for queue in held} == set(QUEUES), f"seed {seed}"
