"""What a service needs to send spans."""

import sys

import pytest
from structlog.testing import capture_logs

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


@pytest.mark.parametrize("headers", ["c4n4ry", "token=c4n4ry;x", "token=%0Ac4n4ry,x"], ids=["no pair", "no value", "none for gRPC"])
def test_a_secret_in_a_malformed_variable_reaches_no_log(
    headers: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", headers)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with capture_logs() as events, exported_traces(TracesTable(enabled=True), "a/0") as traces:
        assert traces is not None
        traces.publishing().end()

    assert "traces_not_sent" in {event["event"] for event in events}, "it is complained of"
    assert "c4n4ry" not in f"{events}{capfd.readouterr()}"
