"""Replication as metrics: read on the loop, told to any thread."""

import asyncio
import threading
from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from dittomq.ha_status import HaStatus, NodeState, NodeView
from dittomq.routes import Role
from services.ha_metrics import HaCollector
from tests.support.sample_status import STATUS
from tests.support.virtual_time import under


def scraped(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


@under(asyncio.run)
async def test_the_status_is_read_on_the_loop_whichever_thread_scrapes() -> None:
    readers: list[threading.Thread] = []

    def status() -> HaStatus:
        readers.append(threading.current_thread())
        return STATUS

    registry = CollectorRegistry()
    registry.register(HaCollector(status, asyncio.get_running_loop()))
    lines = await asyncio.to_thread(scraped, registry)

    assert readers == [threading.main_thread()]
    assert 'dittomq_log_offset_bytes{position="confirmed"} 700.0' in lines
    assert 'dittomq_replica_lag_bytes{node="a/1",state="received"} 100.0' in lines


@under(asyncio.run)
async def test_what_ha_status_says_of_each_copy_is_there_and_nothing_where_it_is_unknown() -> None:
    registry = CollectorRegistry()
    degraded = replace(
        STATUS,
        degraded=True,
        degraded_since_ms=6_000,
        failover="paused",
        members=("a/0",),
        coordination_store="etcd e:1",
        data_loss="some",
    )
    registry.register(HaCollector(lambda: degraded, asyncio.get_running_loop()))
    lines = await asyncio.to_thread(scraped, registry)

    assert set(lines) >= {
        "dittomq_in_sync_set_members 1.0",
        'dittomq_failover{mode="paused"} 1.0',
        "dittomq_coordination_usable 1.0",
        "dittomq_data_loss 1.0",
        "dittomq_degraded_since_timestamp_seconds 6.0",
        'dittomq_replica_lag_seconds{node="a/1",state="applied"} 0.5',
        'dittomq_replica_in_sync{node="a/1"} 1.0',
        'dittomq_replica_in_sync{node="a/2"} 0.0',
        'dittomq_replica_in_sync{node="a/3"} 0.0',
        "dittomq_replicas_expected 1.0",
        'dittomq_replica_state_since_timestamp_seconds{node="a/1",state="in sync"} 7.0',
        'dittomq_replica_sent_bytes_per_second{node="a/1"} 50.0',
        'dittomq_replica_last_drop_timestamp_seconds{node="a/2",reason="session_expired"} 8.5',
        "dittomq_audit_pins 1.0",
    }
    assert not [line for line in lines if line.startswith(("dittomq_replica_lag", "dittomq_replica_verified")) and "a/2" in line]


@under(asyncio.run)
async def test_state_label_of_a_resyncing_slave_does_not_depend_on_progress() -> None:
    registry = CollectorRegistry()
    copying = NodeView("a/1", "slave", NodeState.FULL_RESYNC, since_ms=7_000, resync_done_bytes=31, resync_total_bytes=90)
    registry.register(HaCollector(lambda: replace(STATUS, node="a/1", nodes=(copying,)), asyncio.get_running_loop()))
    lines = await asyncio.to_thread(scraped, registry)

    assert 'dittomq_replica_state_since_timestamp_seconds{node="a/1",state="full resync"} 7.0' in lines


def test_a_loop_that_does_not_answer_leaves_the_other_metrics() -> None:
    loop = asyncio.new_event_loop()  # it never runs
    registry = CollectorRegistry()
    registry.register(HaCollector(lambda: STATUS, loop))

    assert scraped(registry) == []
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_how_many_copies_are_in_sync_and_asked_for_is_said_by_who_leads_only() -> None:
    async def node(status: HaStatus) -> list[str]:
        registry = CollectorRegistry()
        registry.register(HaCollector(lambda: status, asyncio.get_running_loop()))
        return [line for line in await asyncio.to_thread(scraped, registry) if line.startswith("dittomq_in_sync_replicas")]

    assert asyncio.run(node(STATUS)) == ["dittomq_in_sync_replicas 2.0", "dittomq_in_sync_replicas_required 2.0"]
    assert asyncio.run(node(replace(STATUS, role=Role.SLAVE, in_sync_replicas=0, in_sync_now=0))) == []
