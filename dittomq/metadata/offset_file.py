"""consumerOffset.json, made of pieces: only names that have changed since it was last written are encoded again. And read, by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from json.encoder import encode_basestring_ascii

from dittomq.metadata.formats import (
    CONSUMER_OFFSETS,
    OFFSET_INCARNATIONS_FIELD,
    OFFSET_RESETS_FIELD,
    FieldText,
    field_text,
    fields_of,
    file_of,
    line_of,
    take_offsets,
)
from dittomq.metadata.offset_table import Name, NameOffsets, OffsetTable
from dittomq.metadata.rows import Json
from dittomq.routes import DataVersion


@dataclass(frozen=True, slots=True)
class OffsetSnapshot:
    """One version of a table, which may be encoded on another thread while the table goes on."""

    version: DataVersion
    names: Sequence[Name]
    other_fields: Mapping[str | int, Json]


@dataclass(frozen=True, slots=True)
class LoadedOffsets:
    """What a file held."""

    version: DataVersion = DataVersion()  # noqa: RUF009  # frozen
    by_name: dict[Name, NameOffsets] = field(default_factory=dict)
    other_fields: Mapping[str | int, Json] = field(default_factory=dict)


def decode_offsets(data: bytes) -> LoadedOffsets:
    """What the file's bytes hold, as `dittomq.metadata.formats.decode` finds it, without a row for each queue. Raises DamagedFile."""
    version, _, fields = fields_of(data)
    by_name = {(each.topic, each.group): NameOffsets(each.incarnation, each.offsets, each.resets) for each in take_offsets(fields)}
    return LoadedOffsets(version, by_name, fields)


@dataclass(slots=True)
class OffsetFile:
    """The pieces. `take_changes` until it returns True, then `snapshot` at once, then `encode`; and again only after that."""

    _offsets: dict[Name, bytes] = field(default_factory=dict)
    _incarnations: dict[Name, bytes] = field(default_factory=dict)
    _resets: dict[Name, bytes] = field(default_factory=dict)

    def take_changes(self, table: OffsetTable, limit: int) -> bool:
        """Encode at most `limit` names that have changed; whether these were the last ones."""
        for name in list(islice(table.dirty, limit)):
            del table.dirty[name]
            self._take(name, table.of_name(name))
        return not table.dirty

    def snapshot(self, table: OffsetTable) -> OffsetSnapshot:
        """What is to be encoded."""
        return OffsetSnapshot(table.version, tuple(table.names), table.other_fields)

    def encode(self, snapshot: OffsetSnapshot) -> bytes:
        """The file's bytes, as `dittomq.metadata.formats.encode` makes them."""
        version = snapshot.version
        fields: dict[str, FieldText] = {str(key): field_text(value) for key, value in snapshot.other_fields.items()}
        fields["dataVersion"] = field_text(
            {"counter": version.counter, "stateVersion": version.state_version, "timestamp": version.timestamp_ms}
        )
        for name, pieces in (
            (CONSUMER_OFFSETS.field, self._offsets),
            (OFFSET_INCARNATIONS_FIELD, self._incarnations),
            (OFFSET_RESETS_FIELD, self._resets),
        ):
            lines = [line for line in map(pieces.get, snapshot.names) if line is not None] if pieces else []
            if lines or name == CONSUMER_OFFSETS.field:
                fields[name] = lines
        return file_of(fields)

    def _take(self, name: Name, of_name: NameOffsets | None) -> None:
        for pieces in (self._offsets, self._incarnations, self._resets):
            pieces.pop(name, None)
        if of_name is None:
            return
        key = encode_basestring_ascii(f"{name[0]}@{name[1]}")
        self._offsets[name] = _object(key, of_name.offsets)
        if of_name.incarnation:
            self._incarnations[name] = line_of(f"{key}:{of_name.incarnation}")
        if of_name.resets:
            self._resets[name] = _object(key, of_name.resets)


def _object(key: str, numbers: Mapping[int, int]) -> bytes:
    inner = ",".join([f"{queue}:{numbers[queue]}" for queue in sorted(numbers)])
    return line_of(f"{key}:{{{inner}}}")
