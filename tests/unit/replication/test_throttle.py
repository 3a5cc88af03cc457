"""How fast the log leaves for slaves: the clock is moved, and every byte is counted."""

import heapq
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.replication.throttle import LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES, Throttle, ThrottleTurns, TokenBucket, chunk_bytes

Sent = tuple[float, int, int]  # when, by which stream, how many bytes


def send_all(paces: list[ThrottleTurns], chance: random.Random, most_bytes: int, until: float) -> list[Sent]:
    """Streams that always have a next chunk, each asking again when it was told to."""
    asks = [(0.0, number, chance.randint(1, most_bytes)) for number in range(len(paces))]
    sent: list[Sent] = []
    while asks and asks[0][0] < until:
        now, number, size = heapq.heappop(asks)
        due = paces[number].due(size, now)
        if due <= now:
            sent.append((now, number, size))
            size = chance.randint(1, most_bytes)
        heapq.heappush(asks, (due, number, size))
    return sent


def most_in_a_second(sent: list[Sent]) -> int:
    return max(sum(size for at, _, size in sent[first:] if at < sent[first][0] + 1) for first in range(len(sent)))


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_no_second_carries_more_than_the_limit_and_one_chunk(seed: int, streams: int) -> None:
    """Over time the limit is used."""
    limit, chunk = 1_000_000, 300_000
    shared = TokenBucket(limit)
    sent = send_all([ThrottleTurns(TokenBucket(0), shared) for _ in range(streams)], random.Random(seed), chunk, 20.0)

    assert most_in_a_second(sent) <= limit + chunk
    assert 19 * limit <= sum(size for _, _, size in sent) <= 20 * limit + chunk


@given(st.integers(0, 2**32))
def test_each_slave_keeps_its_own_limit_and_all_keep_the_shared_one(seed: int) -> None:
    own, all_of_them, chunk = 400_000, 1_000_000, 100_000
    shared = TokenBucket(all_of_them)
    sent = send_all([ThrottleTurns(TokenBucket(own), shared) for _ in range(4)], random.Random(seed), chunk, 10.0)

    assert most_in_a_second(sent) <= all_of_them + chunk
    for slave in range(4):
        assert most_in_a_second([each for each in sent if each[1] == slave]) <= own + chunk


@given(st.integers(0, 2**32))
def test_slaves_that_share_a_limit_take_turns(seed: int) -> None:
    shared = TokenBucket(1_000_000)
    sent = send_all([ThrottleTurns(TokenBucket(0), shared) for _ in range(3)], random.Random(seed), 100_000, 20.0)

    for slave in range(3):
        times = [at for at, number, _ in sent if number == slave]
        assert max(later - earlier for earlier, later in pairwise(times)) <= 3 * 0.1 + 1e-9


def test_a_slave_with_a_small_limit_of_its_own_holds_nobody_else_back() -> None:
    shared = TokenBucket(1_000_000)
    sent = send_all([ThrottleTurns(TokenBucket(1_000), shared), ThrottleTurns(TokenBucket(0), shared)], random.Random(1), 100_000, 20.0)

    assert sum(size for _, number, size in sent if number == 1) >= 19_000_000


def test_after_a_rest_there_is_no_burst() -> None:
    turns = TokenBucket(1_000_000)
    turns.book(100_000, 0.0)

    assert [turns.book(500_000, 60.0), turns.book(500_000, 60.0), turns.book(500_000, 60.0)] == [60.0, 60.5, 61.0]


def test_all_that_goes_to_one_node_shares_its_limit_also_when_it_comes_back() -> None:
    paces = Throttle(shared_bytes_per_s=0, own_bytes_per_s=1_000_000)
    sent = send_all([paces.of("a/1"), paces.of("a/1"), paces.of("a/1")], random.Random(1), 100_000, 10.0)

    assert most_in_a_second(sent) <= 1_000_000 + 100_000
    assert paces.of("a/1").due(1, 9.99) > 9.99
    assert paces.of("a/2").due(1, 9.99) == 9.99


@given(st.integers(0, 2**32))
def test_streams_and_ranges_of_a_node_share_its_limit_in_turns(seed: int) -> None:
    """Whichever limit holds them back."""
    own, all_of_them, chunk = 400_000, random.Random(seed).choice((300_000, 600_000, 2_000_000)), 100_000
    paces = Throttle(shared_bytes_per_s=all_of_them, own_bytes_per_s=own)
    sent = send_all([paces.of(node) for node in ("a/1", "a/1", "a/2", "a/2", "a/2")], random.Random(seed), chunk, 20.0)

    assert most_in_a_second(sent) <= all_of_them + chunk
    for numbers in ((0, 1), (2, 3, 4)):
        assert most_in_a_second([each for each in sent if each[1] in numbers]) <= own + chunk
    assert sum(size for _, _, size in sent) >= 19 * min(all_of_them, 2 * own)
    for number in range(5):
        times = [at for at, which, _ in sent if which == number]
        assert max(later - earlier for earlier, later in pairwise(times)) <= 7 * chunk / min(all_of_them, own)


def test_of_very_many_names_those_that_were_heard_first_are_forgotten() -> None:
    paces = Throttle(shared_bytes_per_s=0, own_bytes_per_s=1)
    for number in range(1_000):
        assert paces.of(f"a/{number}").due(1, 0.0) == 0.0

    assert paces.of("a/0").due(1, 0.0) == 0.0
    assert paces.of("a/999").due(1, 0.0) > 0.0


def test_without_a_limit_nothing_waits() -> None:
    turns = ThrottleTurns(TokenBucket(0), TokenBucket(0))

    assert [turns.due(MOST_CHUNK_BYTES, now) for now in (0.0, 0.0, 0.0, 1.5)] == [0.0, 0.0, 0.0, 1.5]


@pytest.mark.parametrize(
    ("bytes_per_s", "size"),
    [(0, LEAST_CHUNK_BYTES), (4_000_000, LEAST_CHUNK_BYTES), (8 * 1024 * 1024, 512 * 1024), (10**9, MOST_CHUNK_BYTES)],
)
def test_a_chunk_is_what_the_line_carries_in_a_sixteenth_of_a_second_within_bounds(bytes_per_s: int, size: int) -> None:
    assert chunk_bytes(bytes_per_s) == size
