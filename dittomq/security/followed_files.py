"""Files that may be exchanged while a process runs: read again every few seconds, in a thread of its own."""

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Final

from dittomq.errors import ConfigError

LOOK_EVERY_S: Final = 5.0
_LAST_LOOK_S: Final = 1.0


def ignore(*_: object) -> None:
    """What a library does with news of files: its user hears of unusable ones by the first call that fails."""
    return


class FollowedFiles(ABC):
    """What is made of some files, from `follow` to `close` of what they hold now. What is wrong with them changes nothing."""

    def __init__(self, thread: str, *, on_renewal: Callable[[], None], on_problem: Callable[[ConfigError], None]) -> None:
        """Both are called in the thread of that name: when files were taken over, and with why they are not, once for each reason."""
        self._on_renewal = on_renewal
        self._on_problem = on_problem
        self._problem = ""  # as it was told; empty while nothing is wrong
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    @abstractmethod
    def _read_again(self) -> bool:
        """Take over what the files hold now, if that is something else. Blocks. Raises ConfigError; any other failure counts as one."""

    def follow(self) -> None:
        """From now on read the files again every 5 s."""
        self._thread.start()

    def close(self) -> None:
        """Read them no more. A look that is under way has ended before this returns, unless a file system keeps it for more than 1 s."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_LOOK_S)

    def look(self) -> None:
        """Read the files now. Blocks."""
        try:
            is_new = self._read_again()
        except ConfigError as problem:
            self._refuse(problem)
            return
        except Exception as problem:  # noqa: BLE001  # of a parser: what it quotes may be secret, and the next look may find better
            self._refuse(ConfigError(self._thread.name, f"what the files hold cannot be read ({type(problem).__name__}); correct it"))
            return
        self._problem = ""
        if is_new and not self._ended.is_set():
            self._on_renewal()

    def _refuse(self, problem: ConfigError) -> None:
        if str(problem) != self._problem and not self._ended.is_set():
            self._problem = str(problem)
            self._on_problem(problem)

    def _run(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            self.look()


@contextlib.contextmanager
def following(*files: FollowedFiles | None) -> Iterator[None]:
    """In this block those that there are are followed."""
    with contextlib.ExitStack() as followed:
        for each in filter(None, files):
            each.follow()
            followed.callback(each.close)
        yield
