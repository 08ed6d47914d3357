"""Inductor's persistent autotune cache: `cache/<system hash>`, one JSON file per system.

    {"system": {...}, "cache": {op: {inputs: {precision: {choice hash: milliseconds}}}}}

A failed choice is `Infinity`, which Python's json writes and strict parsers reject. A number that a
recorded pin raised is read as the measured time; without that record it is no time of a kernel.

Raising rivals lets a pinned choice win without breaking other programs: Inductor takes the smallest
number among the choices that a program offers, and a program whose choices are all `Infinity` fails
to compile. So the rivals of a pinned choice keep their order: each number is multiplied by 2^40.
This is exact in binary floating point, so it can be undone from the number alone, and no kernel
takes the three hours that a raised number exceeds.

Pinning and unpinning must restore the file byte by byte, whatever its layout, so only the tokens of
the affected numbers are replaced. The text between them is skipped by the standard library's
scanner, which is written in C.

A whole file is written in PyTorch's own layout, byte by byte, but five times as fast:
`json.dumps(..., indent=4)` runs in Python; without indentation it runs in C. The innermost objects,
which are nearly all of the text, are written in C with the line break as a part of the separator.

Programs that must not modify the person's files get private copies of them (`copy_unpinned`,
`copy_pinned`). Results that a trial tunes stay in its copy: retuning them at every trial could
select another kernel each time, because of noise.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.disk import safe
from backend.disk.layout import Layout
from backend.disk.safe import load_json, read_bytes
from backend.errors import CacheUnreadable, brief
from backend.model.choice import MOST_MS, is_kernel_time
from backend.model.problem import TuningKey
from backend.model.session import Fault

FACTOR = 2.0**40
_HIGHEST = 2.0**1000
"""The number written for NaN, and the limit of raised numbers."""

INFINITY = "Infinity"


@dataclass(frozen=True, slots=True)
class CacheFile:
    """A parsed cache file. `system` is its header as JSON text; times are milliseconds. `untimed`
    are choices whose number is above every time and is that of no pin: programs take another."""

    path: Path
    system_hash: str
    system: Mapping[str, Any]
    entries: Mapping[TuningKey, Mapping[str, float]]
    problems: tuple[Fault, ...] = ()
    untimed: Mapping[TuningKey, tuple[str, ...]] = field(default_factory=dict)


def read_cache(path: Path, pinned: Collection[tuple[str, str]] | None = None) -> CacheFile:
    """Read one cache file; see `parse_cache`. Raises CacheUnreadable if it is missing, too big or
    malformed."""
    return parse_cache(path, read_bytes(path), pinned)


def parse_cache(
    path: Path, data: bytes, pinned: Collection[tuple[str, str]] | None = None
) -> CacheFile:
    """Parse `data`, the content of `path`. Raises CacheUnreadable.

    `pinned` are its `recorded_pins`. By default they are read if they are needed, and raised
    numbers are problems if that fails.
    """
    document = load_json(path, data)
    system = document.get("system")
    problems: list[Fault] = []
    untimed: dict[TuningKey, tuple[str, ...]] = {}
    entries = dict(_entries(cache_of(path, document), path, problems, untimed, pinned))
    system = system if isinstance(system, dict) else {}
    return CacheFile(path, path.name, system, entries, tuple(problems), untimed)


def read_caches(layout: Layout) -> tuple[list[CacheFile], list[Fault]]:
    """Read every cache file of `layout`, sorted by name, with a fault for each unusable part."""
    files: list[CacheFile] = []
    problems: list[Fault] = []
    try:
        paths = cache_paths(layout)
    except CacheUnreadable as error:
        return [], [Fault(str(layout.autotune), str(error))]
    for path in paths:
        try:
            file = read_cache(path)
        except CacheUnreadable as error:
            if path.exists():
                problems.append(Fault(str(path), str(error)))
            continue
        files.append(file)
        problems.extend(file.problems)
    return files, problems


def preferred(path: Path) -> dict[TuningKey, list[str]]:
    """Return the choices of each tuning in Inductor's order of preference: by the stored numbers,
    which are raised for a pinned choice's rivals. Raises CacheUnreadable."""
    preferred: dict[TuningKey, list[str]] = {}
    for op, inputs, precision, timings in walk(cache_of(path, load_json(path, read_bytes(path)))):
        numbers = {
            hash_: ms
            for hash_, ms in timings.items()
            if isinstance(ms, (int, float)) and not isinstance(ms, bool) and 0 <= ms < math.inf
        }
        if numbers:
            preferred[TuningKey(op, inputs, precision)] = sorted(numbers, key=numbers.__getitem__)
    return preferred


def cache_paths(layout: Layout) -> list[Path]:
    """Return the cache files' paths; temporary and lock files begin with a dot and are left out.
    Raises CacheUnreadable if the folder is there and cannot be listed."""
    try:
        names = sorted(entry.name for entry in os.scandir(layout.autotune) if entry.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CacheUnreadable(f"cannot read {layout.autotune}: {error.strerror}") from error
    return [layout.autotune / name for name in names if not name.startswith(".")]


def cache_of(path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the "cache" object of the parsed file `path`. Raises CacheUnreadable."""
    cache = document.get("cache")
    if not isinstance(cache, dict):
        raise CacheUnreadable(f'no "cache" object in {path}; move the file away to start afresh')
    return cache


def walk(
    cache: object, odd: Callable[[str], object] = bool
) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield op, inputs, precision and timings of each tuning in a "cache" object; call `odd` with
    the name of each member that is not an object."""
    for op, by_inputs in _objects(cache, odd):
        for inputs, by_precision in _objects(by_inputs, odd):
            for precision, timings in _objects(by_precision, odd):
                yield op, inputs, precision, timings


def _objects(node: object, odd: Callable[[str], object]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in node.items() if isinstance(node, dict) else ():
        if isinstance(value, dict):
            yield name, value
        else:
            odd(name)


def recorded_pins(cache_path: Path) -> frozenset[tuple[str, str]]:
    """Return the (op, inputs) of every pin of a cache file that `pins.json` records, released ones
    and its history included; none if that file is missing. Raises CacheUnreadable.

    Any number may be another one times 2^40, so only this record shows that a pin raised it.
    """
    path = Layout(cache_path.parent.parent).pins
    try:
        document = load_json(path, read_bytes(path))
    except CacheUnreadable as error:
        if error.is_absent:
            return frozenset()
        raise
    parts = [document.get(name) for name in ("pins", "released", "history")]
    records = [r for part in parts if isinstance(part, list) for r in part if isinstance(r, dict)]
    return frozenset(
        (str(record.get("op")), str(record.get("inputs")))
        for record in records
        if record.get("system_hash", "") in (cache_path.name, "")  # old history has none
    )


def _entries(
    cache: Mapping[str, Any],
    path: Path,
    problems: list[Fault],
    untimed: dict[TuningKey, tuple[str, ...]],
    pinned: Collection[tuple[str, str]] | None,
) -> Iterator[tuple[TuningKey, dict[str, float]]]:
    source = str(path)
    no_pin = _NO_PIN

    def odd(name: str) -> None:
        problems.append(Fault(source, f"{brief(name, 80)} holds no object"))

    for op, inputs, precision, timings in walk(cache, odd):
        times = {name: ms for name, v in timings.items() if (ms := _time(v)) is not None}
        held = [name for name in times if is_raised(timings[name])]
        why = _REMEDY
        if held:
            if pinned is None:
                try:
                    pinned = recorded_pins(path)
                except CacheUnreadable as error:
                    pinned, no_pin = (), f", unless a pin raised it: {error}"
            # A pin raises no number without leaving that of its choice.
            left = any(times[name] == timings[name] < math.inf for name in times)
            is_pinned = (op, inputs) in pinned
            why = why if is_pinned else no_pin
            if not is_pinned or not left:
                for name in held:
                    del times[name]
                if left:
                    untimed[TuningKey(op, inputs, precision)] = tuple(held)
        odd_names = timings.keys() - times.keys()
        if odd_names:
            name = min(odd_names)
            where = f"of {brief(name, 60)}, {brief(op, 40)} at {brief(inputs, 80)}"
            number = brief(str(timings[name]), 30)
            problems.append(Fault(source, f"{number} {where}: {_NO_TIME}{why}"))
        yield TuningKey(op, inputs, precision), times


_NO_TIME = "not the milliseconds of a kernel"
_REMEDY = "; tune it again, for PyTorch takes the smallest number"
_NO_PIN = f", and no pin in rocm_tui/pins.json raised it{_REMEDY}"
_LEAST_MS = 1e-4
"""A number above `MOST_MS` that would be less than 100 ns was not raised by a pin."""


def _time(value: object) -> float | None:
    """Return the milliseconds of a file's number, infinite or NaN for a failed choice; None for
    another value, or a time that no kernel takes."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        ms = float(value)
    except OverflowError:
        return math.inf
    if ms == _HIGHEST:  # raised from NaN
        return math.nan
    if is_raised(ms):
        ms = measured_ms(ms)
        return ms if _LEAST_MS <= ms < MOST_MS else None
    failed = ms == math.inf or math.isnan(ms)
    return ms if failed or is_kernel_time(ms) else None


def is_raised(ms: object) -> bool:
    """Return whether a cache file's number is in the range of raised ones; a failed choice's
    infinity is not. Whether a pin raised it is in `recorded_pins`."""
    return isinstance(ms, (float, int)) and MOST_MS <= ms <= sys.float_info.max


def raise_ms(ms: float) -> float:
    """Return the number that replaces `ms` while a rival is pinned; failed and raised ones stay."""
    if ms == math.inf or is_raised(ms):
        return ms
    if math.isnan(ms):
        return _HIGHEST
    return min(max(ms * FACTOR, MOST_MS), _HIGHEST)


def measured_ms(ms: float) -> float:
    """Return the measured milliseconds of a cache file's number."""
    return ms / FACTOR if is_raised(ms) else ms


def lower(cache: Mapping[str, Any], pinned: Collection[tuple[str, str]]) -> bool:
    """Lower the raised numbers of each (op, inputs) in `pinned`; return whether there were any."""
    changed = False
    for op, inputs, _, timings in walk(cache) if pinned else ():
        if (op, inputs) in pinned:
            raised = {name: measured_ms(ms) for name, ms in timings.items() if is_raised(ms)}
            timings.update(raised)
            changed = changed or bool(raised)
    return changed


def raised_text(text: str) -> str:
    """Apply `raise_ms` to a number's text."""
    ms = float(text)
    high = raise_ms(ms)
    return text if high == ms else repr(high)


def measured_text(text: str) -> str:
    """Return the text that PyTorch wrote for a raised number; other texts are unchanged."""
    ms = float(text)
    return repr(ms / FACTOR) if is_raised(ms) else text


_SCALARS = {str, int, float, bool, type(None)}
_STEP = "    "

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class Token:
    """The text of one number and its position."""

    text: str
    start: int
    end: int

    @property
    def value(self) -> float:
        return float(self.text)


Numbers = Mapping[str, Mapping[str, Token]]
"""The numbers of one (op, inputs): by precision, then by choice hash."""


class CacheText:
    """The content of one cache file, as text with positions."""

    def __init__(self, path: Path, data: bytes) -> None:
        """Decode the content. Raises CacheUnreadable if `data` is not UTF-8."""
        self.path = path
        self._members_at: dict[int, dict[str, int]] = {}
        self._raised: list[tuple[str, str]] = []
        try:
            self.text = data.decode()
        except UnicodeDecodeError as error:
            raise CacheUnreadable(f"{path} is not UTF-8; move the file away") from error

    def find(self, op: str, inputs: str) -> Numbers:
        """Return the numbers of (op, inputs). Raises CacheUnreadable if the text there is not JSON.
        If a key occurs twice in an object, the last one counts, as for every reader."""
        try:
            at: int | None = self._root()
            for name in ("cache", op, inputs):
                at = None if at is None else self._members(at).get(name)
            if at is None:
                return {}
            return {name: dict(self._tokens(start)) for name, start in self._members(at).items()}
        except (ValueError, IndexError, RecursionError) as error:
            raise CacheUnreadable(f"{self.path} is not JSON; move the file away") from error

    def raised(self) -> list[tuple[str, str]]:
        """Return each (op, inputs) with a number in the range of raised ones. Raises
        CacheUnreadable."""
        self.find("", "")
        return self._raised

    def replace(self, changes: Mapping[Token, str]) -> bytes:
        """Return the content with the text of each token replaced."""
        parts, last = [], 0
        for token in sorted(changes, key=lambda token: token.start):
            parts += [self.text[last : token.start], changes[token]]
            last = token.end
        return "".join([*parts, self.text[last:]]).encode()

    def _root(self) -> int:
        """Return where the document begins; ValueError if it is not exactly one object."""
        start = self._skip_space(0)
        if start not in self._members_at:
            self._expect("{", start)
            document, end = _DECODER.raw_decode(self.text, start)
            if self._skip_space(end) != len(self.text):
                raise ValueError("text follows the document")
            tunings = walk(document.get("cache"))
            raised = ((t[0], t[1]) for t in tunings if any(map(is_raised, t[3].values())))
            self._raised = list(dict.fromkeys(raised))
        return start

    def _members(self, at: int) -> dict[str, int]:
        """Return where the value of each key begins, in the object that begins at `at`."""
        if at not in self._members_at:
            self._members_at[at] = {name: start for name, start, _ in self._walk(at)}
        return self._members_at[at]

    def _tokens(self, at: int) -> Iterator[tuple[str, Token]]:
        for name, start, end in self._walk(at):
            text = self.text[start:end]
            if _is_number(text):
                yield name, Token(text, start, end)

    def _walk(self, at: int) -> Iterator[tuple[str, int, int]]:
        """Yield key, start and end of the value of each member of an object at `at`."""
        if self.text[at] != "{":
            return
        at = self._skip_space(at + 1)
        if self.text[at] == "}":
            return
        while True:
            name, at = _DECODER.raw_decode(self.text, at)
            if not isinstance(name, str):
                raise ValueError("a key must be a string")
            at = self._skip_space(at)
            self._expect(":", at)
            start = self._skip_space(at + 1)
            _, end = _DECODER.raw_decode(self.text, start)
            yield name, start, end
            at = self._skip_space(end)
            if self.text[at] == "}":
                return
            self._expect(",", at)
            at = self._skip_space(at + 1)

    def _expect(self, char: str, at: int) -> None:
        if self.text[at] != char:
            raise ValueError(f"no {char} where one belongs")

    def _skip_space(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return match.end() if match else at


def _is_number(text: str) -> bool:
    return text in ("NaN", INFINITY, "-Infinity") or text[0] in "-0123456789"


def merge_missing(path: Path, newer: bytes, older: bytes) -> bytes:
    """Add to `newer` the choices of `older` that it lacks; return `newer` itself if it lacks none.

    If both have a number, that of `newer` counts. Written as PyTorch writes it. Raises
    CacheUnreadable if one of them is not a cache.
    """
    document, other = load_json(path, newer), {"cache": {}, **load_json(path, older)}
    document.setdefault("cache", {})
    if not _add_missing(cache_of(path, document), cache_of(path, other)):
        return newer
    return json.dumps(document, indent=4).encode()


def _add_missing(into: dict[str, Any], source: Mapping[str, Any]) -> bool:
    changed = False
    for name, value in source.items():
        if name not in into:
            into[name] = value
            changed = True
        elif isinstance(value, dict) and isinstance(into[name], dict):
            changed = _add_missing(into[name], value) or changed
    return changed


def dump(document: Mapping[str, Any]) -> bytes:
    """Return `json.dumps(document, indent=4)`. `document` consists of parsed JSON."""
    return _object(document, "\n").encode()


def _object(value: Mapping[str, Any], line: str) -> str:
    """Write an object that begins anywhere and ends on its own line, which begins with `line`."""
    if not value:
        return "{}"
    inner = line + _STEP
    if _SCALARS.issuperset(map(type, value.values())):
        return f"{{{inner}{_encoder(inner).encode(value)[1:-1]}{line}}}"
    parts = (f"{json.dumps(name)}: {_any(item, inner)}" for name, item in value.items())
    return f"{{{inner}{f',{inner}'.join(parts)}{line}}}"


def _any(value: Any, line: str) -> str:
    if isinstance(value, dict):
        return _object(value, line)
    return json.dumps(value, indent=4).replace("\n", line)


@functools.cache
def _encoder(line: str) -> json.JSONEncoder:
    return json.JSONEncoder(separators=(f",{line}", ": "))


def copy_unpinned(layout: Layout, private: Layout) -> int:
    """Copy the caches of `layout` to `private` without pins: each number is the measured one.
    Tunings that only the copy has stay. Returns the number of files.

    Raises UnsafePath, NotWritable and Busy, and CacheUnreadable if a file cannot be read: without
    its times, programs would tune again. Files that hold no cache are left out.
    """
    count = 0
    _make(layout, private)
    for path in cache_paths(layout):
        data = safe.read_bytes(path)
        try:
            document = safe.load_json(path, data)
            cache = cache_of(path, document)
        except CacheUnreadable:
            continue
        lower(cache, recorded_pins(path))
        copy = private.autotune / path.name
        with safe.locked(private.root, copy):
            _keep_own(cache, copy)
            content = dump(document)
            if not _holds(copy, content):
                safe.write_atomic(copy, content)
        count += 1
    return count


def copy_pinned(layout: Layout, private: Layout) -> int:
    """Copy the caches and pins of `layout` to `private` unchanged. Returns the number of files.
    Raises UnsafePath, NotWritable, Busy and CacheUnreadable."""
    _make(layout, private)
    paths = cache_paths(layout)
    for path in (*paths, *([layout.pins] if layout.pins.exists() else [])):
        copy = private.root / path.relative_to(layout.root)
        safe.make_folder(private.root, copy.parent)
        with safe.locked(private.root, copy):
            safe.write_atomic(copy, safe.read_bytes(path))
    return len(paths)


def discard(layout: Layout, private: Layout) -> None:
    """Remove the copy `private`, a folder in `layout`, and its content."""
    safe.check_folder(layout.root, private.root)
    shutil.rmtree(private.root, ignore_errors=True)


def _make(layout: Layout, private: Layout) -> None:
    safe.make_folder(layout.root, private.root)
    safe.make_folder(private.root, private.autotune)


def _keep_own(cache: dict[str, Any], copy: Path) -> None:
    """Add the tunings that only the copy has."""
    try:
        own = cache_of(copy, safe.load_json(copy, safe.read_bytes(copy)))
    except CacheUnreadable:
        return
    for op, inputs, precision, timings in walk(own):
        by_precision = cache.setdefault(op, {}).setdefault(inputs, {})
        if isinstance(by_precision, dict):
            by_precision.setdefault(precision, timings)


def _holds(copy: Path, content: bytes) -> bool:
    try:
        return safe.read_bytes(copy) == content
    except CacheUnreadable:
        return False
