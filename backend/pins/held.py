"""The autotune cache files, made to agree with the pins.

What a pin changes in the text of one is worked out by pure functions; `HeldCache` applies them.
"""

from __future__ import annotations

import contextlib
import math
import os
import pwd
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from backend.cache import configs
from backend.cache.autotune import (
    INFINITY,
    CacheText,
    Numbers,
    Token,
    cache_paths,
    is_raised,
    measured,
    merge_missing,
    raise_ms,
    raised,
)
from backend.disk import exchange, safe
from backend.disk.layout import Layout
from backend.disk.safe import read_bytes
from backend.errors import CacheUnreadable, PinRefused, brief
from backend.model.kernel import TRITON
from backend.model.origin import is_own
from backend.model.problem import TuningKey
from backend.pins import kernels
from backend.pins.file import PinFile, Record, Tokens, is_file_name, read_pin_file

Changes = dict[Token, str]


RELEASED_SECONDS = 86_400.0
"""How long a released pin is watched for: a process that read the cache file while the pin held
and benchmarks for long writes our raised numbers back."""


def learn(record: Record, stored: Numbers) -> Record:
    """`record` with the numbers of `stored` as what unpinning restores.

    A raised number says what it was. An `Infinity` where a time is known says nothing new: an old
    copy of the file, from when pins were held by it, may have brought it back. Only where the
    pinned choice was measured again, or is infinite itself beside new times, a choice failed.
    """
    tokens: Tokens = {precision: dict(texts) for precision, texts in record.tokens.items()}
    for precision, numbers in stored.items():
        texts = tokens.setdefault(precision, {})
        new = {
            name: _original(token, texts.get(name))
            for name, token in numbers.items()
            if token.value != math.inf
        }
        own, known = new.get(record.hash), texts.get(record.hash)
        again = record.raised and None not in (own, known) and own != known
        news = any(texts.get(name) != text for name, text in new.items())
        for name in numbers.keys() - new.keys():
            if again or (news and name == record.hash):
                texts[name] = INFINITY
        for name in numbers:
            texts.setdefault(name, INFINITY)
        texts.update(new)
    return record if tokens == record.tokens else replace(record, tokens=tokens)


def _original(token: Token, known: str | None) -> str:
    """What stood where a number stands: the known text, byte by byte, if it gives this number."""
    if not is_raised(token.value):
        return token.text
    same = known is not None and raise_ms(float(known)) == token.value
    return known if known is not None and same else measured(token.text)


def holding(record: Record, stored: Numbers) -> Changes:
    """The changes that make the pinned choice win, given what `learn` made of `record`.

    In a precision where the pinned choice is missing or failed nothing is held back, nor for a
    choice of our templates: only a process with them has it, and there our selector honours the
    pin.
    """
    changes: Changes = {}
    for precision, numbers in stored.items():
        held = is_held(record, stored, precision) and not is_own(record.hash)
        for name, token in numbers.items():
            original = record.tokens[precision][name]
            wanted = raised(original) if held and name != record.hash else original
            if not _same(token.text, wanted):
                changes[token] = wanted
    return changes


def is_held(record: Record, stored: Numbers, precision: str) -> bool:
    """Whether the pinned choice can win in `precision`: it is there and has a time."""
    return record.hash in stored[precision] and is_time(record.tokens[precision][record.hash])


def releasing(record: Record, stored: Numbers) -> Changes:
    """The changes that take a pin back: each number that it changed becomes the old text."""
    changes: Changes = {}
    for precision, numbers in stored.items():
        for name, token in numbers.items():
            known = record.tokens.get(precision, {}).get(name)
            if is_raised(token.value):
                changes[token] = _original(token, known)
            elif token.value == math.inf and known is not None and float(known) != math.inf:
                changes[token] = known
    return changes


def came_back(record: Record, stored: Numbers) -> bool:
    """Whether a released pin's numbers are in the file again, as a process with an old copy of
    it writes them: some are raised, or, of a pin of an older version, all losers that had a time
    are `Infinity` and the choice has its own."""
    return any(
        is_raised(token.value) for numbers in stored.values() for token in numbers.values()
    ) or any(
        _all_infinite(record, precision, texts, stored)
        for precision, texts in record.tokens.items()
    )


def _all_infinite(record: Record, precision: str, texts: dict[str, str], stored: Numbers) -> bool:
    numbers = stored.get(precision, {})
    losers = [name for name, text in texts.items() if name != record.hash and is_time(text)]
    own = numbers.get(record.hash)
    return (
        bool(losers)
        and own is not None
        and own.value != math.inf
        and all(name in numbers and numbers[name].value == math.inf for name in losers)
    )


def unowned(stored: Numbers) -> Changes:
    """The changes that take back what was raised for a pin of which nothing is known any more."""
    return {
        token: measured(token.text)
        for numbers in stored.values()
        for token in numbers.values()
        if is_raised(token.value)
    }


def is_time(text: str) -> bool:
    """Whether the text of a number is a measured time: finite."""
    return math.isfinite(float(text))


def edited(text: CacheText, changes: Iterable[Changes]) -> bytes:
    """The content of the file with all `changes` made."""
    merged: Changes = {}
    for some in changes:
        merged.update(some)
    return text.replace(merged)


def _same(first: str, second: str) -> bool:
    return first == second or float(first) == float(second)


def pinned_choices(cache_path: Path) -> dict[tuple[str, str], str]:
    """The choice that each pin of a cache file lets win; empty for one of our templates, which is
    not held there. Raises CacheUnreadable."""
    pins = read_pin_file(Layout(cache_path.parent.parent).pins).pins
    return {
        (pin.op, pin.inputs): "" if is_own(pin.hash) else pin.hash
        for pin in pins
        if pin.system_hash == cache_path.name
    }


class HeldCache:
    """Reads and changes the cache files; a file is read again only when it changed."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._texts: dict[Path, tuple[object, CacheText]] = {}
        self._tritons: set[Path] = set()

    def signatures(self) -> list[tuple[Path, object]]:
        """Of each file that a pin may depend on."""
        paths = [*cache_paths(self._layout), *sorted(self._tritons)]
        return [(path, exchange.signature_of(path)) for path in paths]

    def check(self, path: Path) -> None:
        """Raise StoreErrors if writing to this file is unsafe."""
        safe.check_file(kernels.root_of(path, self._layout), path)

    def locate(
        self, system_hash: str | None, key: TuningKey, hash: str, wait: bool = False
    ) -> Path:
        """The cache file that has the choice, the last written of several; with `wait` the one
        that shall get it. Raises PinRefused, CacheUnreadable."""
        if not all(name.isprintable() for name in (key.op, key.inputs, key.precision, hash)):
            raise PinRefused(f"{brief(hash, 80)} of {brief(key.op, 40)} is no name; pin another")
        if key.op == TRITON:
            pins = read_pin_file(self._layout.pins)
            records = (*pins.pins, *pins.released)
            path = kernels.locate(self._layout, records, system_hash, key)
            if hash in self.text(path).find(key.op, key.inputs).get("", {}):
                return path
            raise PinRefused(f"{brief(hash, 80)} is no config of this kernel; see its choices")
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
        path = self._path_of(file, system)
        if not path.exists():
            return {}
        counts: dict[tuple[str, str, str], int] = {}

        def edit(data: bytes) -> bytes:
            text = kernels.text_of(path, data)
            parts: list[Changes] = []
            for record in [r for r in file.pins if r.system_hash == system]:
                stored = text.find(record.op, record.inputs)
                learned = learn(record, stored)
                changes = holding(learned, stored)
                if changes and count_drifts and record.identity not in counts:
                    learned = self._again(file, learned)
                if changes:
                    counts[record.identity] = len(changes)
                    parts.append(changes)
                if learned is not record or not record.raised:
                    file.put(replace(learned, raised=True))
            for record in [r for r in self.watched(file) if r.system_hash == system]:
                stored = text.find(record.op, record.inputs)
                if record.pending or came_back(record, stored):
                    changes = releasing(record, stored)
                    if not record.pending and record.identity not in counts:
                        file.note("restore", record, default_who(), time.time())
                    counts[record.identity] = len(changes)
                    parts.append(changes)
            strays = self._strays(text, file, system)
            parts += [unowned(text.find(op, inputs)) for op, inputs in strays]
            file.save()
            return edited(text, parts) if any(parts) else data

        self.check(path)
        merge = configs.keep_newer if configs.is_file(path) else merge_missing
        with safe.locked(self._layout.root, self._layout.autotune / system):
            before = path.stat()
            changed = exchange.update(path, edit, merge)
            if changed and configs.is_file(path):  # its time is when the kernel was tuned
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            return counts if changed else {}

    def _path_of(self, file: PinFile, system: str) -> Path:
        """The file that the pins of `system` are about."""
        records = (*file.pins, *self.watched(file))
        paths = (self.path(r) for r in records if r.system_hash == system and r.op == TRITON)
        return next(paths, self._layout.autotune / system)

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
        systems: set[str] = set()
        for path in cache_paths(self._layout):
            with contextlib.suppress(CacheUnreadable):
                if self._strays(self.text(path), file, path.name):
                    systems.add(path.name)
        return systems

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

    def stored(self, record: Record) -> Numbers | None:
        """The numbers of a pin's tuning; None if the file is gone. Raises CacheUnreadable."""
        path = self.path(record)
        if not path.exists():
            return None
        return self.text(path).find(record.op, record.inputs)

    def text(self, path: Path) -> CacheText:
        signature = exchange.signature_of(path)
        known = self._texts.get(path)
        if known is None or known[0] != signature:
            known = self._texts[path] = signature, kernels.text_of(path, read_bytes(path))
        return known[1]

    def path(self, record: Record) -> Path:
        """The file that the pin is about. Raises CacheUnreadable for one that is none."""
        if record.op != TRITON:
            return self._layout.autotune / record.system_hash
        path = kernels.path_of(record)
        self._tritons.add(path)
        return path

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
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"
