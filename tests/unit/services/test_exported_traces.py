"""What a service needs to send spans."""

import sys

import pytest

from dittomq.broker.config import TracesTable
from dittomq.errors import ConfigError
from services.traces import exported_traces


def test_traces_without_opentelemetry_are_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"^traces\.enabled: needs OpenTelemetry; install it: pip install 'dittomq\[traces\]'$"):
        exported_traces(TracesTable(enabled=True), "a/0").__enter__()


def test_a_variable_that_cannot_be_obeyed_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    with pytest.raises(ConfigError, match=r"OTEL_\* cannot be obeyed: .*soon"):
        exported_traces(TracesTable(enabled=True), "a/0").__enter__()
