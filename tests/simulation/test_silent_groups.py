"""Groups of which no node is registered any more: nameservers remember them, and nobody calls such a cluster whole."""

import asyncio
import random
from dataclasses import replace

import pytest

from dittomq.cli.ha_report import build_report, report_lines
from dittomq.cli.ha_status import ask_every_node
from dittomq.client import AsyncClient
from dittomq.client.admin import Admin
from dittomq.client.copies import CopyReader
from dittomq.client.ha_watch import ClusterView
from dittomq.client.routing import Routing, Surroundings
from dittomq.errors import DittoError, InvalidField, NotPermitted, OutOfReach
from dittomq.offsets import Epoch
from dittomq.routes import NO_OPENING, ForgetOrder, Forgotten, Opening, SilentGroup
from services.nameserver.config import NameserverConfig, NodeConfig
from tests.simulation import group as groups
from tests.simulation.disk import BOUNDLESS, Deed, Operation
from tests.simulation.group import Group
from tests.simulation.town import Town, play
from tests.simulation.world import Power, World
from tests.support.naming import master

B = replace(master("c" * 32, host="b-0", broker="b", epoch=3), opener_id=0)
SILENT_B = SilentGroup("dittomq", "b", Opening(Epoch(3), 0))
EXPIRED_S = 35


def test_a_group_all_nodes_of_which_were_killed_is_listed_as_silent_when_they_have_expired_and_no_more_when_one_is_back(
    world: World,
) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.broker(master())
        b = town.broker(B)
        await asyncio.sleep(60)
        routes = town.routes()
        assert (await routes.listing()).silent == ()
        b.node.crash(Power.KILL)
        await asyncio.sleep(EXPIRED_S)

        listing = await routes.listing()

        assert ([node.name for node in listing.nodes], listing.silent) == (["a/0"], (SILENT_B,))
        assert await CopyReader(town.channels, 3.0).silent_groups("n0:9876") == [SILENT_B]
        b.node.start()
        await asyncio.sleep(3)
        assert (await routes.listing()).silent == ()

    play(world, story)


def test_a_group_that_stopped_cleanly_is_listed_as_silent_at_once(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        b = town.broker(B)
        await asyncio.sleep(60)

        await b.node.stop()

        assert (await town.routes().listing()).silent == (SILENT_B,)

    play(world, story)


def test_a_group_is_silent_only_where_no_nameserver_lists_a_node_of_it(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.nameserver()
        town.broker(master())
        b = town.broker(B)
        await asyncio.sleep(60)
        world.network.cut("b-0", "n0")
        await asyncio.sleep(EXPIRED_S)

        assert (await town.routes(["n0:9876"]).listing()).silent == (SILENT_B,)
        assert (await town.routes().listing()).silent == ()
        b.registration = replace(B, epoch=Epoch(4))  # of which n1 alone hears
        b.registrar.changed()
        await asyncio.sleep(1)
        b.node.crash(Power.KILL)
        await asyncio.sleep(EXPIRED_S)
        assert (await town.routes().listing()).silent == (replace(SILENT_B, newest=Opening(Epoch(4), 0)),)

    play(world, story)


def test_after_the_restart_of_a_nameserver_a_silent_group_is_said_to_be_maybe_not_registered_yet(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.nameserver()
        b = town.broker(B)
        await asyncio.sleep(60)
        b.node.crash(Power.KILL)
        await asyncio.sleep(EXPIRED_S)
        world.nodes["n0"].crash(Power.KILL)
        await asyncio.sleep(1)
        world.nodes["n0"].start()
        await asyncio.sleep(1)

        assert (await town.routes(["n0:9876"]).listing()).silent == (replace(SILENT_B, unsettled=True),)
        assert (await town.routes().listing()).silent == (SILENT_B,), "another nameserver has been up for long enough to know"

    play(world, story)


def test_a_route_names_a_group_that_is_silent_for_every_nameserver_that_was_asked(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.nameserver()
        town.broker(master())
        b = town.broker(B)
        await asyncio.sleep(60)
        world.network.cut("b-0", "n0")
        await asyncio.sleep(EXPIRED_S)

        one = await town.routes(["n0:9876"]).route("orders")
        assert ([group.broker for group in one.queues], one.silent) == (["a"], (SILENT_B,))
        world.network.cut("a-0", "n1")  # so that n0 is not enough for a client that knew both groups
        both = town.routes()
        b.node.crash(Power.KILL)
        await asyncio.sleep(EXPIRED_S)
        assert (await both.refresh("orders")).silent == (SILENT_B,)

    play(world, story)


def test_a_group_that_is_gone_is_forgotten_on_the_disk_too_and_not_while_a_node_of_it_is_there_or_may_yet_be(world: World) -> None:
    async def story(town: Town) -> None:
        name = town.nameserver()
        town.broker(replace(master(), opener_id=0))
        b = town.broker(B)
        await asyncio.sleep(60)
        routes, order = town.routes(), ForgetOrder("dittomq", "b", Epoch(3))

        async def outcome(order: ForgetOrder = order) -> Forgotten | str:
            [found] = (await routes.forget_group(order)).values()
            return str(found) if isinstance(found, DittoError) else found

        assert "a node of b is registered" in str(await outcome())
        b.node.crash(Power.KILL)
        await asyncio.sleep(EXPIRED_S)
        assert "it remembers epoch 3 of b, newer than 2" in str(await outcome(replace(order, epoch=Epoch(2))))
        assert "cluster" in str(await outcome(replace(order, cluster="other")))
        world.nodes[name].crash(Power.KILL)
        await asyncio.sleep(1)
        world.nodes[name].start()
        await asyncio.sleep(1)
        assert "a node of b may register yet" in str(await outcome())
        await asyncio.sleep(60)
        assert await outcome(replace(order, validate_only=True)) == Forgotten(Opening(Epoch(3), 0), kept=False)
        assert (await routes.listing()).silent == (SILENT_B,)

        assert await outcome() == Forgotten(Opening(Epoch(3), 0), kept=True)

        assert (await routes.listing()).silent == ()
        assert await outcome() == Forgotten(NO_OPENING, kept=True)
        world.nodes[name].crash(Power.LOSS)
        await asyncio.sleep(1)
        world.nodes[name].start()
        await asyncio.sleep(60)
        listing = await routes.listing()
        assert ([node.name for node in listing.nodes], listing.silent) == (["a/0"], ())
        b.node.start()
        await asyncio.sleep(3)
        await b.node.stop()
        assert (await routes.listing()).silent == (SILENT_B,), "whoever comes back is remembered anew"

    play(world, story)


def test_a_group_is_forgotten_by_each_nameserver_that_answers_and_the_others_are_named(world: World) -> None:
    async def story(town: Town) -> None:
        for _ in range(2):
            town.nameserver()
        b = town.broker(B)
        await asyncio.sleep(60)
        await b.node.stop()
        world.nodes["n1"].crash(Power.KILL)
        await asyncio.sleep(1)

        outcomes = await town.routes().forget_group(ForgetOrder("dittomq", "b", Epoch(3)))

        assert outcomes["n0:9876"] == Forgotten(Opening(Epoch(3), 0), kept=True)
        assert isinstance(outcomes["n1:9876"], OutOfReach)

    play(world, story)


def test_who_asks_again_hears_of_each_nameserver_that_may_still_bring_the_group_back_though_none_lists_it(world: World) -> None:
    async def story(town: Town) -> None:
        for _ in range(2):
            town.nameserver()
        town.broker(master())
        b = town.broker(B)
        await asyncio.sleep(60)
        await b.node.stop()
        n0, n1 = world.nodes["n0"], world.nodes["n1"]
        admin = Admin(Surroundings(town.channels, Routing(town.routes(), n0.clock, {}), n0.clock, random.Random(1)))
        n0.disk.capacity_bytes = n0.disk.used_bytes()
        await admin.forget_group("b")
        n1.crash(Power.KILL)
        await asyncio.sleep(1)

        again = await admin.forget_group("b")

        assert again["n0:9876"] == Forgotten(NO_OPENING, kept=False)
        assert isinstance(again["n1:9876"], OutOfReach)
        n0.disk.capacity_bytes = BOUNDLESS
        n1.start()
        await asyncio.sleep(60)
        assert await admin.forget_group("b") == {}

    play(world, story)


def test_a_group_of_which_a_node_is_registered_anywhere_is_forgotten_nowhere() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await group.kill("a0")
        await asyncio.sleep(EXPIRED_S + 5)
        with pytest.raises(NotPermitted, match="a/1 is registered; only a group that is gone can be forgotten"):
            await mq.admin.forget_group("a")
        assert await mq.admin.forget_group("b") == {}
        await group.kill("a1")
        await asyncio.sleep(EXPIRED_S + 5)

        [outcome] = (await mq.admin.forget_group("a")).values()

        assert outcome == Forgotten(Opening(Epoch(1), 0), kept=True)
        assert (await mq.admin.list_cluster()).silent == ()

    groups.play(story)


def test_what_to_do_about_a_group_that_is_gone_is_said_to_whoever_names_it_or_a_node_of_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        for name in ("a0", "a1"):
            await group.kill(name)
        await asyncio.sleep(EXPIRED_S + 5)

        for node in ("a/0", "a/1"):
            with pytest.raises(OutOfReach) as gone:
                await mq.admin.repair(node)
            assert gone.value.problem.startswith("nameservers know its group a, and no node of that is registered now; start its nodes")
        with pytest.raises(InvalidField, match='"c/0" is not registered with any nameserver; registered: none'):
            await mq.admin.repair("c/0")

    groups.play(story)


def test_silent_groups_of_another_cluster_are_none_of_this_one(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.nameserver(NameserverConfig(node=NodeConfig(cluster="other")))
        town.broker(master())
        b = town.broker(replace(B, cluster="other"))
        await asyncio.sleep(5)
        await b.node.stop()

        listing = await town.routes().listing()

        assert ([node.name for node in listing.nodes], listing.silent) == (["a/0"], ())

    play(world, story)


def test_a_group_is_let_go_by_deleting_what_a_nameserver_keeps_while_all_others_tell_it_anew(world: World) -> None:
    async def story(town: Town) -> None:
        name = town.nameserver()
        a = town.broker(replace(master(), opener_id=0))
        b = town.broker(B)
        await asyncio.sleep(60)
        await b.node.stop()
        nameserver = world.nodes[name]
        await nameserver.stop()
        kept = nameserver.disk.names.files["dittomq/openings"]
        nameserver.disk.do(Operation(Deed.REMOVED, "dittomq/openings", kept))
        nameserver.start()
        await asyncio.sleep(60)

        assert (await town.routes().listing()).silent == ()
        nameserver.crash(Power.KILL)
        a.node.crash(Power.KILL)
        await asyncio.sleep(1)
        nameserver.start()
        await asyncio.sleep(1)
        [known] = (await town.routes().listing()).silent
        assert (known.broker, known.newest) == ("a", Opening(Epoch(7), 0)), "it was told anew, and keeps it"

    play(world, story)


def test_a_cluster_of_which_a_group_is_gone_needs_attention_and_is_not_in_sync_until_it_is_back() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        shown: list[ClusterView] = []

        def show(view: ClusterView) -> bool:
            shown[:] = [view]
            return False

        watching = asyncio.create_task(mq.watch_cluster().until(show))
        for name in ("a0", "a1"):
            await group.kill(name)
        await asyncio.sleep(EXPIRED_S + 5)

        report = await ask_every_node(mq)
        assert await mq.admin.list_brokers() == []
        assert report_lines(report, 0)[1:] == ["a  NOBODY ANSWERS  newest epoch 1, opened by a/0, no node is registered"]
        assert (report.needs_attention, report.missing) == (True, "no node of a is registered")
        [view] = shown
        assert build_report(view.nodes, view.answers, view.silent).missing == "no node of a is registered"

        for name in ("a0", "a1"):
            group.node(name).start()
        async with asyncio.timeout(60):
            await mq.watch_cluster().until(lambda view: build_report(view.nodes, view.answers, view.silent).in_sync)
        watching.cancel()

    groups.play(story)
