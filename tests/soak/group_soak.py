"""A consumer group of real processes whose members and masters are killed by chance, and a checker of what the members handled.

Each message that was acknowledged to its producer is handled. One that is handled twice, or a queue that goes back, needs a reason: a
member or a master was killed shortly before.
"""

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dittomq.client import Message
from dittomq.testing.processes import checkout_root
from tests.support.handled_messages import GroupTally, Handled, judge
from tests.support.linked_group import QUICK
from tests.support.real_group import RealGroup, real_group, shape
from tests.support.traffic import Publishing
from tests.support.waiting import eventually

GROUP, TOPIC = "billing", "paid"
MEMBERS, QUEUES = 4, 64
_STRICT = {**QUICK, "replication.min_in_sync_replicas": 2}
_BURST, _PAUSE_S = 32, 0.1
_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Members:
    """The processes of the group; each life writes a file of its own."""

    folder: Path
    nameserver: str
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    lives: int = 0

    def start(self, number: int) -> None:
        """Start that member."""
        self.lives += 1
        command = [
            sys.executable,
            "-m",
            "tests.soak.member",
            self.nameserver,
            GROUP,
            TOPIC,
            str(self.folder / f"{self.lives:04}-{number}.jsonl"),
        ]
        with (self.folder / f"member-{number}.log").open("ab") as log:
            self.running[number] = subprocess.Popen(command, cwd=checkout_root(), stdout=log, stderr=log)

    def kill(self, number: int) -> None:
        """SIGKILL that one."""
        self.running[number].kill()
        self.running[number].wait()

    def end(self) -> None:
        """SIGTERM to all; those that do not leave in time are killed."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(20.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def dead(self) -> list[int]:
        """Members whose process has ended by itself."""
        return [number for number, process in self.running.items() if process.poll() is not None]

    def handled(self) -> list[Handled]:
        """All that was handled, by time. A line that a kill has cut off was not."""
        found = []
        for path in self.folder.glob("*.jsonl"):
            for text in path.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    line = json.loads(text)
                    found.append(Handled(line["at"], path.stem, line["queue"], line["offset"], line["body"]))
        return sorted(found, key=lambda each: each.at)


def soak_group(folder: Path, seed: int, seconds: float, say: Callable[[str], object]) -> GroupTally:
    """Run for so long; AssertionError for a broken promise."""
    folder.joinpath("members").mkdir()
    with real_group(folder, shape(2, master=_STRICT, slave=_STRICT, automatic=True)) as group:
        group.mq.admin.create_topic(TOPIC, QUEUES)
        group.mq.admin.create_group(GROUP)
        run = _GroupSoak(group, Members(folder / "members", group.cluster.nameserver), random.Random(seed), say)
        try:
            return run.run(seconds)
        finally:
            run.members.end()


@dataclass(slots=True)
class _GroupSoak:
    group: RealGroup
    members: Members
    chance: random.Random
    say: Callable[[str], object]
    kills: list[float] = field(default_factory=list)

    def run(self, seconds: float) -> GroupTally:
        for number in range(MEMBERS):
            self.members.start(number)
        with _publishing(self.group) as stream:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                self._one_fault()
        acknowledged = {body.decode() for body in stream.receipts}
        eventually(lambda: acknowledged <= {each.body for each in self.members.handled()}, "all is handled", within_s=_TIMEOUT_S)
        self.members.end()
        return judge(acknowledged, self.members.handled(), self.kills)

    def _one_fault(self) -> None:
        """Kill a member or the master, after a while; a supervisor starts it again soon."""
        group, members = self.group, self.members
        time.sleep(self.chance.uniform(2.0, 8.0))
        ended = members.dead()
        assert not ended, f"members {ended} have ended by themselves; see their logs in {members.folder}"
        if self.chance.random() < 0.6:
            number = self.chance.randrange(MEMBERS)
            self._note_kill(f"member {number}")
            members.kill(number)
            time.sleep(self.chance.uniform(0.0, 4.0))
            members.start(number)
            return
        master = group.master()
        self._note_kill(f"the master {master}")
        group.cluster.kill(master)
        time.sleep(self.chance.uniform(0.0, 4.0))
        group.cluster.start_node(master)
        group.wait_led_by_all(_TIMEOUT_S)

    def _note_kill(self, whom: str) -> None:
        self.kills.append(time.time())  # compared with what members wrote
        self.say(f"kills {whom}, {len(self.members.handled()):,} messages handled")


@contextlib.contextmanager
def _publishing(group: RealGroup) -> Iterator[Publishing]:
    """Numbered messages to all queues during the block, some hundred a second."""
    over = threading.Event()
    with group.mq.producer(timeout_s=2.0, retry_s=30.0) as producer:
        stream = Publishing(producer)

        def publish() -> None:
            number = 0
            while not over.wait(_PAUSE_S):
                stream.publish([Message(TOPIC, b"%d" % each, queue=each % QUEUES) for each in range(number, number + _BURST)])
                number += _BURST

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield stream
        finally:
            over.set()
            thread.join()
            stream.settle()
