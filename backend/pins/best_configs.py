"""Pins of Triton kernels that Inductor launches: held in its `*.best_config` files.

Such a file names one config. A process that compiles the kernel uses it and times nothing, if the
file was written for the same list of configs or, with coordinate descent on, if the file is marked
as found by it (torch 2.8 to 2.13). So a pin writes its config into each file of the kernel, and
moves aside graphs compiled before, which contain the earlier config. The previous content of a file
is stored with the pin, byte by byte. Without a file, the pin holds only in programs under `rocm-tui
run`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from backend.cache.autotune import Numbers
from backend.cache.best_config import (
    MAX_BYTES,
    SUFFIX,
    KernelFiles,
    KernelSource,
    check_plain,
    config_from_texts,
    descends,
    with_config,
)
from backend.disk import exchange, safe
from backend.disk.layout import Layout
from backend.disk.safe import read_bytes
from backend.errors import CacheUnreadable, PinRefused, brief
from backend.model.inductor_kernel import SYSTEM, is_inductors
from backend.pins.file import (
    Counts,
    PinFile,
    PinRecord,
    PinRequest,
    applied_again,
    hold_text,
)
from backend.pins.state import GraphVerdicts, PinStatus, state_of_kernel

_ALL = f"*{SUFFIX}"


class BestConfigFiles:
    """The `PinHolder` of kernels that Inductor launches."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._files = KernelFiles(layout.root)
        self._queried: dict[tuple[str, str], None] = {}

    def locate(self, file: PinFile, request: PinRequest) -> Path:
        return self._layout.root / "*" / _ALL

    def system_of(self, path: Path) -> str:
        return SYSTEM

    def folder_of(self, path: Path) -> str:
        return ""

    def path(self, record: PinRecord) -> Path:
        return self._layout.root / "*" / _ALL

    def files(self) -> list[Path]:
        """Return the current files of all pins that were queried."""
        return [path for op, inputs in self._queried for path, _ in self._files.of(op, inputs)]

    def check_writable(self, path: Path) -> None:
        """Do nothing: each file is checked before it is written."""

    def check_new(self, record: PinRecord) -> None:
        """Raise PinRefused if the new config is unknown, or if it or a file to be changed has
        values other than numbers and Triton's words."""
        if config_from_texts(record.config, record.hash) is None:
            raise PinRefused(
                f"the config of {brief(record.hash, 80)} is unknown, or has values other than "
                "numbers and Triton's words, so it cannot be pinned; pin one that `rocm-tui show` "
                "lists"
            )
        for path in self._paths(record):
            try:
                check_plain(path, read_bytes(path, MAX_BYTES))
            except CacheUnreadable as error:
                raise PinRefused(str(error)) from error

    def numbers(self, record: PinRecord) -> None:
        return None

    def learned(self, record: PinRecord, stored: Numbers) -> PinRecord:
        return record

    def changes(self, record: PinRecord) -> int:
        return len(self._differing(record))

    def waits(self, record: PinRecord, stored: Numbers) -> bool:
        return False

    def differs(self, record: PinRecord) -> bool:
        return bool(self._differing(record))

    def came_back(self, record: PinRecord) -> bool:
        return False

    def status(self, record: PinRecord, judged: GraphVerdicts) -> PinStatus:
        differing = len(self._differing(record))
        return state_of_kernel(record, len(self._paths(record)), differing, judged)

    def agree(self, file: PinFile, system: str, count_drifts: bool) -> Counts:
        with safe.locked(self._layout.root, self._layout.root / SYSTEM):
            pins = [record for record in file.pins if is_inductors(record.op)]
            counts = {record.identity: self._hold(file, record, count_drifts) for record in pins}
            for record in file.watched():
                if is_inductors(record.op) and record.pending:
                    counts[record.identity] = self._release(record)
            return counts

    def _paths(self, record: PinRecord) -> list[Path]:
        """Return the files of a pin."""
        self._queried[record.op, record.inputs] = None
        return [path for path, _ in self._files.of(record.op, record.inputs)]

    def _differing(self, record: PinRecord) -> list[Path]:
        """Return the files that do not hold the pin. Raises CacheUnreadable."""
        return [path for path in self._paths(record) if not self._holds(path, record)]

    def _hold(self, file: PinFile, record: PinRecord, count_drifts: bool) -> int:
        config = config_from_texts(record.config, record.hash)
        if config is None:
            return 0
        files, changes, overwritten = dict(record.files), list[tuple[Path, str, str]](), False
        for path, source in self._files.of(record.op, record.inputs):
            held, text = files.get(self._relative(path)), _text(path)
            overwritten |= held is not None and not held.is_ours(text)

            def write(original: str, path: Path = path, source: KernelSource = source) -> str:
                return with_config(path, original.encode(), config, descends(source)).decode()

            held = files[self._relative(path)] = hold_text(held, text, write)
            if held.written != text or exchange.is_unfinished(path):  # else read once more
                changes.append((path, text, held.written))
        if overwritten and count_drifts:
            record = applied_again(file, record)
        if files != record.files:
            file.put(replace(record, files=files))
        file.save()
        for path, _, _ in changes:
            safe.check_file(self._layout.root, path)  # before the first is written
        return sum(self._write(*change) for change in changes)

    def _release(self, record: PinRecord) -> int:
        """Restore the files of a pin, except files that were rewritten since."""
        count = 0
        for name, held in record.files.items():
            path = self._layout.root / name
            with suppress(CacheUnreadable):
                text = _text(path)
                ours = text != held.original and held.is_ours(text)
                if ours or exchange.is_unfinished(path):
                    check_plain(path, held.original.encode())
                    count += self._write(path, text if ours else held.written, held.original)
        return count

    def _write(self, path: Path, old: str, new: str) -> bool:
        safe.check_file(self._layout.root, path)
        return exchange.update(
            path,
            lambda data: new.encode() if data == old.encode() else data,
            exchange.newer,
            keep_time=True,  # the time of tuning
        )

    def _holds(self, path: Path, record: PinRecord) -> bool:
        held = record.files.get(self._relative(path))
        return held is not None and _text(path) == held.written

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._layout.root).as_posix()


def _text(path: Path) -> str:
    try:
        return read_bytes(path, MAX_BYTES).decode()
    except UnicodeDecodeError as error:
        raise CacheUnreadable(f"{path} is not UTF-8; move it away") from error
