"""The sessions on the stage: `master` is one slave as its master sees it, `slave` the master as its slave sees it.

An event is named by its class. Its fields are facts; those that are not told are as in `_UNTOLD`.
"""

import dataclasses
from types import ModuleType
from typing import Any

from zlib_ng.zlib_ng import crc32

from dittomq.lineage import newest_epoch
from dittomq.offsets import PhysicalOffset
from dittomq.replication import events, master_events, slave_events
from dittomq.replication.master_log import MasterLog, Succession
from dittomq.replication.master_session import MasterSession, SessionLimits
from dittomq.replication.slave_session import SlaveSession
from tests.transcripts.script import shown

_SEGMENT_BYTES = 1_000_000
_UNTOLD: dict[str, Any] = {
    "cluster": "c",
    "broker": "a",
    "broker_id": 1,
    "replica_uuid": "u1",
    "protocol_version": events.PROTOCOL_VERSION,
    "min_offset": 0,
    "ours": None,
    "flushed": None,  # as `end`
    "confirmed": 0,
    "lineage": (),
    "digests": (),
    "verified_equal": 0,
    "replication_address": "a-1:10912",
    "segment_bytes": _SEGMENT_BYTES,
    "applied": 0,
    "begin": 0,
    "doubted": None,
    "digest": None,
    "differs": None,
    "reason": "",
    "heartbeat_ms": 5_000,
    "crc": None,  # that of `data`
    "cut_to": None,
    "ours_whole": True,
    "topics": None,
    "degraded": (),
    "heard": 0,
    "promises": (),
    "lacks": (),
    "verified_with": "u0",
    "end": None,  # of a verdict; whoever else has one tells it
}


class Master:
    """A master's session.

    Opened with end, lineage, confirmed, min, segment, window_bytes, step_bytes, loss_accepted, degraded, granted, after, witnessed, known.
    """

    ticks = True

    def __init__(self, given: dict[str, Any], now: float) -> None:
        begin, end, confirmed = given.get("min", 0), given["end"], given.get("confirmed", 0)
        log = MasterLog("c", "a", given.get("segment", _SEGMENT_BYTES), begin, end, confirmed, given["lineage"], "a/0", "u0")
        log = dataclasses.replace(log, loss_accepted=given.get("loss_accepted", False), degraded=given.get("degraded", ()))
        log = dataclasses.replace(
            log,
            succession=Succession(given.get("granted", 0), given.get("after"), given.get("witnessed", 0)),
            settled=given.get("known", ()),
        )
        limits = SessionLimits(given.get("window_bytes", 16 * 1024 * 1024), proof_step_bytes=given.get("step_bytes", 64 * 1024 * 1024))
        self._session = MasterSession(log, limits, now)

    def act(self, event: str, given: dict[str, Any], now: float) -> list[str]:
        """The commands of the session."""
        return [shown(command) for command in self._session.handle(told(event, given, master_events), now)]


class Slave:
    """A slave's session.

    Opened with end, lineage, flushed, applied, min, promised, and heard: the newest epoch, unless told that of its lineage.
    """

    ticks = True

    def __init__(self, given: dict[str, Any], now: float) -> None:
        end = given["end"]
        begin = given.get("min", PhysicalOffset(0))
        stored = slave_events.Stored(end, given.get("flushed", end), given.get("applied", PhysicalOffset(0)), begin)
        lineage = given.get("lineage", ())
        log = slave_events.SlaveLog(lineage, begin, stored, given.get("heard", newest_epoch(lineage)))
        self._session = SlaveSession(log, silence_s=20.0, now=now)

    def act(self, event: str, given: dict[str, Any], now: float) -> list[str]:
        """The commands of the session."""
        return [shown(command) for command in self._session.handle(told(event, given, slave_events), now)]


def told(name: str, given: dict[str, Any], module: ModuleType) -> Any:
    """The event of that name, with these facts and for the rest the untold ones."""
    kind = getattr(module, name, None) or getattr(events, name)
    names = [field.name for field in dataclasses.fields(kind)]
    assert not set(given) - set(names), f"{name} has no field {', '.join(set(given) - set(names))}"
    if name == "Verdict":
        given.setdefault("replica_uuid", "u0")
    values: dict[str, Any] = {each: given.get(each, _UNTOLD.get(each)) for each in names}
    if "data" in values:
        values["data"] = bytes(int(values["data"]))
        values["crc"] = crc32(values["data"]) if values["crc"] is None else values["crc"]
    if "action" in values:
        values["action"] = events.VerdictAction(values["action"])
    if "stored" in values:
        values["stored"] = slave_events.Stored(values["stored"], values["stored"], values["stored"], PhysicalOffset(0))
    if "flushed" in values and values["flushed"] is None:
        values["flushed"] = values["end"]
    return kind(**values)
