"""Sources read once, to their end; standard input is `-`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from backend.cache.configs import cache_folder
from backend.disk.safe import open_regular
from backend.model.session import Fault
from rocm_tui.harmless import clean
from rocm_tui.ingest.follow.decoding import decoder_of
from rocm_tui.ingest.follow.kernel_files import FollowedFiles
from rocm_tui.ingest.follow.sources import follower, members_of, unlistable, unsearched
from rocm_tui.ingest.follow.tailer import CHUNK, MAX_WHOLE, Tailer
from rocm_tui.ingest.follow.tree import Walker
from rocm_tui.ingest.formats import profiler_trace
from rocm_tui.ingest.formats.reader import NotReadable, StreamReader
from rocm_tui.ingest.formats.registry import (
    ANY_TEXT,
    EMPTY,
    HEAD,
    format_named,
    known_format,
    sniff,
)
from rocm_tui.ingest.records import STDIN, Record, SourceStatus, Unread


def with_tunings(paths: Sequence[str], cache_dir: Path) -> list[str]:
    """Add the cache dir to `paths` where none of them can contain a tuning, as profiler traces.

    Triton's own cache is added where nothing else is read.
    """
    if list(paths) == [str(cache_dir)]:
        return [*paths, *_own_triton_cache(cache_dir)]
    if all(_format_of(path) == profiler_trace.FORMAT.name for path in paths):
        return [*paths, str(cache_dir), *_own_triton_cache(cache_dir)]
    return list(paths)


def _own_triton_cache(cache_dir: Path) -> list[str]:
    """Triton's cache of this environment, if there is one outside of the cache dir."""
    folder = cache_folder()
    return [str(folder)] if folder.is_dir() and not folder.is_relative_to(cache_dir) else []


def _format_of(path: str) -> str:
    """The name of a file's format; empty for what is no file that can be read."""
    try:
        with open_regular(Path(path), follow=True) as stream:
            head = stream.read(HEAD)
        decoder = decoder_of(head)
        return sniff(head if decoder is None else next(decoder.feed(head), b""))
    except (OSError, NotReadable):
        return ""


def read_sources(paths: Sequence[str]) -> list[Record]:
    """Return everything that files, folders, cache dirs and `-` (standard input) hold now.

    Never raises: what cannot be read, or does not exist, is Unread.
    """
    records: list[Record] = []
    for path in dict.fromkeys(paths):
        if path == STDIN:
            records += Stdin().read_all()
        elif os.path.isdir(path):  # noqa: PTH112
            records += _read_folder(path)
        elif os.path.exists(path):  # noqa: PTH110
            records += read_each([Tailer(path, known_format(path))])
        else:
            records.append(Unread(path, "no such file or folder"))
    return records


def _read_folder(path: str) -> list[Record]:
    try:
        tree = Walker().walk(path)
    except OSError as error:
        return [unlistable(path, error)]
    records = read_each(map(follower, members_of(tree)))
    problem = unsearched(path, tree)
    return [*records, problem] if problem else records


def read_each(followers: Iterable[Tailer | FollowedFiles]) -> list[Record]:
    """Return what sources hold up to their ends, in their order."""
    return [record for each in followers for record in (*each.poll(), *each.close())]


class Stdin:
    """Reads a descriptor to its end. Never raises."""

    def __init__(self, descriptor: int = 0) -> None:
        self.descriptor = descriptor
        self.open = True
        self._format = ""
        self._stream: StreamReader | None = None
        self._held = bytearray()
        self._read = 0
        self._problems = 0

    def read(self) -> list[Record]:
        """Take what is there; blocks if nothing is."""
        try:
            data = os.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return []
        except OSError as error:
            self.open = False
            records: list[Record] = [Unread(STDIN, f"cannot read it: {clean(str(error.strerror))}")]
        else:
            self._read += len(data)
            records = self._take(data) if data else self._end()
        self._problems += sum(isinstance(record, Fault) for record in records)
        return records

    def read_all(self) -> list[Record]:
        """Take everything up to the end."""
        records: list[Record] = []
        while self.open:
            records += self.read()
        return records

    def status(self) -> SourceStatus:
        read, problems = self._read, self._problems
        return SourceStatus(STDIN, self._format, read, read, problems, "polling", "following")

    def _take(self, data: bytes) -> list[Record]:
        if self._stream is not None:
            return self._stream.feed(data)
        self._held += data
        if self._format in ("", EMPTY):
            self._format = sniff(bytes(self._held[:HEAD]))
        if self._started():
            held, self._held = bytes(self._held), bytearray()
            return self._take(held)
        if len(self._held) > MAX_WHOLE:
            self.open = False
            return [Unread(STDIN, f"more than {MAX_WHOLE >> 20} MiB of {self._format}")]
        return []

    def _started(self) -> bool:
        """Whether there is a reader that takes what comes."""
        format = format_named(self._format)
        if format is not None and format.stream is not None:
            self._stream = format.stream(STDIN)
        return self._stream is not None

    def _end(self) -> list[Record]:
        self.open = False
        records: list[Record] = []
        if self._format == EMPTY:  # a line without its end, or nothing
            self._format = ANY_TEXT
            records = self._take(b"")
        if self._stream is not None:
            return records + self._stream.close()
        format = format_named(self._format)
        if format is None:
            return []
        if format.document is None:
            return [Unread(STDIN, format.refused)]
        try:
            return format.document(bytes(self._held), STDIN)
        except NotReadable as error:
            return [Unread(STDIN, str(error))]
