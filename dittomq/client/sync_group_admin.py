"""Managing consumer groups without await: the same names, for any number of threads."""

from collections.abc import Sequence

from dittomq.client.group_admin import CreatedGroup, GroupAdmin, UpdatedGroup
from dittomq.client.group_result import GroupResult
from dittomq.client.sync_bridge import SyncBridge
from dittomq.consumer.dead_letters import DeadLetterPage, DeadLetterQuery, ReplayOrder, ReplayResult
from dittomq.consumer_progress import CommittedOffset, GroupProgress, OffsetCommit, QueueReset, ResetOrder
from dittomq.metadata.groups import GroupUpdate
from dittomq.metadata.rows import GroupConfig


class SyncGroupAdmin:
    """The part of `SyncAdmin` that knows consumer groups; see GroupAdmin."""

    def __init__(self, thread: SyncBridge, admin: GroupAdmin) -> None:
        self._thread = thread
        self._admin = admin

    def create_group(self, group: str | GroupConfig, *, broker: str | None = None) -> list[GroupResult[CreatedGroup]]:
        """Create the consumer group in every broker group, or in one."""
        return self._thread.run(self._admin.create_group(group, broker=broker))

    def update_group(self, update: GroupUpdate, *, broker: str | None = None) -> list[GroupResult[UpdatedGroup]]:
        """Change what is named of the consumer group in every broker group, or in one."""
        return self._thread.run(self._admin.update_group(update, broker=broker))

    def delete_group(self, name: str, *, broker: str | None = None) -> list[GroupResult[None]]:
        """Delete the consumer group and its offsets in every broker group, or in one."""
        return self._thread.run(self._admin.delete_group(name, broker=broker))

    def list_groups(self, *, broker: str | None = None) -> list[GroupResult[tuple[GroupConfig, ...]]]:
        """Consumer groups of every broker group, by name."""
        return self._thread.run(self._admin.list_groups(broker=broker))

    def describe_group(self, name: str, *, broker: str | None = None) -> list[GroupResult[GroupConfig]]:
        """The consumer group in every broker group that has it; raises GroupNotFound when none has it."""
        return self._thread.run(self._admin.describe_group(name, broker=broker))

    def get_offsets(
        self, group: str, queues: Sequence[tuple[str, int]], *, broker: str | None = None
    ) -> list[GroupResult[list[CommittedOffset]]]:
        """What the consumer group has committed of each (topic, queue)."""
        return self._thread.run(self._admin.get_offsets(group, queues, broker=broker))

    def commit_offsets(self, group: str, commits: Sequence[OffsetCommit], *, broker: str) -> list[GroupResult[list[CommittedOffset]]]:
        """Record how far the consumer group has read queues of one broker group."""
        return self._thread.run(self._admin.commit_offsets(group, commits, broker=broker))

    def group_progress(self, group: str, topic: str = "", *, broker: str | None = None) -> list[GroupResult[GroupProgress]]:
        """How far the consumer group is behind, queue by queue."""
        return self._thread.run(self._admin.group_progress(group, topic, broker=broker))

    def reset_offsets(self, order: ResetOrder, *, broker: str | None = None) -> list[GroupResult[list[QueueReset]]]:
        """Move offsets of the consumer group in a topic, in every broker group, or in one."""
        return self._thread.run(self._admin.reset_offsets(order, broker=broker))

    def list_dead_letters(self, query: DeadLetterQuery, *, broker: str | None = None) -> list[GroupResult[DeadLetterPage]]:
        """A page of what the consumer group has given up, of each broker group that has the group, or of one."""
        return self._thread.run(self._admin.list_dead_letters(query, broker=broker))

    def replay_dead_letters(self, order: ReplayOrder, *, broker: str | None = None) -> list[GroupResult[ReplayResult]]:
        """Let the consumer group read dead letters once more: a page, or one, in each broker group that has the group, or in one."""
        return self._thread.run(self._admin.replay_dead_letters(order, broker=broker))
