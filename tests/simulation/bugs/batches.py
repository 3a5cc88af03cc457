"""Bugs where many messages are encoded or taken in at once, and where a frame is stored in parts."""

from dataclasses import replace
from typing import Any

import numpy as np

from dittomq.commitlog.append import AppendBatch, Appender
from dittomq.commitlog.records import batch_index
from dittomq.commitlog.records.bulk import BulkMessages
from tests.simulation.bugs.patches import Patches
from tests.simulation.cluster import Cluster


def bulk_gives_an_offset_twice(patches: Patches, _: Cluster) -> None:
    """The last offset of a frame that is encoded at once is given again."""

    def make(honest: Any) -> Any:
        def assign(appender: Appender, bulk: BulkMessages) -> Any:
            found = honest(appender, bulk)
            for queue, _ in found[1]:
                queue.next -= 1
            return found

        return assign

    patches.put(Appender, "_assign", make)


def bulk_forgets_tags(patches: Patches, _: Cluster) -> None:
    """The consume queue does not know the tags of what is encoded at once."""

    def make(honest: Any) -> Any:
        def encode(bulk: BulkMessages, *where: Any) -> Any:
            found = honest(bulk, *where)
            found.units["code"] = 0
            return found

        return encode

    patches.put(BulkMessages, "encode", make)


def bulk_repeats_a_body(patches: Patches, _: Cluster) -> None:
    """Bodies of one frame that have the same length get the first one's bytes."""

    def make(honest: Any) -> Any:
        def of(cls: Any, /, drafts: Any, names: Any, *, identified: bool) -> Any:
            bulk = honest.__func__(cls, drafts, names, identified=identified)
            if bulk is None:
                return None
            bodies, first = bulk._columns.bodies, bulk._columns.bodies[0]
            mixed = [first if len(body) == len(first) else body for body in bodies]
            return replace(bulk, _columns=bulk._columns._replace(bodies=mixed))

        return classmethod(of)

    patches.put(BulkMessages, "of", make)


def columns_forget_tags(patches: Patches, _: Cluster) -> None:
    """The consume queue of a copy does not know the tags of records that it takes in at once."""
    patches.put(batch_index, "_search", lambda honest: lambda columns, heads: (np.zeros(len(columns), np.int64), honest(columns, heads)[1]))


def columns_mix_up_queues(patches: Patches, _: Cluster) -> None:
    """Of records that are taken in at once the second queue gets the offsets of the first."""

    def make(honest: Any) -> Any:
        def runs(*columns: Any) -> Any:
            found = list(honest(*columns))
            return [run._replace(first=found[0].first) for run in found] if len(found) == 2 else found

        return runs

    patches.put(batch_index, "_runs", make)


def a_frame_stored_in_part_is_stored_again(patches: Patches, _: Cluster) -> None:
    """A frame of which not all is in the log is taken for a new one."""

    def make(honest: Any) -> Any:
        def known(appender: Appender, frame: AppendBatch, *where: Any) -> Any:
            found = honest(appender, frame, *where)
            return found if sum(len(run.sizes) for run in found) == len(frame.drafts) else []

        return known

    patches.put(Appender, "_known", make)
