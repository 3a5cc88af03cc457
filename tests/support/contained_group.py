"""One broker group in containers, what its clients were told, and both checks of it: the checker of histories, and the audit's image."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dittomq.testing import Shape
from tests.support.container_cluster import ContainerCluster, MadeOf, TwoNetworks
from tests.support.containers import audit, images
from tests.support.history import History, Stream
from tests.support.real_group import RealGroup, group_of
from tests.support.waiting import PATIENCE_S

TAG: Final = "test"
SOME: Final = 100


@dataclass(frozen=True, slots=True)
class ContainedGroup:
    """`cluster` is that of `group`; `history` is of all that the tests do with it."""

    cluster: ContainerCluster
    networks: TwoNetworks
    group: RealGroup
    history: History

    @contextlib.contextmanager
    def under_load(self) -> Iterator[Stream]:
        """Publish during the block. Then the group becomes whole by itself, and all that was told holds on every copy; the audit passes."""
        with self.loaded() as stream:
            yield stream
        self.check_audit()

    @contextlib.contextmanager
    def loaded(self) -> Iterator[Stream]:
        """The same without the audit, which is of all groups of a cluster."""
        with self.group.mq.producer(retry_s=PATIENCE_S) as producer:
            with self.history.publishing(producer) as stream:
                self.history.wait_for_more(SOME)
                yield stream
                self.group.wait_led_by_all()
                self.history.wait_for_more(SOME)
            stream.settle()
        self.history.check()

    def check_audit(self) -> None:
        """The audit's image finds all copies equal and whole."""
        code, printed = audit(images(TAG)["audit"], self.cluster.nameserver, self.networks.talk.network.name)
        assert (code, printed.split(maxsplit=1)[0]) == (0, "PASS"), printed

    def others(self, name: str) -> list[str]:
        """All copies but that one."""
        return [each for each in self.group.copies if each != name]

    @contextlib.contextmanager
    def whole(self) -> Iterator["ContainedGroup"]:
        """It is whole when the block begins; what a failed test has left is put right when it ends."""
        self.group.wait_led_by_all()
        try:
            yield self
        finally:
            self.cluster.heal()
            self.cluster.start()


@contextlib.contextmanager
def contained_group(folder: Path, of: Shape, networks: TwoNetworks, made_of: MadeOf) -> Iterator[ContainedGroup]:
    """Started and in sync."""
    with contextlib.closing(ContainerCluster(folder / "cluster", of, networks, made_of)) as cluster, group_of(cluster) as group:
        yield ContainedGroup(cluster, networks, group, History(group))
