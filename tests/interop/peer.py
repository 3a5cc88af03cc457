"""A RocketMQ broker with its Java client, as a process of its own that has one store open."""

import base64
import json
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.interop.release import Release

ANSWER_WITHIN_S = 90.0
# Nothing is preallocated by the gigabyte.
SMALL: Mapping[str, int | str] = {"mappedFileSizeTimerLog": 260_000}

RETRY = "%RETRY%interop-reader"

Line = dict[str, Any]
Settings = Mapping[str, int | str]


class Refused(Exception):
    """RocketMQ did not do what it was told; the text is its own."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message for RocketMQ's producer."""

    body: bytes
    tag: str = ""
    keys: str = ""
    flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: int = 0

    @property
    def line(self) -> Line:
        """As the peer reads it."""
        return {
            "body": base64.b64encode(self.body).decode(),
            "tag": self.tag,
            "keys": self.keys,
            "flag": self.flag,
            "properties": dict(self.properties),
            "delayLevel": self.delay_level,
        }


class Peer:
    """RocketMQ on a store. As a context manager it is killed at exit if it still runs."""

    def __init__(self, release: Release, store: Path, segment_bytes: int, **settings: int | str) -> None:
        """Start it, and wait until the store is open; raises Refused when RocketMQ does not take it."""
        chosen = {**SMALL, "mappedFileSizeCommitLog": segment_bytes, **settings}
        home = store.with_name(f"{store.name}-home")
        home.mkdir(exist_ok=True)
        self.store = store
        self.log_file = store.with_name(f"{store.name}-rocketmq.log")
        self._log = self.log_file.open("ab")
        self._process = subprocess.Popen(
            release.argv(home, str(store), *(f"{name}={value}" for name, value in chosen.items())),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, encoding="utf-8", start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._told: list[Line] = []
        threading.Thread(target=_pump, args=(self._process.stdout, self._lines), daemon=True).start()
        try:
            [opened] = self._answer()
        except BaseException:
            self.kill()
            raise
        self.start: int = opened["start"]
        self.end: int = opened["end"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def topics(self) -> dict[str, Line]:
        """The topics that the broker knows, its own ones included."""
        return {line["topic"]: line for line in self._ask({"do": "topics"})}

    def create(self, topic: str, queues: int) -> None:
        """Make a topic that messages can be sent to."""
        self._ask({"do": "create", "topic": topic, "queues": queues})

    def read(self, topic: str, start: int | None = None) -> list[Line]:
        """Every message of a topic that the Java client gets, queue by queue: from RocketMQ's minimum on, or from `start`."""
        return [_with_body(line) for line in self._ask({"do": "read", "topic": topic, "from": start})]

    def store_records(self, records: Sequence[Line]) -> list[Line]:
        """Records with any fields, written by the broker's store; what it then reads of each."""
        return [_with_body(line) for line in self._ask({"do": "store", "records": list(records)})]

    def consume(self, group: str, topic: str, count: int) -> list[Line]:
        """The next messages for a consumer group, from its offsets on; at most about `count`, fewer where no more come for ten seconds."""
        return [_with_body(line) for line in self._ask({"do": "consume", "group": group, "topic": topic, "count": count})]

    def find(self, topic: str, key: str) -> list[Line]:
        """The messages that RocketMQ's index names for a key."""
        return [_with_body(line) for line in self._ask({"do": "find", "topic": topic, "key": key})]

    def produce(self, topic: str, to_queue: int, messages: Sequence[Outgoing], *, batch: bool = False) -> list[Line]:
        """Send them one by one, or as one batch; what the producer was told of each request."""
        lines = [message.line for message in messages]
        return self._ask({"do": "produce", "topic": topic, "queue": to_queue, "batch": batch, "messages": lines})

    def begin_load(self, topic: str, body_bytes: int) -> None:
        """Let it send numbered messages to each queue of the topic, until it is killed: nothing else can be asked from now on."""
        self._told = self._ask({"do": "load", "topic": topic, "bytes": body_bytes})

    def wait_told(self, count: int) -> None:
        """Wait until the producer was told of so many messages of the load."""
        while len(self._told) < count:
            self._told.append(self._next_line())

    def kill_under_load(self) -> list[Line]:
        """SIGKILL; all that the producer was told of the load."""
        self.kill()
        while (text := self._lines.get(timeout=ANSWER_WITHIN_S)).endswith("\n"):  # one that the kill has cut off was told to nobody
            self._told.append(json.loads(text))
        return self._told

    def send_back(self, topic: str, from_queue: int, queue_offset: int) -> None:
        """Hand a message back as not consumed; the broker stores a copy under RETRY, a second later."""
        self._ask({"do": "sendBack", "topic": topic, "queue": from_queue, "queueOffset": queue_offset})

    def config(self) -> dict[str, str]:
        """The broker's tables, "topics", "groups" and "offsets", each as the text that it would write into its file."""
        [tables] = self._ask({"do": "config"})
        return tables

    def close(self) -> None:
        """Shut the broker down cleanly, and wait for its end."""
        self._ask({"do": "close"})
        self._process.wait(ANSWER_WITHIN_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL; the process is gone before this returns."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._stdin.close()
        self._log.close()

    def complaints(self) -> list[str]:
        """The lines of its log that warn of the store or report an error in it."""
        lines = self.log_file.read_text(errors="replace").splitlines()
        return [line for line in lines if (" WARN " in line or " ERROR " in line) and "Store" in line]

    def _ask(self, command: Line) -> list[Line]:
        self._stdin.write(json.dumps(command) + "\n")
        self._stdin.flush()
        *lines, last = self._answer()
        self.start, self.end = last["start"], last["end"]
        return lines

    def _answer(self) -> list[Line]:
        lines: list[Line] = []
        while not lines or "done" not in lines[-1]:
            lines.append(self._next_line())
        return lines

    def _next_line(self) -> Line:
        try:
            text = self._lines.get(timeout=ANSWER_WITHIN_S)
        except queue.Empty:
            raise Refused(f"RocketMQ did not answer within {ANSWER_WITHIN_S:g} s; see {self.log_file}") from None
        if not text:
            raise Refused(f"RocketMQ ended with {self._process.wait(ANSWER_WITHIN_S)}; see {self.log_file}")
        line: Line = json.loads(text)
        if "error" in line:
            raise Refused(line["error"])
        return line


def _with_body(line: Line) -> Line:
    return {**line, "body": base64.b64decode(line["body"])}


def _pump(stream: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put("")
