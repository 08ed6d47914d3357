"""The autotune cache files, made to agree with the pins."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path

from backend.model.problem import TuningKey
from backend.store import exchange, safe
from backend.store.autotune_cache import cache_paths, read_bytes
from backend.store.cache_edit import CacheText, Found
from backend.store.errors import CacheUnreadable, PinRefused, brief
from backend.store.paths import Layout
from backend.store.pin_edit import (
    Changes,
    came_back,
    edited,
    holding,
    learn,
    releasing,
    unowned,
)
from backend.store.pin_file import PinFile, Record, is_file_name

RELEASED_SECONDS = 86_400.0
"""How long a released pin is watched for: a process that read the cache file while the pin held
and benchmarks for long writes our raised numbers back."""


class HeldCache:
    """Reads and changes the cache files; a file is read again only when it changed."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._texts: dict[Path, tuple[object, CacheText]] = {}

    def locate(
        self, system_hash: str | None, key: TuningKey, hash: str, wait: bool = False
    ) -> Path:
        """The cache file that has the choice, the last written of several; with `wait` the one
        that shall get it. Raises PinRefused, CacheUnreadable."""
        if not all(name.isprintable() for name in (key.op, key.inputs, key.precision, hash)):
            raise PinRefused(f"{brief(hash, 80)} of {brief(key.op, 40)} is no name; pin another")
        if system_hash is None:
            paths = cache_paths(self._layout)
        else:
            path = self._layout.autotune / system_hash
            named = is_file_name(system_hash) and system_hash.isprintable()
            if not named or not (wait or path.exists()):
                raise PinRefused(f"there is no cache file {brief(str(path), 200)}")
            if wait:
                return path
            paths = [path]
        unreadable: CacheUnreadable | None = None
        known: list[Path] = []
        fitting: list[Path] = []
        for path in paths:
            try:
                numbers = self.text(path).find(key.op, key.inputs).get(key.precision)
            except CacheUnreadable as error:
                unreadable = error
                continue
            if numbers is not None:
                known.append(path)
                if hash in numbers:
                    fitting.append(path)
        if fitting:
            return max(fitting, key=lambda path: (exchange.signature_of(path) or (0, 0, 0))[1])
        if unreadable is not None:
            raise unreadable
        if known:
            raise PinRefused(f"{brief(hash, 80)} is no choice of this tuning; see its choices")
        raise PinRefused(
            f"{brief(key.op, 40)} {brief(key.inputs, 80)} with precision "
            f"{brief(key.precision, 40)} is not in {self._layout.autotune}; run the model first"
        )

    def agree(
        self, file: PinFile, system: str, count_drifts: bool
    ) -> dict[tuple[str, str, str], int]:
        """Make one cache file agree with its pins; how many numbers were changed for each.

        What unpinning restores is on disk before the cache file changes.
        """
        path = self._layout.autotune / system
        if not path.exists():
            return {}
        counts: dict[tuple[str, str, str], int] = {}

        def edit(data: bytes) -> bytes:
            text = CacheText(path, data)
            parts: list[Changes] = []
            for record in [r for r in file.pins if r.system_hash == system]:
                found = text.find(record.op, record.inputs)
                learned = learn(record, found)
                changes = holding(learned, found)
                if changes and count_drifts and record.identity not in counts:
                    learned = self._again(file, learned)
                if changes:
                    counts[record.identity] = len(changes)
                    parts.append(changes)
                if learned is not record or not record.raised:
                    file.put(replace(learned, raised=True))
            for record in [r for r in self.watched(file) if r.system_hash == system]:
                found = text.find(record.op, record.inputs)
                if record.pending or came_back(record, found):
                    changes = releasing(record, found)
                    if not record.pending and record.identity not in counts:
                        file.note("restore", record, default_who(), time.time())
                    counts[record.identity] = len(changes)
                    parts.append(changes)
            strays = self._strays(text, file, system)
            parts += [unowned(text.find(op, inputs)) for op, inputs in strays]
            file.save()
            return edited(text, parts) if any(parts) else data

        safe.check_file(self._layout.root, path)
        with safe.locked(self._layout.root, path):
            return counts if exchange.update(path, edit) else {}

    def _again(self, file: PinFile, record: Record) -> Record:
        """A pin that has to be applied again: it drifted, or an older version held it otherwise."""
        record = replace(record, applied=time.time())
        if record.raised:
            return drifted(file, record)
        file.note("migrate", record, default_who(), record.applied)
        return record

    def astray(self, file: PinFile) -> set[str]:
        """The cache files with numbers that were raised for a pin of which nothing is known: the
        pins file was lost, or an old copy of the cache came back after a long time."""
        found: set[str] = set()
        for path in cache_paths(self._layout):
            with contextlib.suppress(CacheUnreadable):
                if self._strays(self.text(path), file, path.name):
                    found.add(path.name)
        return found

    def unfinished(self) -> set[str]:
        """The cache files beside which a killed process left what it was preparing."""
        return {
            path.name
            for path in cache_paths(self._layout)
            if any(
                os.path.lexists(beside)
                for beside in (exchange.leftover_path(path), safe.temporary_path(path))
            )
        }

    def _strays(self, text: CacheText, file: PinFile, system: str) -> list[tuple[str, str]]:
        owned = {
            (record.op, record.inputs)
            for record in (*file.pins, *self.watched(file))
            if record.system_hash == system
        }
        return [entry for entry in text.raised() if entry not in owned]

    def found(self, record: Record) -> Found | None:
        """The numbers of a pin's tuning; None if the file is gone. Raises CacheUnreadable."""
        path = self.path(record)
        if not path.exists():
            return None
        return self.text(path).find(record.op, record.inputs)

    def text(self, path: Path) -> CacheText:
        signature = exchange.signature_of(path)
        known = self._texts.get(path)
        if known is None or known[0] != signature:
            known = self._texts[path] = signature, CacheText(path, read_bytes(path))
        return known[1]

    def path(self, record: Record) -> Path:
        return self._layout.autotune / record.system_hash

    def watched(self, file: PinFile) -> list[Record]:
        """Released pins that are not finished, or may still be written back."""
        pinned = {record.identity for record in file.pins}
        since = time.time() - RELEASED_SECONDS
        return [
            record
            for record in file.released
            if record.identity not in pinned and (record.pending or record.released > since)
        ]


def drifted(file: PinFile, record: Record) -> Record:
    """Count a drift, in the history too."""
    record = replace(record, drifts=record.drifts + 1)
    file.note("drift", record, default_who(), time.time())
    file.put(record)
    return record


def default_who() -> str:
    """`user@host`."""
    import pwd

    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"
