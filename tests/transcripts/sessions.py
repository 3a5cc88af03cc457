"""The sessions on the stage: `master` is one slave as its master sees it, `slave` the master as its slave sees it.

An event is named by its class. Its fields are facts; those that are not told are as in `_UNTOLD`.
"""

import dataclasses
from types import ModuleType
from typing import Any

from zlib_ng.zlib_ng import crc32

from dittomq.epoch_history import newest_epoch, newest_incarnation
from dittomq.offsets import PhysicalOffset
from dittomq.replication import events, master_events, slave_events
from dittomq.replication.master_log import MasterLog
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
    "epoch_history": (),
    "digests": (),
    "verified_offset": 0,
    "replication_address": "a-1:10912",
    "segment_bytes": _SEGMENT_BYTES,
    "applied": 0,
    "begin": 0,
    "reverify_from": None,
    "digest": None,
    "differs": None,
    "reason": "",
    "heartbeat_ms": 5_000,
    "crc": None,  # that of `data`
    "truncate_to": None,
    "ours_whole": True,
    "topics": None,
    "birth": "",
    "incarnation": "i1",
    "adopted": None,  # the epoch that an ack is of, or the newest of the epoch history
    "promised": None,  # the newest of the epoch history
    "counts": True,
    "missing_ranges": (),
    "verified_with": "u0",
    "end": None,  # of a handshake result; whoever else has one tells it
}


class Master:
    """A master's session.

    Opened with end, epoch history, confirmed, min, segment, max_inflight_bytes, step_bytes, heartbeat_s, birth, member, counts,
    acknowledged.
    """

    ticks = True

    def __init__(self, given: dict[str, Any], now: float) -> None:
        begin, end, confirmed = given.get("min", 0), given["end"], given.get("confirmed", 0)
        log = MasterLog("c", "a", given.get("segment", _SEGMENT_BYTES), begin, end, confirmed, given["epoch_history"], "a/0", "u0")
        log = dataclasses.replace(log, birth=given.get("birth", ""), is_member=given.get("member", False), counts=given.get("counts", True))
        log = dataclasses.replace(log, acknowledged=given.get("acknowledged", 0))
        limits = SessionLimits(
            given.get("max_inflight_bytes", 16 * 1024 * 1024),
            heartbeat_s=given.get("heartbeat_s", 5.0),
            silence_s=20.0,
            verify_step_bytes=given.get("step_bytes", 64 * 1024 * 1024),
        )
        self._session = MasterSession(log, limits, now)

    def act(self, event: str, given: dict[str, Any], now: float) -> list[str]:
        """The commands of the session."""
        return [shown(command) for command in self._session.handle(told(event, given, master_events), now)]


class Slave:
    """A slave's session.

    Opened with end, epoch history, flushed, applied, min, birth, promised and adopted: unless told, the newest epoch of its epoch history.
    """

    ticks = True

    def __init__(self, given: dict[str, Any], now: float) -> None:
        end = given["end"]
        begin = given.get("min", PhysicalOffset(0))
        epoch_history = given.get("epoch_history", ())
        newest = newest_epoch(epoch_history)
        stored = slave_events.LogWritten(
            *(end, given.get("flushed", end), given.get("applied", PhysicalOffset(0)), begin),
            incarnation=newest_incarnation(epoch_history),
            adopted=given.get("adopted", newest),
        )
        log = slave_events.SlaveLog(epoch_history, begin, stored, given.get("promised", newest), given.get("birth", ""))
        self._session = SlaveSession(log, silence_s=20.0, now=now)
        self._incarnation, self._adopted = stored.incarnation, stored.adopted

    def act(self, event: str, given: dict[str, Any], now: float) -> list[str]:
        """The commands of the session. What it was commanded to adopt is on the disk with the next LogWritten, unless that says
        otherwise."""
        if event == "LogWritten":
            given = {"incarnation": self._incarnation, "adopted": self._adopted, **given}
        commands = self._session.handle(told(event, given, slave_events), now)
        for command in commands:
            if isinstance(command, slave_events.ReplaceEpochHistory):
                self._incarnation = newest_incarnation(command.epoch_history)
            if isinstance(command, slave_events.AdoptEpoch):
                self._adopted = command.epoch
        return [shown(command) for command in commands]


def told(name: str, given: dict[str, Any], module: ModuleType) -> Any:
    """The event of that name, with these facts and for the rest the untold ones."""
    kind = getattr(module, name, None) or getattr(events, name)
    names = [field.name for field in dataclasses.fields(kind)]
    assert not set(given) - set(names), f"{name} has no field {', '.join(set(given) - set(names))}"
    if name == "HandshakeResult":
        given.setdefault("replica_uuid", "u0")
    values: dict[str, Any] = {each: given.get(each, _UNTOLD.get(each)) for each in names}
    if "data" in values:
        values["data"] = bytes(int(values["data"]))
        values["crc"] = crc32(values["data"]) if values["crc"] is None else values["crc"]
    if "action" in values:
        values["action"] = events.SyncAction(values["action"])
    if "stored" in values:
        values["stored"] = slave_events.LogWritten(values["stored"], values["stored"], values["stored"], PhysicalOffset(0))
    if "adopted" in values and values["adopted"] is None:
        values["adopted"] = values["epoch"] if "epoch" in values else newest_epoch(given.get("epoch_history", ()))
    if "promised" in values and values["promised"] is None:
        values["promised"] = newest_epoch(given.get("epoch_history", ()))
    if "flushed" in values and values["flushed"] is None:
        values["flushed"] = values["end"]
    return kind(**values)
