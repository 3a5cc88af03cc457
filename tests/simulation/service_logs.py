"""What services log becomes part of the story; an exception in a line is a finding."""

import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import structlog

from tests.simulation import simulated_process
from tests.simulation.world import World


def _nobody(_: str, __: str, ___: Mapping[str, Any]) -> None:
    return


def log_into(world: World, told: Callable[[str, str, Mapping[str, Any]], None] = _nobody) -> None:
    """Let the services' log lines be part of the transcript; an exception in one is a finding. `told` gets machine, event and fields."""

    def write(_: object, level: str, event: MutableMapping[str, Any]) -> str:
        process = simulated_process.current.get()
        who = process.name if process is not None else "-"
        error = event.pop("exc_info", None)
        name = event.pop("event")
        told(who, name, event)
        world.transcript.note(who, f"{level} {name} {' '.join(f'{key}={value}' for key, value in event.items())}")
        if error:
            raised = error if isinstance(error, BaseException) else sys.exception()
            world.unexpected(who, f"logged {name}", raised or RuntimeError(f"exc_info={error}"))
        raise structlog.DropEvent

    structlog.configure(processors=[write], cache_logger_on_first_use=False)
