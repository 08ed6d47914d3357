"""Gathering the members of a bundle from a cache dir that others may be writing to.

What a pin changed leaves as it was before: numbers as they were measured, configs as they were
found. The pins themselves go along, and hold again where they arrive. Graphs that contradict a pin
stay here.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from backend.cache.autotune import cache_of, cache_paths, dump, is_raised, measured_ms, walk
from backend.cache.journal import Journal, apply, tuned_in
from backend.counted import counted
from backend.disk import safe
from backend.disk.layout import Layout
from backend.disk.safe import load_json, open_regular, read_bytes
from backend.errors import BundleInvalid, CacheUnreadable
from backend.pins.file import Record, read_pin_file
from backend.pins.state import GraphSweeper
from backend.sharing.bundle import archive, parts
from backend.sharing.bundle.manifest import MAX_MEMBERS, MAX_SIZE, Box, Manifest, Member
from backend.sharing.bundle.parts import PARTS, PINS, files_of, order, part_of
from backend.sharing.share import Share, share_text

ROUNDS = 3
"""So often it is begun anew where a file changed between being hashed and being packed."""
GROUP = "__grp__"
"""How Triton's lists of the files of a kernel begin: they name each by its whole path."""
_MOST_JSON = 8 << 20
_STRETCH = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A member before it is packed: the file that it is, or its content."""

    member: Member
    path: Path | None
    data: bytes = b""
    changed: float = 0.0


@dataclass(frozen=True, slots=True)
class Left:
    """A file that stays here, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Packed:
    """A bundle that was written: its size and SHA-256, what is in it, what is not."""

    manifest: Manifest
    size: int
    sha256: str
    left: tuple[Left, ...]


class _Changed(Exception):
    """A file is not what it was when it was hashed."""


def pack(
    layout: Layout, path: Path, share: Share, box: Box, by: str, chosen: Collection[str]
) -> Packed:
    """Write the bundle `path` of the `chosen` parts; `share` are the pins of the cache dir.

    Nothing is at `path` before it is whole. Raises CacheUnreadable, NotWritable, BundleInvalid.
    """
    for _ in range(ROUNDS):
        sources, left = _gathered(layout, share, chosen)
        manifest = Manifest(
            box=box,
            by=by,
            when=max((source.changed for source in sources), default=0.0),
            pins=tuple(sorted({pin.id for pin in share.pins})) if "pins" in chosen else (),
            members=tuple(source.member for source in sources),
        )
        if len(sources) > MAX_MEMBERS:
            many = counted(len(sources), "file is", "files are")
            raise BundleInvalid(f"{many} more than a bundle holds; prune first")
        try:
            size, digest = _written(layout.root, path, manifest, sources)
        except _Changed:
            continue
        return Packed(manifest, size, digest, tuple(left))
    raise CacheUnreadable(f"{layout.root} changes all the time; wait until nothing compiles there")


def _gathered(
    layout: Layout, share: Share, chosen: Collection[str]
) -> tuple[list[Source], list[Left]]:
    records, left = read_pin_file(layout.pins).pins, list[Left]()
    sources = []
    if "pins" in chosen and share.pins:
        sources.append(_made(PINS, share_text(share).encode(), share.when))
    if "timings" in chosen:
        sources += [_timings(layout, cache) for cache in cache_paths(layout)]
    contrary = _contrary(layout, records)
    originals = {name: held.original for r in records for name, held in r.files.items()}
    for part in PARTS.values():
        if part.name not in chosen:
            continue
        for name, path in files_of(part, layout, parts.triton_elsewhere(layout)):
            if name in contrary:
                left.append(Left(name, f"calls another choice than the pin {contrary[name]}"))
            elif _is_built(layout.root, name):
                left.append(Left(name, "a compiler is writing it; pack again"))
            elif (source := _file(name, path, originals)) is None:
                left.append(Left(name, "cannot be read, or is too big"))
            else:
                sources.append(source)
    return sorted(sources, key=lambda source: order(source.member.name)), left


def _is_built(root: Path, name: str) -> bool:
    """Whether a process of PyTorch has the library locked, which a compiler writes in place."""
    if not name.endswith((".so", ".o", ".a")) or part_of(name) is not PARTS["code"]:
        return False
    lock = root / "locks" / f"{Path(name).name.partition('.')[0]}.lock"
    try:
        with open_regular(lock) as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _contrary(layout: Layout, records: Iterable[Record]) -> dict[str, str]:
    """Graphs that contradict a pin, by name, with its id."""
    sweeper = GraphSweeper(layout)
    live = sweeper.live()
    return {e.relative: r.pin.id for r in records for e in sweeper.stale(r, live)}


def _made(name: str, data: bytes, changed: float) -> Source:
    return Source(Member(name, len(data), hashlib.sha256(data).hexdigest()), None, data, changed)


def _timings(layout: Layout, path: Path) -> Source:
    """A cache file with what its journal has besides, as it was measured."""
    document = load_json(path, read_bytes(path))
    cache = cache_of(path, document)
    for tuned in tuned_in(Journal(layout.root, path).read().lines):
        apply(cache, tuned)
    for *_, times in walk(cache):
        times.update({name: measured_ms(ms) for name, ms in times.items() if _raised(ms)})
    name = f"{layout.autotune.name}/{path.name}"
    if part_of(name) is None:
        raise CacheUnreadable(f"{path} is not called as Inductor calls such a file")
    return _made(name, dump(document), path.stat().st_mtime)


def _raised(ms: object) -> bool:
    return isinstance(ms, (int, float)) and is_raised(ms)


def _file(name: str, path: Path, originals: Mapping[str, str]) -> Source | None:
    try:
        with open_regular(path) as stream:
            status = os.fstat(stream.fileno())
            if name in originals:
                return _made(name, originals[name].encode(), status.st_mtime)
            if (data := _portable(path, stream, status.st_size)) is not None:
                return _made(name, data, status.st_mtime)
            digest, size = hashlib.sha256(), 0
            while part := stream.read(_STRETCH):
                digest.update(part)
                size += len(part)
    except OSError:
        return None
    if size > MAX_SIZE:
        return None
    return Source(Member(name, size, digest.hexdigest()), path, b"", status.st_mtime)


def _portable(path: Path, stream: IO[bytes], size: int) -> bytes | None:
    """What a file of Triton is without the folder that it lies in, or without a pin; None for one
    that can go as it is."""
    grouped = path.name.startswith(GROUP)
    if size > _MOST_JSON or not (grouped or path.name.endswith(".autotune.json")):
        return None
    data = stream.read(_MOST_JSON)
    stream.seek(0)
    try:
        document: Any = json.loads(data)
        changed = _without_folder(document, path.parent) if grouped else _as_measured(document)
    except (ValueError, RecursionError, TypeError, AttributeError, LookupError):
        return None
    return json.dumps(document).encode() if changed else None


def _without_folder(document: dict[str, Any], folder: Path) -> bool:
    children = document["child_paths"]
    if not all(Path(place).parent == folder for place in children.values()):
        return False
    children.update({name: Path(place).name for name, place in children.items()})
    return True


def with_folder(data: bytes, folder: Path) -> bytes:
    """A list of files of a kernel that lies in `folder` now, as Triton looks for them."""
    try:
        document: Any = json.loads(data)
        children = document["child_paths"]
        bare = all("/" not in place and place not in ("", "..") for place in children.values())
        if bare:
            children.update({name: str(folder / place) for name, place in children.items()})
    except (ValueError, RecursionError, TypeError, AttributeError, LookupError):
        return data
    return json.dumps(document).encode() if bare else data


def _as_measured(document: dict[str, Any]) -> bool:
    changed = False
    for _, times in document["configs_timings"]:
        if is_raised(times[0]):
            times[0], changed = measured_ms(times[0]), True
    return changed


def _written(
    root: Path, path: Path, manifest: Manifest, sources: Iterable[Source]
) -> tuple[int, str]:
    """Size and SHA-256 of what was written. Raises _Changed and NotWritable."""
    by_name = {source.member.name: source for source in sources}
    temporary = safe.temporary_path(path)
    safe.remove(temporary)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o644), "w+b") as stream:
            hashed = _Hashing(stream)
            archive.write(hashed, manifest, lambda member: _content(root, by_name[member.name]))
            stream.flush()
            os.fsync(stream.fileno())
            size = stream.tell()
        temporary.replace(path)
    except OSError as error:
        raise safe.not_writable(path, error) from error
    finally:
        safe.remove(temporary)
    safe.sync(path.parent)
    return size, hashed.digest.hexdigest()


class _Hashing(io.RawIOBase):
    """Hashes what is written to a stream."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._stream.write(data)


def _content(root: Path, source: Source) -> Iterator[bytes]:
    if source.path is None:
        yield source.data
        return
    digest, left = hashlib.sha256(), source.member.size
    try:
        with open_regular(source.path) as stream:
            while left and (part := stream.read(min(left, _STRETCH))):
                digest.update(part)
                left -= len(part)
                yield part
            more = stream.read(1)
    except OSError as error:
        raise _Changed from error
    same = not (left or more) and digest.hexdigest() == source.member.sha256
    if not same or _is_built(root, source.member.name):
        raise _Changed
