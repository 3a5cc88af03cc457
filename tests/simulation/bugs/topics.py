"""Bugs in topics that are deleted and made again, and in reading by tag."""

from dataclasses import replace
from typing import Any

from dittomq.broker.metadata_sync import MetadataPuller
from dittomq.commitlog.log_start import StoreWithLogStart
from dittomq.commitlog.reading import ReadRequest, StoreReader
from dittomq.commitlog.store import Store
from tests.simulation.bugs.patches import Patches, always
from tests.simulation.cluster import Cluster

_MORE = 3


async def _nothing(*_: Any, **__: Any) -> None:
    return


def deleted_messages_stay(patches: Patches, _: Cluster) -> None:
    """The queues of a deleted topic begin where they began before."""
    patches.put(StoreWithLogStart, "hide", always(None))


def deleted_messages_stay_on_slaves(patches: Patches, _: Cluster) -> None:
    """Slaves learn that a topic is gone, and keep its queues as they are."""

    def make(honest: Any) -> Any:
        def init(puller: MetadataPuller, *parts: Any, **named: Any) -> None:
            honest(puller, *parts, **named)
            puller._hide = _nothing

        return init

    patches.put(MetadataPuller, "__init__", make)


def new_messages_are_hidden(patches: Patches, _: Cluster) -> None:
    """Of a topic that is made again the first messages are hidden with what was deleted."""

    def make(honest: Any) -> Any:
        def hide(store: Store, minimums: Any) -> None:
            honest(store, {key: low + _MORE for key, low in minimums.items()})

        return hide

    patches.put(StoreWithLogStart, "hide", make)


def tagged_message_left_out(patches: Patches, _: Cluster) -> None:
    """A page of one tag lacks its last message, and goes on behind it all the same."""

    def make(honest: Any) -> Any:
        def queue(reader: StoreReader, topic: str, number: int, wanted: ReadRequest) -> Any:
            found = honest(reader, topic, number, replace(wanted, as_records=False))
            return replace(found, messages=found.messages[:-1]) if wanted.tags and len(found.messages) > 1 else found

        return queue

    patches.put(StoreReader, "queue", make)


def tags_are_not_told_apart(patches: Patches, _: Cluster) -> None:
    """A message is served with the tag of the first one of its page."""

    def make(honest: Any) -> Any:
        def queue(reader: StoreReader, topic: str, number: int, wanted: ReadRequest) -> Any:
            found = honest(reader, topic, number, replace(wanted, as_records=False))
            return replace(found, messages=[each._replace(tag=found.messages[0].tag) for each in found.messages])

        return queue

    patches.put(StoreReader, "queue", make)
