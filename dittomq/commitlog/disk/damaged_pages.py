"""A file of a store read as far as its disk gives it."""

from dittomq.commitlog.disk.storage import PAGE_BYTES, File


class ReadableFile:
    """An open file; knows which pages the disk did not give, and asks for none of them again."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._reasons: dict[int, str] = {}

    def pread(self, length: int, offset: int) -> bytes:
        """As `File.pread` does; zeros stand for the pages that the disk does not give."""
        if not self.problem(offset, offset + length):
            try:
                return self._file.pread(length, offset)
            except OSError:
                pass  # by pages, to learn which
        at, stop, parts = offset, min(offset + length, self._file.size()), list[bytes]()
        while at < stop:
            size = min(PAGE_BYTES - at % PAGE_BYTES, stop - at)
            parts.append(self._page(size, at))
            at += size
        return b"".join(parts)

    def until_damage(self, length: int, offset: int) -> bytes:
        """The same up to the first page that the disk does not give."""
        data = self.pread(length, offset)
        bad = [page for page in self._reasons if offset < (page + 1) * PAGE_BYTES and page * PAGE_BYTES < offset + len(data)]
        return data[: max(0, min(bad) * PAGE_BYTES - offset)] if bad else data

    def problem(self, start: int, end: int) -> str:
        """Why the disk did not give all of these bytes when they were read; empty when it did."""
        pages, bad = range(start // PAGE_BYTES, -(-end // PAGE_BYTES)), self._reasons
        touched = filter(bad.__contains__, pages) if len(pages) < len(bad) else filter(pages.__contains__, bad)
        return next((bad[page] for page in touched), "")

    @property
    def end_of_damage(self) -> int:
        """One past the last page that the disk did not give when it was read; 0 when it gave all."""
        return (max(self._reasons, default=-1) + 1) * PAGE_BYTES

    def _page(self, size: int, at: int) -> bytes:
        page = at // PAGE_BYTES
        if page not in self._reasons:
            try:
                return self._file.pread(size, at)
            except OSError as error:
                self._reasons[page] = f"the disk does not give it: {error.strerror or error}"
        return bytes(size)
