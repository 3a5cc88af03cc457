"""What a service needs to send spans."""

import os
import sys
import traceback

import pytest
from structlog.testing import capture_logs

from dittomq.broker.config import TracesTable
from dittomq.errors import ConfigError
from services.traces import exported_traces


def test_traces_without_opentelemetry_are_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"^traces\.enabled: needs OpenTelemetry; install it: pip install 'dittomq\[traces\]'$"):
        exported_traces(TracesTable(enabled=True), "a/0", os.environ).__enter__()


@pytest.mark.parametrize("variable", ["TIMEOUT", "COMPRESSION", "TRACES_TIMEOUT"])
def test_a_variable_that_cannot_be_obeyed_is_refused_by_name_and_not_quoted(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{variable}", "c4n4ry")
    with pytest.raises(ConfigError, match=f"OTEL_EXPORTER_OTLP_{variable}") as refused:
        exported_traces(TracesTable(enabled=True), "a/0", os.environ).__enter__()
    assert "c4n4ry" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("endpoint", ["http://shop:c4n4ry@127.0.0.1:1", "https://c4n4ry@\u2100", "127.0.0.1:1?key=c4n4ry"])
@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_an_endpoint_with_a_secret_is_refused_and_never_quoted(variable: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC would not send it, and each failed export would have it in the log."""
    monkeypatch.setenv(variable, endpoint)
    with capture_logs() as events, pytest.raises(ConfigError, match=variable) as refused:
        exported_traces(TracesTable(enabled=True), "a/0", os.environ).__enter__()
    assert "c4n4ry" not in f"{events}{traceback.format_exception(refused.value)}"


@pytest.mark.parametrize("headers", ["c4n4ry", "token=c4n4ry;x", "token=%0Ac4n4ry,x"], ids=["no pair", "no value", "none for gRPC"])
def test_a_secret_in_a_malformed_variable_reaches_no_log(
    headers: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", headers)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with capture_logs() as events, exported_traces(TracesTable(enabled=True), "a/0", os.environ) as traces:
        assert traces is not None
        traces.publishing().end()

    assert "traces_not_sent" in {event["event"] for event in events}, "it is complained of"
    assert "c4n4ry" not in f"{events}{capfd.readouterr()}"
