"""Replication as metrics: read on the loop, told to any thread."""

import asyncio
import threading

from prometheus_client import CollectorRegistry, generate_latest

from dittomq.ha_status import HaStatus, NodeView
from dittomq.routes import Role
from services.ha_metrics import HaCollector

STATUS = HaStatus(
    node="a/0",
    cluster="c",
    broker="a",
    epoch=7,
    role=Role.SYNC_MASTER,
    in_sync_replicas=2,
    in_sync_now=2,
    replicas_expected=1,
    min_offset=0,
    end=900,
    flushed=800,
    confirmed=700,
    readable=700,
    writable=True,
    degraded=False,
    degraded_since_ms=None,
    degraded_bytes=0,
    waiting_for="",
    nodes=(NodeView("a/1", "slave", "in sync", received_lag_bytes=100),),
)


def scraped(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_the_status_is_read_on_the_loop_whichever_thread_scrapes() -> None:
    readers: list[threading.Thread] = []

    def status() -> HaStatus:
        readers.append(threading.current_thread())
        return STATUS

    async def node() -> list[str]:
        registry = CollectorRegistry()
        registry.register(HaCollector(status, asyncio.get_running_loop()))
        return await asyncio.to_thread(scraped, registry)

    lines = asyncio.run(node())

    assert readers == [threading.main_thread()]
    assert 'dittomq_log_offset_bytes{position="confirmed"} 700.0' in lines
    assert 'dittomq_replica_lag_bytes{node="a/1",state="received"} 100.0' in lines


def test_a_loop_that_does_not_answer_leaves_the_other_metrics() -> None:
    loop = asyncio.new_event_loop()  # it never runs
    registry = CollectorRegistry()
    registry.register(HaCollector(lambda: STATUS, loop))

    assert scraped(registry) == []
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
