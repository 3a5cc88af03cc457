"""Bugs in what producers are told, in queues and in tables."""

from dataclasses import replace
from functools import partial
from typing import Any

from dittomq.broker.config_files import ConfigFiles
from dittomq.broker.metadata_sync import MetadataPuller
from dittomq.client.in_doubt import InDoubtSends
from dittomq.client.producer import Producer
from dittomq.client.send_results import Unknown
from dittomq.commitlog import recovery
from dittomq.commitlog.queues.producer_state import Producers
from dittomq.commitlog.replica_append import ReplicaAppender
from dittomq.commitlog.store import Store
from dittomq.errors import NotStored
from dittomq.metadata.formats import TOPICS
from services.master.opening import Opening
from tests.simulation.bugs.patches import Patches, always
from tests.simulation.cluster import Cluster

_EVERY = 10  # pages


def forget_sequences_at_restart(patches: Patches, _: Cluster) -> None:
    def make(honest: Any) -> Any:
        def recover(*args: object, **named: object) -> Any:
            found = honest(*args, **named)
            found.derived.producers._producers.clear()
            return found

        return recover

    patches.put(recovery, "recover", make)


def a_forgotten_producer_taken_for_a_new_one(patches: Patches, _: Cluster) -> None:
    patches.put(Producers, "known", lambda honest: lambda table, producer_id, first, count, _: honest(table, producer_id, first, count))


def no_sequences_of_copied_records(patches: Patches, _: Cluster) -> None:
    def make(honest: Any) -> Any:
        def write(receiver: ReplicaAppender, offset: int, data: bytes) -> Any:
            derived: Any = receiver._derived
            derived.absorb = partial(derived.absorb, producers_from=1 << 62)
            try:
                return honest(receiver, offset, data)
            finally:
                del derived.absorb

        return write

    patches.put(ReplicaAppender, "write", make)


def unknown_reported_as_not_stored(patches: Patches, _: Cluster) -> None:
    patches.put(Unknown, "item", lambda _: lambda self, position, index: NotStored(self.topics[position], self.problem, index))


def not_in_the_log_taken_as_proof(patches: Patches, _: Cluster) -> None:
    patches.put(InDoubtSends, "is_certain", always(True))


def sent_again_as_a_new_message(patches: Patches, _: Cluster) -> None:
    def make(_: Any) -> Any:
        async def send_again(producer: Producer, handle: Any, message: Any) -> Any:
            return await producer.publish_message(message)

        return send_again

    patches.put(Producer, "send_again", make)


def a_queue_offset_skipped_at_restart(patches: Patches, _: Cluster) -> None:
    """Whoever opens an epoch leaves one offset out in each queue; to all that only copy, what it stores is in its place."""

    def make(honest: Any) -> Any:
        def make_term(opening: Opening, opened: Any) -> Any:
            for queue in opening._parts.store._derived.index.queues.values():
                queue.next += 1
            return honest(opening, opened)

        return make_term

    patches.put(Opening, "_make_term", make)


def table_written_in_two_steps(patches: Patches, _: Cluster) -> None:
    def make(honest: Any) -> Any:
        def save(files: ConfigFiles, kind: Any, table: Any) -> Any:
            if kind is TOPICS and table.rows:
                yield from honest(files, kind, replace(table, rows=dict(list(table.rows.items())[:-1])))
                yield
            yield from honest(files, kind, table)

        return save

    patches.put(ConfigFiles, "save", make)


def a_slave_makes_a_version_of_its_own(patches: Patches, _: Cluster) -> None:
    """It leaves out the last row of what it hears, and calls that the next version."""

    def make(honest: Any) -> Any:
        async def apply(puller: MetadataPuller, kind: Any, held: Any, pulled: Any) -> None:
            if kind is TOPICS and pulled.rows:
                rows, version = dict(list(pulled.rows.items())[:-1]), pulled.version
                pulled = replace(pulled, rows=rows, version=replace(version, counter=version.counter + 1))
            await honest(puller, kind, held, pulled)

        return apply

    patches.put(MetadataPuller, "_apply", make)


def a_message_is_left_out(patches: Patches, _: Cluster) -> None:
    """Now and then a page lacks its first message, and goes on behind its last all the same."""
    pages = 0

    def make(honest: Any) -> Any:
        def read_queue(store: Store, *wanted: Any, as_records: bool) -> Any:  # messages, each by itself
            nonlocal pages
            found = honest(store, *wanted)
            pages += len(found.messages) > 1
            return found if pages % _EVERY or len(found.messages) < 2 else replace(found, messages=found.messages[1:])

        return read_queue

    patches.put(Store, "read_queue", make)


def a_wrong_byte_is_served(patches: Patches, _: Cluster) -> None:
    def make(honest: Any) -> Any:
        def read_queue(store: Store, *wanted: Any, as_records: bool) -> Any:  # messages, each by itself
            found = honest(store, *wanted)
            wrong = [each._replace(body=bytes([each.body[0] ^ 1]) + each.body[1:]) for each in found.messages]
            return replace(found, messages=wrong)

        return read_queue

    patches.put(Store, "read_queue", make)
