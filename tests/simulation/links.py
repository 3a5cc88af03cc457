"""Faults of links between machines."""

import asyncio

from tests.simulation.faults import Fault, FaultKind
from tests.simulation.network import Network


def part(network: Network, one: str, other: str, *, silent: bool) -> None:
    """Deliver nothing between two machines until healed: what is sent waits, or connections break."""
    if silent:
        network.silence(one, other)
        network.silence(other, one)
    else:
        network.cut(one, other)


async def disturb(network: Network, fault: Fault) -> None:
    """Disturb the link from `fault.machine` to `fault.other`, and heal it after a while."""
    one, other = fault.machine, fault.other
    match fault.kind:
        case FaultKind.CUT | FaultKind.SILENCE:
            part(network, one, other, silent=fault.kind is FaultKind.SILENCE)
        case FaultKind.SILENCE_ONE_WAY:
            network.silence(one, other)
        case _:
            network.link(one, other).slowness = float(fault.amount)
    await asyncio.sleep(fault.lasts_s)
    network.heal(one, other)
