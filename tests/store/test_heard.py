"""What a node notes of epochs (`dittomq/heard`): what its openers told it binds until a master is obeyed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dittomq.broker.heard import Heard, Note, load_heard
from dittomq.commitlog.disk.side_file import DamagedSideFile, save
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.doors.workers import ThreadWorkers
from dittomq.errors import NotReady
from dittomq.offsets import Epoch
from dittomq.replication.events import MAX_PROMISES
from dittomq.routes import NO_OPENING, Opening


def opened(epoch: int, opener: int | None) -> Opening:
    return Opening(Epoch(epoch), opener)


def on_disk(folder: Path, story: Callable[[Heard], Awaitable[None]]) -> Note:
    """What is written down when the story has ended; what the node itself says is the same."""
    storage = OsStorage(folder)

    async def whole() -> None:
        workers = ThreadWorkers()
        try:
            heard = Heard("a/1", storage, workers.lane("files"))
            await heard.load()
            await story(heard)
            assert Note(heard.newest, heard.promises) == load_heard(storage)
        finally:
            workers.close()

    asyncio.run(whole())
    return load_heard(storage)


def test_what_openers_tell_is_kept_one_for_each_until_a_master_is_obeyed(tmp_path: Path) -> None:
    async def promises(heard: Heard) -> None:
        assert await heard.promise(opened(2, 1)) == NO_OPENING
        assert await heard.promise(opened(3, 2)) == opened(2, 1)
        await heard.note(opened(4, 3))  # hearsay: it is newer, and no promise
        assert await heard.promise(opened(5, 1)) == opened(4, 3)

    assert on_disk(tmp_path, promises) == Note(opened(5, 1), (opened(3, 2), opened(5, 1)))

    async def obeys(heard: Heard) -> None:
        await heard.obey(opened(5, 1), heard.promises)

    assert on_disk(tmp_path, obeys) == Note(opened(5, 1), (opened(5, 1),))

    async def obeys_what_rocketmq_wrote(heard: Heard) -> None:
        await heard.obey(opened(6, None), heard.promises)

    assert on_disk(tmp_path, obeys_what_rocketmq_wrote) == Note(opened(6, None), ())


@pytest.mark.parametrize("epoch", [4, 5, 6])
def test_a_master_is_not_obeyed_that_was_not_told_of_all_that_is_noted_when_its_answer_comes(tmp_path: Path, epoch: int) -> None:
    noted = Note(opened(5, 2), (opened(3, 3), opened(5, 2)))

    async def story(heard: Heard) -> None:
        await heard.promise(opened(3, 3))
        said = heard.promises
        await heard.promise(opened(5, 2))
        with pytest.raises(NotReady, match="it has noted epoch 5 of a/2 since it said hello"):
            await heard.obey(opened(epoch, 1), said)
        assert Note(heard.newest, heard.promises) == noted

    assert on_disk(tmp_path, story) == noted


def test_the_master_whose_own_epoch_was_noted_since_the_hello_is_obeyed(tmp_path: Path) -> None:
    async def story(heard: Heard) -> None:
        await heard.promise(opened(5, 2))
        await heard.obey(opened(5, 2), ())

    assert on_disk(tmp_path, story) == Note(opened(5, 2), (opened(5, 2),))


def test_an_epoch_as_new_as_the_newest_of_another_node_is_no_promise_and_the_same_one_told_again_is(tmp_path: Path) -> None:
    async def story(heard: Heard) -> None:
        await heard.note(opened(2, 1))
        assert await heard.promise(opened(2, 2)) == opened(2, 1)
        assert heard.promises == ()
        assert await heard.promise(opened(2, 1)) == opened(2, 1)
        await heard.note(opened(3, None))
        assert await heard.promise(opened(3, 1)) == opened(3, None)

    assert on_disk(tmp_path, story) == Note(opened(3, 1), (opened(3, 1),))


def test_of_more_openers_than_any_group_has_the_oldest_are_forgotten(tmp_path: Path) -> None:
    async def story(heard: Heard) -> None:
        for number in range(MAX_PROMISES + 2):
            await heard.promise(opened(number + 1, number))

    note = on_disk(tmp_path, story)

    assert note.promises == tuple(opened(number + 1, number) for number in range(2, MAX_PROMISES + 2))


@pytest.mark.parametrize(("written", "found"), [(b"7", opened(7, None)), (b"7 2", opened(7, 2)), (b"0", NO_OPENING)])
def test_what_earlier_versions_wrote_is_read(tmp_path: Path, written: bytes, found: Opening) -> None:
    (tmp_path / "dittomq").mkdir()
    save(OsStorage(tmp_path), "heard", b"HEAR", written)

    assert load_heard(OsStorage(tmp_path)) == Note(found, ())


def test_a_damaged_note_is_never_believed(tmp_path: Path) -> None:
    async def story(heard: Heard) -> None:
        await heard.promise(opened(2, 1))

    on_disk(tmp_path, story)
    path = tmp_path / "dittomq" / "heard"
    path.write_bytes(path.read_bytes()[:-1] + b"9")

    with pytest.raises(DamagedSideFile):
        load_heard(OsStorage(tmp_path))
