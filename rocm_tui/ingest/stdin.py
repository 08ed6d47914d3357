"""Standard input as a source, `-`."""

from __future__ import annotations

import os

from backend.model.session import Fault
from rocm_tui.ingest.clean import clean
from rocm_tui.ingest.errors import NotReadable
from rocm_tui.ingest.records import Format, Record, SourceStatus
from rocm_tui.ingest.sniff import HEAD, sniff
from rocm_tui.ingest.tailer import CHUNK, MAX_WHOLE, REFUSED, STREAMS, WHOLE, StreamReader

STDIN = "-"


class Stdin:
    """Reads a descriptor to its end. Never raises."""

    def __init__(self, descriptor: int = 0) -> None:
        self.descriptor = descriptor
        self.open = True
        self._format: Format = ""
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
            records: list[Record] = [Fault(STDIN, f"cannot read it: {clean(str(error.strerror))}")]
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
        if self._format in ("", "empty"):
            self._format = sniff(bytes(self._held[:HEAD]))
        if self._format in STREAMS:
            return self._start()
        if len(self._held) > MAX_WHOLE:
            self.open = False
            return [Fault(STDIN, f"more than {MAX_WHOLE >> 20} MiB of {self._format}")]
        return []

    def _start(self) -> list[Record]:
        self._stream = STREAMS[self._format](STDIN)
        held, self._held = bytes(self._held), bytearray()
        return self._stream.feed(held)

    def _end(self) -> list[Record]:
        self.open = False
        if self._format == "empty":  # a line without its end, or nothing
            self._format = "stderr log"
            return self._start() + self._end()
        if self._stream is not None:
            return self._stream.close()
        if self._format in REFUSED:
            return [Fault(STDIN, REFUSED[self._format])]
        if self._format not in WHOLE:
            return []
        try:
            return WHOLE[self._format](bytes(self._held), STDIN)
        except NotReadable as error:
            return [Fault(STDIN, str(error))]
