"""Slaves that lost their master dial again soon, and not all at once."""

import random
from collections import Counter
from itertools import pairwise

from dittomq.replication.backoff import AT_ONCE_S, FIRST_S, LONGEST_S, SHORT_ONES, Backoff

SEED = 7
SLAVES = 200
REFUSED_S = 0.001


def dials(seed: int, until_s: float) -> list[float]:
    """When a slave dials a master that refuses at once."""
    pauses, chance, now = Backoff(), random.Random(seed), 0.0
    times = []
    while now < until_s:
        times.append(now)
        now += REFUSED_S + pauses.after(REFUSED_S, chance.random())
    return times


def test_slaves_that_lost_their_master_at_the_same_moment_spread_out() -> None:
    chance = random.Random(SEED)
    late = Counter(int(at / 0.1) for _ in range(SLAVES) for at in dials(chance.getrandbits(64), 30.0) if at > 10.0)

    evenly = sum(late.values()) / 200
    assert max(late.values()) < 2 * evenly, f"seed {SEED}: {late.most_common(3)} where {evenly:.0f} would be even"


def test_pauses_are_short_at_first_and_then_grow_to_two_seconds_and_no_further() -> None:
    times = dials(SEED, 30.0)

    pauses = [late - early - REFUSED_S for early, late in pairwise(times)]
    assert all(FIRST_S / 2 <= pause <= FIRST_S for pause in pauses[:SHORT_ONES])
    assert all(LONGEST_S / 2 <= pause <= LONGEST_S for pause in pauses[SHORT_ONES + 5 :])


def test_first_dial_after_a_stream_that_held_comes_at_once() -> None:
    """The ones behind it come soon."""
    pauses = Backoff()
    for _ in range(10):
        pauses.after(REFUSED_S, 0.9)

    assert AT_ONCE_S / 2 <= pauses.after(LONGEST_S + 0.1, 0.9) <= AT_ONCE_S
    assert all(FIRST_S / 2 <= pauses.after(REFUSED_S, 0.9) <= FIRST_S for _ in range(SHORT_ONES))
