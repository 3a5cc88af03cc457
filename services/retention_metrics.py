"""Retention as metrics, read when they are scraped."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from dittomq.broker.retention import RetentionLoop


class RetentionCollector(Collector):
    """What one node dropped of its log, and what it keeps for whom. Read in the thread that serves the scrape: plain values only."""

    def __init__(self, retaining: RetentionLoop) -> None:
        self._retaining = retaining

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """All of one moment."""
        held = GaugeMetricFamily("dittomq_retention_held_bytes", "Disk that only this holder keeps from being freed.", labels=["holder"])
        for holder, size in self._retaining.retained_bytes.items():
            held.add_metric([holder], size)
        yield held
        yield CounterMetricFamily(
            "dittomq_retention_dropped_bytes_total", "Bytes of the log dropped since the start.", value=self._retaining.dropped_bytes
        )
