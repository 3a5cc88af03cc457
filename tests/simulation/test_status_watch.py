"""Watching replication: told at once, at changes, now and then, and again when a node that was gone is back."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from dittomq.cli.ha_asking import ask_every_node
from dittomq.cli.ha_report import build_report
from dittomq.client import Ack, AsyncClient
from dittomq.client.ha_watch import ClusterView
from dittomq.errors import InvalidField, LimitReached, Unavailable
from dittomq.ha_status import HaStatus, NodeView
from services.master import wiring as master
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape
from tests.simulation.world import Power
from tests.support.virtual_time import played_by

NODE = "a/0"


class Watcher:
    """One watch, and what it was told when."""

    def __init__(self, group: Group, mq: AsyncClient, period_s: float = 0.5) -> None:
        self._group = group
        self._mq = mq
        self._period_s = period_s
        self.told: list[tuple[float, HaStatus]] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for status in self._mq.admin.watch_ha_status(NODE, period_s=self._period_s):
            self.told.append((self._group.now, status))

    def states(self) -> list[str]:
        """States of the slave, one after the other."""
        states = [view.state for _, status in self.told for view in status.nodes if view.node == "a/1"]
        return [state for number, state in enumerate(states) if number == 0 or state != states[number - 1]]

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def publish(mq: AsyncClient, count: int, every_s: float) -> None:
    async with mq.producer() as producer:
        for number in range(count):
            await producer.publish("orders", f"{number}", queue=0)
            await asyncio.sleep(every_s)


@played_by(play)
async def test_state_is_reported_at_once_then_every_5_s_while_idle(group: Group, mq: AsyncClient) -> None:
    await asyncio.sleep(30)  # heartbeats have proven all there is to prove
    began = group.now
    watcher = Watcher(group, mq)
    await asyncio.sleep(16)

    assert watcher.told[0][0] - began < 0.1
    assert [round(at - watcher.told[0][0]) for at, _ in watcher.told] == [0, 5, 10, 15]
    await watcher.leave()


@played_by(play)
async def test_changes_are_told_within_the_period_and_never_more_often(group: Group, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", 1)
    watcher = Watcher(group, mq, period_s=0.5)
    await publish(mq, 200, 0.05)

    times = [at for at, _ in watcher.told]
    assert 15 <= len(times) <= 24
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) > 0.4
    await group.kill("a1")
    await asyncio.sleep(2)
    assert watcher.states() == ["in sync", "gone"]
    await watcher.leave()


@played_by(play)
async def test_a_watch_ends_with_its_node_and_the_next_one_finds_it_again(group: Group, mq: AsyncClient) -> None:
    watcher = Watcher(group, mq)
    await asyncio.sleep(1)
    await group.kill("a0")
    await asyncio.wait([watcher.task])
    assert isinstance(watcher.task.exception(), Unavailable)

    group.node("a0").start()
    await asyncio.sleep(10)
    again = Watcher(group, mq)
    await asyncio.sleep(1)
    began = group.now
    await group.node("a0").stop()
    assert again.task.done()
    assert again.task.exception() is None
    assert group.now - began < 2.0, "a watch holds nobody back from draining"


@played_by(play)
async def test_a_node_that_says_nothing_any_more_is_told_from_one_where_nothing_happens(group: Group, mq: AsyncClient) -> None:
    watcher = Watcher(group, mq)
    await asyncio.sleep(1)
    group.world.network.silence("a0", "client")
    began = group.now
    await asyncio.wait([watcher.task])

    assert isinstance(watcher.task.exception(), Unavailable)
    assert group.now - began < 20
    group.world.network.heal_all()


@played_by(play)
async def test_the_sixty_fifth_watch_is_refused_and_one_that_left_makes_room(group: Group, mq: AsyncClient) -> None:
    watchers = [Watcher(group, mq) for _ in range(64)]
    await asyncio.sleep(1)
    with pytest.raises(LimitReached, match="watches of a/0"):
        await anext(mq.admin.watch_ha_status(NODE))

    await watchers[0].leave()
    await asyncio.sleep(1)
    assert (await anext(mq.admin.watch_ha_status(NODE))).node == NODE
    for watcher in watchers:
        await watcher.leave()


@pytest.mark.parametrize("period_s", [0.05, 61.0])
@played_by(play)
async def test_a_period_outside_its_limits_is_refused(group: Group, mq: AsyncClient, /, period_s: float) -> None:
    with pytest.raises(InvalidField, match="period"):
        await anext(mq.admin.watch_ha_status(NODE, period_s=period_s))


@played_by(play)
async def test_cluster_is_shown_without_its_master_until_all_is_in_sync(group: Group, mq: AsyncClient) -> None:
    shown: list[str] = []

    def show(view: ClusterView) -> bool:
        missing = build_report(view.nodes, view.answers).missing
        if not shown or shown[-1] != missing:
            shown.append(missing)
        return False

    watching = asyncio.create_task(mq.watch_cluster().until(show))
    await asyncio.sleep(3)
    await group.kill("a0")
    await asyncio.sleep(10)
    group.node("a0").start()
    async with asyncio.timeout(60):
        await mq.watch_cluster(period_s=0.2).until(lambda view: build_report(view.nodes, view.answers).in_sync)
    await asyncio.sleep(3)

    assert shown[0] == shown[-1] == ""
    assert "no master of a answers" in shown
    watching.cancel()


@played_by(play)
async def test_status_of_another_groups_node_is_not_reported_for_the_master(group: Group, mq: AsyncClient) -> None:
    """It has come up at the master's address."""
    of_other = group.shape.leading("a0", 0)
    table = replace(of_other.replication, mode=Mode.ASYNC_MASTER, replicas_expected=0)
    of_other = replace(of_other, node=replace(of_other.node, broker="b"), replication=table)
    node = group.node("a0")
    node.crash(Power.LOSS)
    await group.world.buried()
    node.lose_disk()
    node.serve = lambda doors, stop: master.serve(of_other, doors, stop)
    watch = mq.watch_cluster(period_s=0.2)
    watching = asyncio.create_task(watch.until(lambda _: False))
    node.start()
    await asyncio.sleep(8)
    asked, view = await ask_every_node(mq), watch.view
    assert view is not None
    watched = build_report(view.nodes, view.answers)

    for report in (asked, watched):
        of_a, of_b = report.groups
        assert of_a.master is None
        assert "has this address now" in of_a.nodes[0].problem
        assert of_b.in_sync
        assert report.missing.startswith("no master of a answers")
    watching.cancel()


@played_by(play)
async def test_who_gives_up_on_a_cluster_sees_what_is_known_by_then(group: Group, mq: AsyncClient) -> None:
    watch = mq.watch_cluster()
    assert watch.view is None
    group.world.network.silence("a1", "client")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await watch.until(lambda _: True)

    assert watch.view is not None
    assert isinstance(watch.view.answers["a/0"], HaStatus)
    assert build_report(watch.view.nodes, watch.view.answers).groups[0].nodes[1].problem.endswith("no answer yet")
    group.world.network.heal_all()


def test_disconnected_slave_reports_since_when_it_waits() -> None:
    """It says how long ago it held all."""

    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        await publish(mq, 1, 1)
        await asyncio.sleep(10)
        group.world.network.cut("a0", "a1")
        cut_at = group.now
        async with mq.producer(Ack.MASTER_FLUSHED) as producer:
            for _ in range(40):
                await producer.publish("orders", bytes(200_000), queue=0)
        away = [view async for view in own_views(mq, group, "a/1", until=cut_at + 300, every_s=3)][5:]
        group.world.network.heal("a0", "a1")
        back = [view async for view in own_views(mq, group, "a/1", until=group.now + 30)]

        assert {(view.state, view.since_ms, view.received_lag_s) for view in away} == {("waiting", away[0].since_ms, None)}
        behind = [view for view in back if view.received_lag_bytes]
        assert len(behind) > 10
        assert all(view.received_lag_s is not None and view.received_lag_s >= 300 for view in behind)
        assert (back[-1].state, back[-1].received_lag_s) == ("following", 0.0)

    table = ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1, max_bytes_per_s_per_slave=2**20)
    play(story, Shape(1, table, FlushMode.SYNC_FLUSH, segment_bytes=2**20))


@played_by(play)
async def test_slave_of_a_suspended_master_reports_an_unknown_lag(group: Group, mq: AsyncClient) -> None:
    """After a missed heartbeat."""
    await mq.admin.create_topic("orders", 1)
    await publish(mq, 1, 1)
    await asyncio.sleep(10)
    group.world.network.silence("a0", "a1")
    silent_at = group.now
    views = [(group.now - silent_at, view) async for view in own_views(mq, group, "a/1", until=silent_at + 15)]

    late = [view for at, view in views if at > 8]
    assert {view.state for view in late} == {"waiting"}
    assert {(view.received_lag_bytes, view.flushed_lag_s, view.applied_lag_bytes, view.applied_lag_s) for view in late} == {(None,) * 4}
    early = [view for at, view in views if at < 0.4]
    assert {view.received_lag_bytes for view in early} == {0}


@played_by(play)
async def test_lag_of_a_removed_slave_is_unknown_and_its_last_offset_is_shown(group: Group, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", 1)
    await publish(mq, 1, 1)
    await asyncio.sleep(1)
    await group.kill("a1")
    await asyncio.sleep(2)
    status = await mq.admin.ha_status(NODE)

    gone = status.nodes[1]
    assert (gone.state, gone.received, gone.flushed) == ("gone", status.end, status.end)
    assert (gone.received_lag_bytes, gone.flushed_lag_bytes, gone.applied_lag_bytes) == (None, None, None)
    assert (gone.received_lag_s, gone.flushed_lag_s, gone.applied_lag_s) == (None, None, None)


async def own_views(mq: AsyncClient, group: Group, node: str, until: float, *, every_s: float = 0.1) -> AsyncIterator[NodeView]:
    """What the node says of itself, again and again."""
    while group.now < until:
        yield (await mq.admin.ha_status(node)).nodes[0]
        await asyncio.sleep(every_s)


@played_by(play)
async def test_nodes_stay_watched_while_no_nameserver_answers_and_that_is_said(group: Group, mq: AsyncClient) -> None:
    views: list[ClusterView] = []

    def show(view: ClusterView) -> bool:
        views.append(view)
        return False

    watching = asyncio.create_task(mq.watch_cluster().until(show))
    await asyncio.sleep(3)
    assert views[-1].problem is None
    group.node("ns").crash(Power.KILL)
    await asyncio.sleep(20)

    assert isinstance(views[-1].problem, Unavailable)
    assert build_report(views[-1].nodes, views[-1].answers).in_sync
    group.node("ns").start()
    await asyncio.sleep(20)
    assert views[-1].problem is None
    watching.cancel()


@pytest.mark.parametrize("away", [False, True])
@played_by(play)
async def test_a_watch_of_a_cluster_ends_with_its_client_whether_nodes_answer_or_are_away(
    group: Group, mq: AsyncClient, /, *, away: bool
) -> None:
    watching = asyncio.create_task(mq.watch_cluster().until(lambda _: False))
    await asyncio.sleep(3)
    if away:
        for name in ("ns", "a0", "a1"):
            await group.kill(name)
        await asyncio.sleep(30)
    await mq.__aexit__(None, None, None)
    done, _ = await asyncio.wait([watching], timeout=5)
    watching.cancel()

    assert done
    assert isinstance(watching.exception(), Unavailable)
    assert "its client was left" in str(watching.exception())
