"""Inductor's persistent autotune cache: `cache/<system hash>`, one JSON a system, read and edited.

    {"system": {...}, "cache": {op: {inputs: {precision: {choice hash: milliseconds}}}}}

A failed choice is `Infinity`, which Python's json writes and strict parsers refuse. A number that a
pin raised out of reach is read as the time that was measured.

That is how a pin lets its choice win without breaking another program: Inductor takes the smallest
number among the choices that a program offers, and a program that is left with nothing but
`Infinity` fails to compile. So the rivals of a pinned choice keep their order: each number is
multiplied by 2^40. That is exact in binary floating point, so it can be undone from the number
alone, and no kernel takes the three hours from which on a number counts as raised.

Whoever pins and unpins must get the file back byte by byte, however it is laid out, so only the
tokens of the numbers in question are replaced. What stands between them is skipped by the
standard library's scanner, which is written in C.

A whole file is written in PyTorch's own layout, byte by byte, five times as fast: `json.dumps(...,
indent=4)` runs in Python; without indentation it runs in C. The innermost objects, which are nearly
all of the text, are written in C with the line break as a part of the separator.

Programs that must not touch the person's files get private copies of them (`copy_unpinned`,
`copy_pinned`). What a trial tunes itself stays in its copy: tuned again at every trial, noise might
choose another kernel each time.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.disk import safe
from backend.disk.layout import Layout
from backend.disk.safe import load_json, read_bytes
from backend.errors import CacheUnreadable, brief
from backend.model.choice import MOST_MS
from backend.model.problem import TuningKey
from backend.model.session import Fault

FACTOR = 2.0**40
_HIGHEST = 2.0**1000
"""What stands for a number that has no order (NaN) or no place left above it."""

INFINITY = "Infinity"


@dataclass(frozen=True, slots=True)
class CacheFile:
    """One file. `system` is the text of its header as JSON gave it; times are milliseconds."""

    path: Path
    system_hash: str
    system: Mapping[str, Any]
    entries: Mapping[TuningKey, Mapping[str, float]]
    problems: tuple[Fault, ...] = ()


def read_cache(path: Path) -> CacheFile:
    """Read one cache file. Raises CacheUnreadable if it is missing, too big, or not one."""
    return parse_cache(path, read_bytes(path))


def parse_cache(path: Path, data: bytes) -> CacheFile:
    """What `data`, the content of `path`, says. Raises CacheUnreadable."""
    document = load_json(path, data)
    system = document.get("system")
    problems: list[Fault] = []
    entries = dict(_entries(cache_of(path, document), str(path), problems))
    system = system if isinstance(system, dict) else {}
    return CacheFile(path, path.name, system, entries, tuple(problems))


def read_caches(layout: Layout) -> tuple[list[CacheFile], list[Fault]]:
    """Every cache file below `layout`, sorted by name; one problem for each that cannot be used."""
    files: list[CacheFile] = []
    problems: list[Fault] = []
    for path in cache_paths(layout):
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
    """The choices of each tuning in the order in which Inductor prefers those that it is offered:
    by the numbers as they are, a pinned choice's rivals being raised. Raises CacheUnreadable."""
    preferred: dict[TuningKey, list[str]] = {}
    for op, inputs, precision, timings in walk(cache_of(path, load_json(path, read_bytes(path)))):
        numbers = {hash_: ms for hash_, ms in timings.items() if _is_time(ms) and ms < math.inf}
        if numbers:
            preferred[TuningKey(op, inputs, precision)] = sorted(numbers, key=numbers.__getitem__)
    return preferred


def cache_paths(layout: Layout) -> list[Path]:
    """The cache files' paths; temporary and lock files begin with a dot and are left out."""
    try:
        names = sorted(entry.name for entry in os.scandir(layout.autotune) if entry.is_file())
    except OSError:
        return []
    return [layout.autotune / name for name in names if not name.startswith(".")]


def cache_of(path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """The "cache" object of the parsed file `path`. Raises CacheUnreadable."""
    cache = document.get("cache")
    if not isinstance(cache, dict):
        raise CacheUnreadable(f'no "cache" object in {path}; move the file away to start afresh')
    return cache


def walk(
    cache: object, odd: Callable[[str], object] = bool
) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Op, inputs, precision and timings of each tuning in a "cache" object; `odd` is told the names
    of what holds no object."""
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


def _entries(
    cache: Mapping[str, Any], source: str, problems: list[Fault]
) -> Iterator[tuple[TuningKey, dict[str, float]]]:
    def odd(name: str) -> None:
        problems.append(Fault(source, f"{brief(name, 80)} holds no object"))

    for op, inputs, precision, timings in walk(cache, odd):
        times = {k: _time(v) for k, v in timings.items() if _is_time(v)}
        if len(times) != len(timings):
            what = f"a time of {brief(op, 40)} at {brief(inputs, 80)} is not a number, or negative"
            problems.append(Fault(source, what))
        yield TuningKey(op, inputs, precision), times


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not value < 0


def _time(value: float) -> float:
    try:
        return measured_ms(float(value))
    except OverflowError:
        return float("inf")


def is_raised(ms: object) -> bool:
    """Whether a number of a cache file was raised by a pin. A failed choice's infinity was not."""
    return isinstance(ms, (float, int)) and MOST_MS <= ms < math.inf


def raise_ms(ms: float) -> float:
    """The number that stands for `ms` while a rival is pinned; failed and raised ones stay."""
    if ms == math.inf or is_raised(ms):
        return ms
    if math.isnan(ms):
        return _HIGHEST
    return min(max(ms * FACTOR, MOST_MS), _HIGHEST)


def measured_ms(ms: float) -> float:
    """The measured milliseconds that a number of a cache file stands for."""
    return ms / FACTOR if is_raised(ms) else ms


def raised(text: str) -> str:
    """`raise_ms` of a number's text."""
    ms = float(text)
    high = raise_ms(ms)
    return text if high == ms else repr(high)


def measured(text: str) -> str:
    """The text that PyTorch wrote, of a number that was raised; any other as it is."""
    ms = float(text)
    return repr(ms / FACTOR) if is_raised(ms) else text


_SCALARS = {str, int, float, bool, type(None)}
_STEP = "    "

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class Token:
    """The text of one number and where it stands."""

    text: str
    start: int
    end: int

    @property
    def value(self) -> float:
        return float(self.text)


Numbers = Mapping[str, Mapping[str, Token]]
"""The numbers of one (op, inputs): by precision, then by choice hash."""


class CacheText:
    """The content of one cache file, as text with places."""

    def __init__(self, path: Path, data: bytes) -> None:
        """Raises CacheUnreadable if `data` is not UTF-8."""
        self.path = path
        self._known: dict[int, dict[str, int]] = {}
        self._raised: list[tuple[str, str]] = []
        try:
            self.text = data.decode()
        except UnicodeDecodeError as error:
            raise CacheUnreadable(f"{path} is not UTF-8; move the file away") from error

    def find(self, op: str, inputs: str) -> Numbers:
        """The numbers of (op, inputs). Raises CacheUnreadable if the text is not JSON there.

        Of keys that occur twice in an object the last one counts, as for every reader.
        """
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
        """Each (op, inputs) with a number that a pin raised. Raises CacheUnreadable."""
        self.find("", "")
        return self._raised

    def replace(self, changes: Mapping[Token, str]) -> bytes:
        """The content with the text of each token replaced."""
        parts, last = [], 0
        for token in sorted(changes, key=lambda token: token.start):
            parts += [self.text[last : token.start], changes[token]]
            last = token.end
        return "".join([*parts, self.text[last:]]).encode()

    def _root(self) -> int:
        """Where the document begins; ValueError if it is not one object and nothing else."""
        start = self._skip_space(0)
        if start not in self._known:
            self._expect("{", start)
            document, end = _DECODER.raw_decode(self.text, start)
            if self._skip_space(end) != len(self.text):
                raise ValueError("something stands behind the document")
            tunings = walk(document.get("cache"))
            raised = ((t[0], t[1]) for t in tunings if any(map(is_raised, t[3].values())))
            self._raised = list(dict.fromkeys(raised))
        return start

    def _members(self, at: int) -> dict[str, int]:
        """Where the value of each key begins, in the object that begins at `at`."""
        if at not in self._known:
            self._known[at] = {name: start for name, start, _ in self._walk(at)}
        return self._known[at]

    def _tokens(self, at: int) -> Iterator[tuple[str, Token]]:
        for name, start, end in self._walk(at):
            text = self.text[start:end]
            if _is_number(text):
                yield name, Token(text, start, end)

    def _walk(self, at: int) -> Iterator[tuple[str, int, int]]:
        """Key, start and end of the value, for each member of the object at `at`, if it is one."""
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
    """`newer` with those choices of `older` that it lacks; `newer` itself if it lacks none.

    Where both have a number, that of `newer` counts. Written as PyTorch writes it. Raises
    CacheUnreadable if one of them is no cache.
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
    """What `json.dumps(document, indent=4)` gives. `document` holds what json parses."""
    return _object(document, "\n").encode()


def _object(value: Mapping[str, Any], line: str) -> str:
    """An object that begins anywhere and ends on a line of its own, which `line` begins."""
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
    """Let the caches of `private` say what those of `layout` say, but for pins: each number is the
    measured one. Tunings that only the copy has stay. The number of files.

    Raises UnsafePath, NotWritable and Busy; a file that is no cache is left out.
    """
    count = 0
    _make(layout, private)
    for path in cache_paths(layout):
        try:
            document = safe.load_json(path, safe.read_bytes(path))
            cache = cache_of(path, document)
        except CacheUnreadable:
            continue
        for _, _, _, timings in walk(cache):
            for hash, ms in timings.items():
                if is_raised(ms):
                    timings[hash] = measured_ms(ms)
        copy = private.autotune / path.name
        with safe.locked(private.root, copy):
            _keep_own(cache, copy)
            content = dump(document)
            if not _holds(copy, content):
                safe.write_atomic(copy, content)
        count += 1
    return count


def copy_pinned(layout: Layout, private: Layout) -> int:
    """Let `private` have the caches and the pins of `layout` as they are. The number of files.

    Raises UnsafePath, NotWritable, Busy and CacheUnreadable.
    """
    _make(layout, private)
    paths = cache_paths(layout)
    for path in (*paths, *([layout.pins] if layout.pins.exists() else [])):
        copy = private.root / path.relative_to(layout.root)
        safe.make_folder(private.root, copy.parent)
        with safe.locked(private.root, copy):
            safe.write_atomic(copy, safe.read_bytes(path))
    return len(paths)


def discard(layout: Layout, private: Layout) -> None:
    """Remove the copy `private`, a folder below `layout`, with all that was made in it."""
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
