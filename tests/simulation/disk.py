"""A disk in memory, with what is written and what would survive.

Bytes: a file has its written pages; for each page that changed since the last sync it remembers what the disk holds.
A kill loses nothing. A power loss keeps, sector by sector, the old or the new bytes, as chance decides; the size of a
file is metadata, old or new. A failed sync marks the pages clean although the disk does not have them: a later sync
says nothing about them, and they may be lost by a power loss and even by a mere restart, when the cache is dropped.
A bad page is neither read nor written in parts; written as a whole it is good again.

Names: each make, rename and removal is an operation in a journal. A sync of a folder makes the operations of that
folder durable. A power loss keeps of the others a prefix, of the whole journal or folder by folder. A rename within one
folder is atomic; a file's between two folders is a new name in one and, behind that, the end of the old one in the other.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

SECTOR = 512
PAGE = 4_096
BOUNDLESS = 1 << 40
_ZEROS = bytes(PAGE)


class Inode:
    """A file's bytes: pages as written, and the disk's own version of pages that differ from it."""

    def __init__(self) -> None:
        self.size = 0
        self.disk_size = 0
        self.pages: dict[int, bytearray] = {}
        self.dirty: dict[int, bytes] = {}
        self.lost: dict[int, bytes] = {}
        self.bad: set[int] = set()

    def read(self, length: int, offset: int) -> bytes:
        """Bytes as written; zeros where nothing ever was."""
        end = min(offset + length, self.size)
        parts = []
        while offset < end:
            number, at = divmod(offset, PAGE)
            count = min(PAGE - at, end - offset)
            page = self.pages.get(number)
            parts.append(_ZEROS[:count] if page is None else bytes(page[at : at + count]))
            offset += count
        return b"".join(parts)

    def write(self, content: memoryview, offset: int, chance: random.Random) -> None:
        """Put bytes in place; what the disk holds of them is undecided until a sync."""
        done = 0
        while done < len(content):
            number, at = divmod(offset + done, PAGE)
            count = min(PAGE - at, len(content) - done)
            page = self._touch(number, chance)
            page[at : at + count] = content[done : done + count]
            done += count
        self.size = max(self.size, offset + len(content))

    def durable(self, length: int, offset: int) -> bytes:
        """Bytes as a power loss leaves them at the least: without anything that was not synced."""
        end = min(offset + length, self.disk_size)
        parts = []
        while offset < end:
            number, at = divmod(offset, PAGE)
            count = min(PAGE - at, end - offset)
            page = self.dirty.get(number) or self.lost.get(number) or self.pages.get(number)
            parts.append(_ZEROS[:count] if page is None else bytes(page[at : at + count]))
            offset += count
        return b"".join(parts)

    def flip(self, at: int, bits: int) -> bool:
        """Change bits of a byte that the disk holds as it was written; whether there is one."""
        number, offset = divmod(at, PAGE)
        page = self.pages.get(number)
        if page is None or at >= self.size or number in self.dirty or number in self.lost:
            return False
        page[offset] ^= bits
        return True

    def fail(self, at: int) -> bool:
        """Let the page of a byte that the disk holds as it was written be bad; whether there is one."""
        is_there = self.flip(at, 0)
        if is_there:
            self.bad.add(at // PAGE)
        return is_there

    def gives(self, length: int, offset: int) -> bool:
        """Whether these bytes can be read."""
        return not any(number * PAGE < offset + length and offset < (number + 1) * PAGE for number in self.bad)

    def takes(self, length: int, offset: int) -> bool:
        """Whether these bytes can be written: no part of a bad page can, and a bad page that is written as a whole is good again."""
        touched = {number for number in self.bad if number * PAGE < offset + length and offset < (number + 1) * PAGE}
        parts = any(number * PAGE < offset or offset + length < (number + 1) * PAGE for number in touched)
        self.bad -= set() if parts else touched
        return not parts

    def data_from(self, offset: int) -> int:
        """Where the first page at or behind `offset` lies that was ever written; the size when none was."""
        pages = [number * PAGE for number in self.pages if offset < (number + 1) * PAGE]
        return min(max(offset, min(pages, default=self.size)), self.size)

    def new_pages(self, length: int, offset: int) -> int:
        """How many pages a write would add."""
        return sum(1 for number in range(offset // PAGE, (offset + length - 1) // PAGE + 1) if number not in self.pages) if length else 0

    def truncate(self, size: int, chance: random.Random) -> None:
        """Set the size; bytes past it are zeros if the file grows again. Pages past it are given back to the disk."""
        self.bad = {number for number in self.bad if number * PAGE < size}
        if size < self.size:
            for number in [number for number in self.pages if number >= size // PAGE]:
                page = self._touch(number, chance)
                keep = max(0, size - number * PAGE)
                page[keep:] = bytes(PAGE - keep)
        self.size = size

    def begin_sync(self) -> Callable[[], None]:
        """A sync of what is written now; its effect is had by calling what this returns. What is written meanwhile has no part in it."""
        size, written = self.size, {number: bytes(self.pages[number]) for number in self.dirty}

        def end() -> None:
            for number, content in written.items():
                if number not in self.dirty or number * PAGE >= self.size:
                    continue
                if self.pages[number] == content:
                    del self.dirty[number]
                else:
                    self.dirty[number] = content
            self.disk_size = min(size, self.size)
            if not self.dirty:
                self._forget_pages_past_the_end()

        return end

    def sync(self) -> None:
        """Everything written is on the disk."""
        self.dirty.clear()
        self.disk_size = self.size
        self._forget_pages_past_the_end()

    def fail_sync(self) -> None:
        """Pages are marked clean although the disk does not have them."""
        self.lost.update(self.dirty)
        self.dirty.clear()

    def lose_power(self, chance: random.Random, fate: float | None = None) -> bool:
        """Keep of each unsynced sector the old or the new bytes, and of the size the old or the new one; 0.0: all old.

        Tells whether a hole arose: a sector that was kept behind one that was not.
        """
        if fate is None:
            fate = chance.choice((0.0, 0.5, 0.9, 1.0))
        kept: list[tuple[int, bool]] = []
        for number, old in [*self.lost.items(), *self.dirty.items()]:
            kept += self._mix(number, old, fate, chance)
        self.lost.clear()
        self.dirty.clear()
        size = self.size if chance.random() < fate else self.disk_size
        self.size = max(self.size, size)
        self.truncate(size, chance)
        self.sync()
        gone = [at for at, stayed in kept if not stayed]
        return bool(gone) and any(stayed and at > min(gone) for at, stayed in kept)

    def drop_cache(self, chance: random.Random, fate: float = 0.5) -> None:
        """Lose, of pages that a failed sync marked clean, what the disk never got."""
        for number, old in self.lost.items():
            self._mix(number, old, fate, chance)
        self.lost.clear()

    def _forget_pages_past_the_end(self) -> None:
        for number in [number for number in self.pages if number * PAGE >= self.size]:
            del self.pages[number]

    def _touch(self, number: int, chance: random.Random) -> bytearray:
        page = self.pages.get(number)
        if page is None:
            page = self.pages[number] = bytearray(PAGE)
        if number not in self.dirty:
            self.dirty[number] = self.lost.pop(number, b"") or bytes(page)
        elif chance.random() < 0.05:
            self.dirty[number] = bytes(page)  # the kernel wrote it back meanwhile
        return page

    def _mix(self, number: int, old: bytes, fate: float, chance: random.Random) -> list[tuple[int, bool]]:
        """Decide each sector that changed; where it lies in the file, and whether its new bytes stay."""
        page = self.pages.get(number)
        if page is None:
            page = self.pages[number] = bytearray(PAGE)
        decided = []
        for at in range(0, PAGE, SECTOR):
            if page[at : at + SECTOR] != old[at : at + SECTOR]:
                stays = chance.random() < fate
                decided.append((number * PAGE + at, stays))
                if not stays:
                    page[at : at + SECTOR] = old[at : at + SECTOR]
        return decided


class Deed(Enum):
    """What was done to a name."""

    MADE = "made"
    REMOVED = "removed"
    RENAMED = "renamed"


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of names. `inode` None: the name is a folder's. `target` only for a rename."""

    deed: Deed
    path: str
    inode: Inode | None
    target: str = ""

    @property
    def new_name(self) -> str:
        """The name that is there from now on, "" after a removal."""
        return "" if self.deed is Deed.REMOVED else self.target or self.path

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders whose names it changes."""
        return (parent(self.path), parent(self.target)) if self.target else (parent(self.path),)


class Names:
    """A tree of names: folders, and files with their inodes. The root is ""."""

    def __init__(self) -> None:
        self.files: dict[str, Inode] = {}
        self.folders: dict[str, None] = {"": None}

    def apply(self, operation: Operation) -> None:
        """Change the tree. A name may be here before its folder is: durable in a folder that is not."""
        inode = operation.inode
        match operation.deed:
            case Deed.MADE:
                self._put(operation.path, inode)
            case Deed.REMOVED if inode is None:
                self.folders.pop(operation.path, None)
            case Deed.REMOVED:
                if self.files.get(operation.path) is inode:
                    del self.files[operation.path]
            case Deed.RENAMED if inode is None:
                self._move_folder(operation.path, operation.target)
            case Deed.RENAMED:
                if self.files.get(operation.path) is inode:
                    del self.files[operation.path]
                self._put(operation.target, inode)

    def whole(self) -> "Names":
        """Only what the root leads to."""
        found = Names()
        for path in sorted(self.folders):
            if path and parent(path) in found.folders:
                found.folders[path] = None
        found.files.update((path, inode) for path, inode in self.files.items() if parent(path) in found.folders)
        return found

    def _put(self, path: str, inode: Inode | None) -> None:
        if inode is None:
            self.folders[path] = None
        else:
            self.files[path] = inode

    def _move_folder(self, old: str, new: str) -> None:
        if old not in self.folders:
            return
        for path in [path for path in self.folders if path == old or path.startswith(f"{old}/")]:
            del self.folders[path]
            self.folders[new + path[len(old) :]] = None
        for path in [path for path in self.files if path.startswith(f"{old}/")]:
            self.files[new + path[len(old) :]] = self.files.pop(path)


class Disk:
    """The names and files of one machine, as seen now and as they would survive. Outlives processes."""

    def __init__(self, chance: random.Random, capacity_bytes: int = BOUNDLESS) -> None:
        self.chance = chance
        self.capacity_bytes = capacity_bytes
        self.boot = 1
        self.names = Names()
        self._durable = Names()
        self._journal: list[Operation] = []
        self.watch: Callable[[Operation], None] = _nobody

    def do(self, operation: Operation) -> None:
        """Change a name; it survives once its folders are synced. `watch` is told."""
        self.watch(operation)
        self.names.apply(operation)
        inode = operation.inode
        if operation.deed is Deed.RENAMED and inode is not None and parent(operation.path) != parent(operation.target):
            self._journal.append(Operation(Deed.MADE, operation.target, inode))
            self._journal.append(Operation(Deed.REMOVED, operation.path, inode))
        else:
            self._journal.append(operation)

    def take_away(self, path: str) -> None:
        """Somebody else removes a file, durably; whoever has it open goes on with it."""
        self.names.apply(removal := Operation(Deed.REMOVED, path, self.names.files[path]))
        self._journal.append(removal)
        self.sync_folder(parent(path))

    def sync_folder(self, path: str) -> None:
        """Make the changes of one folder's names durable."""
        rest = []
        for operation in self._journal:
            if path in operation.folders:
                self._durable.apply(operation)
            else:
                rest.append(operation)
        self._journal = rest

    def sync_below(self, path: str) -> None:
        """Make the changes of the names of a folder, and of all folders below it, durable."""
        for folder in [folder for folder in self.names.folders if f"{folder}/".startswith(f"{path}/")]:
            self.sync_folder(folder)

    def inodes_below(self, path: str) -> list[Inode]:
        """The files that have a name below a folder."""
        return [inode for name, inode in self.names.files.items() if name.startswith(f"{path}/")]

    def has_unsynced(self, path: str) -> bool:
        """Whether a power loss could take bytes of a file below a folder."""
        return any(inode.pages[number] != old for inode in self.inodes_below(path) for number, old in inode.dirty.items())

    def inodes(self) -> list[Inode]:
        """Every file that has a name or may get its name back, once."""
        found: dict[int, Inode] = {}
        for inode in [*self.names.files.values(), *self._durable.files.values()]:
            found.setdefault(id(inode), inode)
        return list(found.values())

    def durable(self, path: str, length: int, offset: int) -> bytes:
        """Bytes of a file as a power loss leaves them at the least; none when the file's name would be gone."""
        inode = self._durable.files.get(path)
        folder = parent(path)
        while folder and folder in self._durable.folders:
            folder = parent(folder)
        return b"" if inode is None or folder else inode.durable(length, offset)

    def free_bytes(self) -> int:
        """Space that is left. A disk without a bound has all of it: counting costs more than it tells."""
        return self.capacity_bytes if self.capacity_bytes >= BOUNDLESS else max(0, self.capacity_bytes - self.used_bytes())

    def used_bytes(self) -> int:
        """Space taken by what has a name."""
        return sum(len(inode.pages) for inode in {id(each): each for each in self.names.files.values()}.values()) * PAGE

    def drop_cache(self, *, all_unsynced: bool = False) -> None:
        """A process was killed; some of the page cache goes before the next one looks, or all of it."""
        for inode in self.inodes():
            if all_unsynced:
                inode.drop_cache(self.chance, 0.0)
            elif inode.lost and self.chance.random() < 0.5:
                inode.drop_cache(self.chance)

    def lose_power(self, *, all_unsynced: bool = False) -> list[str]:
        """Keep what was synced and, of the rest, what chance leaves; nothing when `all_unsynced` is lost. Boot anew.

        Tells in which of the files that are there a hole arose.
        """
        for operation in [] if all_unsynced else self._survivors():
            self._durable.apply(operation)
        self._journal.clear()
        holes = [inode for inode in self.inodes() if inode.lose_power(self.chance, 0.0 if all_unsynced else None)]
        self.names = self._durable.whole()
        self._durable = self.names.whole()
        self.boot += 1
        return [path for path, inode in self.names.files.items() if any(inode is hole for hole in holes)]

    def _survivors(self) -> list[Operation]:
        kept: list[Operation] = []
        if self.chance.random() < 0.5:
            return self._journal[: self.chance.randint(0, len(self._journal))]
        stopped: dict[str, None] = {}
        for operation in self._journal:
            if any(folder in stopped for folder in operation.folders) or self.chance.random() < 0.2:
                stopped.update(dict.fromkeys(operation.folders))
            else:
                kept.append(operation)
        return kept


def parent(path: str) -> str:
    """The folder that holds a name."""
    return path.rpartition("/")[0]


def _nobody(_: Operation) -> None:
    return
