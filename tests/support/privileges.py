"""Processes that the modes of files bind, also where the tests run as root."""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

_PR_CAPBSET_DROP = 24
_IGNORES_MODES = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def bound_by_modes(start: Callable[[], object]) -> None:
    """Call `start`; the processes that it starts may open what the modes of files allow and nothing else.

    What a thread gives up no program gets that is started from it, even by root; other threads keep it.
    """

    def give_up_and_start() -> None:
        for capability in _IGNORES_MODES if os.geteuid() == 0 else ():
            if ctypes.CDLL(None, use_errno=True).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
                pytest.skip(f"root cannot be bound by modes here: {os.strerror(ctypes.get_errno())}")
        start()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(give_up_and_start).result()
