"""One file, followed: what came since the last look, and what is no longer so.

Files whose bytes are no UTF-8 as they are, compressed with gzip, in UTF-16, or after a hole, are
read in stretches like any other log: nothing is unpacked as a whole, and no more than
`MAX_UNPACKED` bytes of a file.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.reader import DocumentRecords, Format, NotReadable, StreamReader
from rocm_tui.ingest.formats.registry import ANY_TEXT, EMPTY, HEAD, format_named, sniff
from rocm_tui.ingest.records import Dropped, Gone, Record, Seen, SourceState, Unread

MAX_UNPACKED = 1 << 30
"""Bytes. A few MB of gzip can be made of any number."""
_STRETCH = 1 << 20
_BITE = 4 << 10
"""Bytes unpacked at a time; a damaged piece is dropped whole."""
_GZIP = b"\x1f\x8b\x08"
_HOLE = b"\0\0"


class Decoder(Protocol):
    """From a file's bytes to the text's, as UTF-8. `what` names the encoding."""

    what: str

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next bytes. Raises NotReadable if they make no sense, or are too many."""
        ...


def decoder_of(head: bytes) -> Decoder | None:
    """What reads a file that begins with `head`; None if that is text as it is, or unknown."""
    if head.startswith(_GZIP):
        return _Gzip()
    name = _utf_16(head)
    return _Utf16(name) if name else None


def sniffed(head: bytes) -> tuple[str, Decoder | None]:
    """Return the name of the format of what begins with `head`, and what reads its text."""
    decoder, text = decoder_of(head), head
    if decoder is not None:
        try:
            text = next(decoder.feed(head), b"")
        except NotReadable:
            text = b""
    return sniff(text), decoder_of(head)


def packed_document(format: Format, decoder: Decoder) -> str:
    """Why a document is not read: it would be unpacked as a whole."""
    return f"{format.name} in {decoder.what}, which is not read: unpack it first"


class _Gzip:
    """One member after another, as `cat a.gz b.gz` makes them."""

    what = "gzip"

    def __init__(self) -> None:
        self._member = zlib.decompressobj(31)
        self._size = 0
        self._between = self._ended = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _BITE):
            yield from self._unpack(data[at : at + _BITE])

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        while data and not self._ended:
            if self._between:  # what is no member is padding
                self._ended = not data.startswith(_GZIP[: len(data)])
                self._between = False
                continue
            try:
                text = self._member.decompress(data, _STRETCH)
            except zlib.error as error:
                raise NotReadable("damaged gzip data: only what is before it was read") from error
            data = self._member.unconsumed_tail
            self._size += len(text)
            if self._size > MAX_UNPACKED:
                raise NotReadable(
                    f"more than {MAX_UNPACKED >> 20} MiB when unpacked, and no more is read; "
                    "unpack the file to read the rest"
                )
            if self._member.eof:
                data, self._between = self._member.unused_data, True
                self._member = zlib.decompressobj(31)
            if text:
                yield text


class _Utf16:
    def __init__(self, name: str) -> None:
        self.what = name
        self._decode = codecs.getincrementaldecoder(name)("replace").decode

    def feed(self, data: bytes) -> Iterator[bytes]:
        text = self._decode(data)
        if text:
            yield text.encode("utf-8", "replace")


def _utf_16(head: bytes) -> str:
    """The name of its encoding if `head` is UTF-16: a mark says so, or every other byte is NUL."""
    if head.startswith(codecs.BOM_UTF16_LE) and not head.startswith(codecs.BOM_UTF32_LE):
        return "utf-16-le"
    if head.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be"
    pairs = len(head) // 2
    first, second = (head[start : 2 * pairs : 2].count(0) for start in (0, 1))
    if pairs < 8 or max(first, second) < 0.7 * pairs or min(first, second) > 0.02 * pairs:
        return ""
    return "utf-16-le" if second > first else "utf-16-be"


def text_start(fd: int, head: bytes, size: int) -> int:
    """Where a file begins, leaving out a hole: 0 for most.

    Who cuts a log while a program writes it (`: > train.log`) makes one: the program goes on at
    the place where it was, and all before that reads as NUL.
    """
    at = 0
    if head.startswith(_HOLE):
        try:
            at = os.lseek(fd, 0, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size
        while data := os.pread(fd, _STRETCH, at):
            text = data.lstrip(b"\0")
            at += len(data) - len(text)
            if text:
                break
    return at


CHUNK = 1 << 20
_PIECE = 256 << 10
"""Bytes of a log after which its records so far are given to a caller that takes them early."""
MAX_WHOLE = 512 << 20
"""Bytes of the biggest whole-file document that is read."""
HALF_WRITTEN = 1.0
"""Seconds for which a document that does not parse is taken to be half written."""
QUIET = 1.0
"""Seconds without growth after which an open table counts as cut off."""
_PRINT = 64


@dataclass(frozen=True, slots=True)
class _Print:
    """What a grown file has in common with its earlier state: identity, and some bytes."""

    device: int
    inode: int
    head: bytes
    last: bytes


@dataclass(slots=True)
class _Content:
    """What is known of the file's present content; a new one when it is another file.

    `read` counts bytes, from `start` on, which is behind a hole; `reported` is whether a problem of
    the whole content was reported; times are monotonic seconds.
    """

    format: str
    read: int = 0
    start: int = 0
    problems: int = 0
    stream: StreamReader | None = None
    decoder: Decoder | None = None
    tunings: dict[str, Tuning] = field(default_factory=dict)
    faults: frozenset[Fault] = frozenset()
    share: object = None
    print: _Print | None = None
    stamp: tuple[int, int, int, int] | None = None
    broken_since: float | None = None
    reported: bool = False
    settle_at: float | None = None


class Tailer:
    """Follows the file at `path`. `poll` never raises; it is not safe to call from two threads.

    `known` is the format where the place of the file says it; else the content does. A file of
    another format than the `wanted` ones, if any are given, is left alone. Of a long log `early`
    takes what was found, while the rest is read; `poll` returns what it did not take.
    """

    def __init__(
        self,
        path: str,
        known: str = "",
        wanted: frozenset[str] = frozenset(),
        early: Callable[[list[Record]], None] | None = None,
    ) -> None:
        self.path = path
        self._early = early
        self._wanted = wanted
        self.state: SourceState = "waiting"
        self.size = 0
        self._known = known
        self._now = _Content(known)
        self._failure: str | None = None

    @property
    def format(self) -> str:
        return self._now.format

    @property
    def rewritten(self) -> bool:
        """Whether it is a document, which is written anew each time."""
        format = format_named(self.format)
        return format is not None and format.document is not None

    @property
    def read(self) -> int:
        """Bytes read of the present content."""
        return self._now.read

    @property
    def problems(self) -> int:
        """How many problems the present content has."""
        return self._now.problems

    def poll(self, now: float | None = None) -> list[Record]:
        """Everything that changed since the last call. `now` is monotonic time in seconds."""
        now = time.monotonic() if now is None else now
        try:
            records = self._poll(now)
        except OSError as error:
            records = self._failed(error)
        self._count(records)
        return records

    def _count(self, records: list[Record]) -> None:
        self._now.problems += sum(isinstance(record, Fault) for record in records)

    def _give(self, records: list[Record]) -> list[Record]:
        """Let `early` have these; what is left of them."""
        if self._early is None:
            return records
        self._count(records)
        self._early(records)
        return []

    def close(self) -> list[Record]:
        """The source will not grow any more, as far as anyone asks."""
        records: list[Record] = []
        if self.format == EMPTY and self.size:  # a line without its end
            self._now.format, self._now.stamp = ANY_TEXT, None
            records = self.poll()
        stream = self._now.stream
        if stream is not None and stream.waits:  # a process may have written its end since
            records += [*stream.settle(), *self.poll()]
        content = self._now
        if content.stream is not None:
            return records + content.stream.close()
        if content.broken_since is not None:
            return self.poll(content.broken_since + HALF_WRITTEN)
        return records

    @property
    def retry_at(self) -> float | None:
        """When `poll` should be called again even if nothing changes; monotonic seconds."""
        content = self._now
        if content.broken_since is not None and not content.reported:
            return content.broken_since + HALF_WRITTEN
        return content.settle_at

    # One look

    def _poll(self, now: float) -> list[Record]:
        try:
            status = Path(self.path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return self.withdraw() if self.state != "waiting" else []
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if stamp == self._now.stamp:
            return self._unchanged(now)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # /proc/kmsg waits
        try:
            status = os.fstat(fd)
            records: list[Record] = []
            another = self._is_another(fd, status)
            if another or self._failure is not None:
                records = self._give(self._forget(anew=another))
            records += self._take(fd, status, now)
        finally:
            os.close(fd)
        self._now.stamp = (status.st_dev, status.st_ino, self.size, status.st_mtime_ns)
        return records

    def _take(self, fd: int, status: os.stat_result, now: float) -> list[Record]:
        content = self._now
        self.size, self.state = status.st_size, "following"
        if content.format in ("", EMPTY):
            self._sniff(fd)
        format = format_named(content.format)
        if format is None or (self._wanted and format.name not in self._wanted):
            records = []
            self.state = "following" if format is None or content.format == EMPTY else "not read"
        elif format.stream is not None:
            records = self._take_stream(fd, format, format.stream, now)
        elif format.document is None:
            records = self._refused(format.refused)
        elif content.decoder is not None:
            records = self._refused(packed_document(format, content.decoder))
        else:
            records = self._take_document(fd, format.document, now)
        content.print = _print_of(fd, status, content.read)
        return records

    def _sniff(self, fd: int) -> None:
        """Find out what the file holds, and where and how its text is written."""
        content = self._now
        head = os.pread(fd, HEAD, 0)
        start = text_start(fd, head, self.size)
        if start:
            head = os.pread(fd, HEAD, start)
        content.format, content.decoder = sniffed(head)
        content.start = start

    def _refused(self, why: str) -> list[Record]:
        """Nothing is read; why is said once."""
        self.state = "not read"
        if self._now.reported:
            return []
        self._now.reported = True
        return [Unread(self.path, why)]

    def _take_stream(
        self, fd: int, format: Format, reader: Callable[[str], StreamReader], now: float
    ) -> list[Record]:
        content = self._now
        records: list[Record] = []
        if content.stream is None:
            as_it_is = content.decoder is None and not content.start
            content.stream = ((as_it_is and format.of_file) or reader)(self.path)
            content.read = content.start
        while data := os.pread(fd, _PIECE, content.read):
            records += self._feed(content.stream, data)
            content.read += len(data)
            if len(data) < _PIECE and content.read >= self.size:
                break
            records = self._give(records)
        self.size = content.read
        content.settle_at = now + QUIET
        return records

    def _feed(self, stream: StreamReader, data: bytes) -> list[Record]:
        decoder = self._now.decoder
        if decoder is None:
            return stream.feed(data)
        records: list[Record] = []
        if not self._now.reported:
            try:
                for text in decoder.feed(data):
                    records += stream.feed(text)
            except NotReadable as error:
                records += self._refused(str(error))
        return records

    def _take_document(
        self, fd: int, parse: Callable[[bytes, str], list[Record]], now: float
    ) -> list[Record]:
        content = self._now
        if self.size > MAX_WHOLE:
            raise OSError(errno.EFBIG, f"more than {MAX_WHOLE >> 20} MiB")
        data = b"".join(iter(lambda: os.read(fd, CHUNK), b""))
        content.read = self.size = len(data)
        try:
            all_records = parse(data, self.path)
        except NotReadable as error:
            return self._broken(str(error), now)
        records: list[Record] = []
        problems = [record for record in all_records if isinstance(record, Fault)]
        faults = frozenset(problems)
        if content.reported or content.faults - faults:  # problems go with everything else
            records = [Gone(self.path)]
            content.tunings, content.faults, content.problems = {}, frozenset(), 0
        content.broken_since, content.reported = None, False
        content.share = all_records.share if isinstance(all_records, DocumentRecords) else None
        seen = {record.uid: record.tuning for record in all_records if isinstance(record, Seen)}
        records += [Dropped(uid) for uid in content.tunings if uid not in seen]
        records += [Seen(u, t) for u, t in seen.items() if content.tunings.get(u) != t]
        records += [problem for problem in problems if problem not in content.faults]
        content.tunings, content.faults = seen, faults
        return records

    def _broken(self, why: str, now: float) -> list[Record]:
        """Half a document is being written; one that stays broken is a problem, once."""
        content = self._now
        if content.broken_since is None:
            content.broken_since = now
        if content.reported or now < content.broken_since + HALF_WRITTEN:
            return []
        content.reported = True
        return [Unread(self.path, why)]

    def _unchanged(self, now: float) -> list[Record]:
        content = self._now
        if self.retry_at is None or now < self.retry_at:
            return []
        if content.stream is not None:
            records = content.stream.settle()
            content.settle_at = now + QUIET if content.stream.waits else None
            return records
        content.stamp = None
        return self._poll(now)

    # What is no longer so

    def withdraw(self) -> list[Record]:
        """Withdraw everything: the file is gone, or no longer a source."""
        records = self._forget(anew=True)
        self.state, self.size = "waiting", 0
        return records

    def _forget(self, anew: bool) -> list[Record]:
        """What was read does not hold any more; what comes now may be of another program."""
        said_something = self.format not in ("", EMPTY) or self._failure is not None
        self._now, self._failure = _Content(self._known), None
        return [Gone(self.path, anew)] if said_something else []

    def _is_another(self, fd: int, status: os.stat_result) -> bool:
        """Replaced, truncated or rewritten since the last look, and not just a new version."""
        old, read = self._now.print, self._now.read
        if old is None or self.rewritten:
            return False
        if (status.st_dev, status.st_ino) != (old.device, old.inode) or status.st_size < read:
            return True
        head = os.pread(fd, len(old.head), 0)
        last = os.pread(fd, len(old.last), read - len(old.last))
        return (head, last) != (old.head, old.last)

    # What the system refuses

    def _failed(self, error: OSError) -> list[Record]:
        why = clean(error.strerror or type(error).__name__)
        self._now.stamp, self.state = None, "unreadable"
        # Left to the next look at everything: what was due stays due and would be polled endlessly.
        self._now.settle_at = self._now.broken_since = None
        if why == self._failure:
            return []
        self._failure = why
        return [Unread(self.path, f"cannot read it: {why}")]


def _print_of(fd: int, status: os.stat_result, read: int) -> _Print:
    count = min(_PRINT, read)
    last = os.pread(fd, count, read - count)
    return _Print(status.st_dev, status.st_ino, os.pread(fd, count, 0), last)
