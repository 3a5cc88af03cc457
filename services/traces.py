"""Where the spans of a service go: to the collector that OpenTelemetry's own variables name, OTEL_EXPORTER_OTLP_ENDPOINT and its like."""

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Final

import structlog

from dittomq.broker.config import TracesTable
from dittomq.doors.traces import Traces
from dittomq.errors import ConfigError

_LAST_S: Final = 2.0  # so long the end of a process waits for its last spans to be taken
_QUIET_S: Final = 60.0
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_QUOTING_NO_VARIABLE: Final = ("opentelemetry.exporter.", "opentelemetry.sdk._shared_internal", "opentelemetry.sdk.trace.export")
_A_VARIABLE: Final = "a variable OTEL_* is malformed or unknown, and was left out in whole or in part; correct it"

log = structlog.get_logger()


@contextlib.contextmanager
def exported_traces(settings: TracesTable, node: str, environment: Mapping[str, str]) -> Iterator[Traces | None]:
    """Spans of that node, sent by a thread of their own until the end; None where none are asked for. Raises ConfigError, which quotes no
    variable: any of them may hold a secret. `environment`: the process's own, which OpenTelemetry reads too.

    What a collector does not take in time is dropped from a bounded queue (OTEL_BSP_MAX_QUEUE_SIZE, 2,048 spans): nothing waits for it.
    """
    if not settings.enabled:
        yield None
        return
    try:  # an optional extra
        from opentelemetry.exporter.otlp.proto.grpc.exporter import InvalidCompressionValueException  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("traces.enabled", "needs OpenTelemetry; install it: pip install 'dittomq[traces]'") from error
    _check_endpoints(environment)
    _log_warnings()
    try:
        exporter = OTLPSpanExporter()
        named = OTELResourceDetector().detect()
        provider = TracerProvider(
            resource=Resource({"service.name": "dittomq", "service.instance.id": node}).merge(named), shutdown_on_exit=False
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
    except (ValueError, RuntimeError, InvalidCompressionValueException):
        names = ", ".join(sorted(name for name in environment if name.startswith("OTEL_")))
        raise ConfigError("traces.enabled", f"one of these variables cannot be obeyed, correct it: {names}") from None
    last = threading.Timer(_LAST_S, exporter.shutdown)
    last.daemon = True
    try:
        yield Traces(provider)
    finally:
        last.start()
        provider.shutdown()
        last.cancel()


def _check_endpoints(environment: Mapping[str, str]) -> None:
    """Each failed export is logged with its endpoint."""
    for name in _ENDPOINTS:
        if {"@", "?"} & set(environment.get(name, "")):
            problem = f"{name} holds a user, a password or a query, which gRPC sends to nobody; use OTEL_EXPORTER_OTLP_HEADERS for secrets"
            raise ConfigError("traces.enabled", problem)


class _Warnings(logging.Handler):
    """What OpenTelemetry complains of, as an event, at most once a minute: a collector that is away is one, however long.

    Of its modules that read variables the sentence is ours: theirs quotes values, and OTEL_EXPORTER_OTLP_HEADERS may hold a secret.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._last_s = float("-inf")

    def emit(self, record: logging.LogRecord) -> None:
        if record.created - self._last_s >= _QUIET_S:
            self._last_s = record.created
            log.warning("traces_not_sent", why=record.getMessage() if record.name.startswith(_QUOTING_NO_VARIABLE) else _A_VARIABLE)


def _log_warnings() -> None:
    theirs = logging.getLogger("opentelemetry")
    theirs.addHandler(_Warnings())
    theirs.propagate = False
