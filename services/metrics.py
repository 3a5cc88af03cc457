"""Figures that every service keeps. The registry belongs to the node, never to the process: a simulation runs many nodes in one."""

from prometheus_client import CollectorRegistry, Counter, Histogram


class CallMetrics:
    """Counts calls by method and status code, and their duration."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter("dittomq_rpc_calls_total", "Calls that have ended.", ["method", "code"], registry=registry)
        self._seconds = Histogram("dittomq_rpc_call_seconds", "Duration of calls.", ["method"], registry=registry)

    def called(self, method: str, code: str, seconds: float) -> None:
        self._calls.labels(method, code).inc()
        self._seconds.labels(method).observe(seconds)
