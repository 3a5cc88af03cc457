"""A look at files every few seconds, in a thread of its own: they may be exchanged while a process runs."""

import threading
from collections.abc import Callable
from typing import Final

LOOK_EVERY_S: Final = 5.0


class RegularLook:
    """Calls `look` every 5 s from `begin` to `end`; `thread` is the name of the thread."""

    def __init__(self, thread: str, look: Callable[[], None]) -> None:
        self._look = look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    def begin(self) -> None:
        """From now on look."""
        self._thread.start()

    def end(self) -> None:
        """Look no more; a look that is under way has ended before this returns."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            self._look()
