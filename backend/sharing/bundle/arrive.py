"""Taking a bundle in: unpacked beside, checked to its last byte, then put in its places.

Everything is unpacked into `rocm_tui/arriving`. With the mark that it is whole, it is going to be
here: who was killed before left nothing but that folder, which the next one removes; who was killed
later left some of it in its places, and the next one puts the rest there. Each step does no harm
alone and may be done twice.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from backend.cache.autotune import cache_paths, parse_cache, read_cache
from backend.cache.fold import fold
from backend.cache.journal import Journal, Tuned, line_of
from backend.disk import safe
from backend.disk.layout import Layout
from backend.disk.safe import read_bytes
from backend.errors import BundleInvalid, NotWritable, PinRefused
from backend.pins.file import Group, find, read_pin_file
from backend.pins.held import pinned_choices
from backend.pins.store import PinStore
from backend.sharing.bundle.archive import Arrived
from backend.sharing.bundle.examine import Examined, what_becomes
from backend.sharing.bundle.manifest import Member
from backend.sharing.bundle.pack import GROUP, with_folder
from backend.sharing.bundle.parts import ELSEWHERE, PARTS, PINS, order, part_of, place_of
from backend.sharing.plan import system_for, take_in
from backend.sharing.share import Machine, Share, read_share, share_text

_FILES = "files"
_BLOCK = 4096
_LIBRARY = (".so",)


@dataclass(frozen=True, slots=True)
class Taken:
    """How many files were put in their places, tunings merged, and pins made."""

    files: int = 0
    tunings: int = 0
    pins: int = 0


def take(
    path: Path,
    found: Examined,
    layout: Layout,
    here: Machine,
    chosen: Collection[str],
    elsewhere: Path | None,
) -> Taken:
    """Take in those parts of the bundle `path` that are `chosen`; `found` is what it was examined
    to be. Raises BundleInvalid if it is another file by now, and StoreErrors."""
    safe.make_folder(layout.root, layout.home)
    with safe.locked(layout.root, layout.arriving):
        _finish(layout, elsewhere)
        try:
            _unpack(path, found, layout, here, chosen)
        except BaseException:
            shutil.rmtree(layout.arriving, ignore_errors=True)
            raise
        return _settle(layout, elsewhere)


def is_unfinished(layout: Layout) -> bool:
    """Whether a bundle was unpacked to the end here and not put in its places."""
    return layout.arrived.is_file()


def _finish(layout: Layout, elsewhere: Path | None) -> None:
    """Put in its places what a killed process had unpacked to the end; remove what it had not."""
    if is_unfinished(layout):
        _settle(layout, elsewhere)
    elif os.path.lexists(layout.arriving):
        _remove(layout)


def _unpack(
    path: Path, found: Examined, layout: Layout, here: Machine, chosen: Collection[str]
) -> None:
    folder = layout.arriving
    _check_room(found, layout, chosen)
    left_out = found.left_out() | {n for n, s in found.states.items() if s != "new"}
    with Arrived(path) as bundle, _writing(folder):
        folder.mkdir(mode=0o700)
        for member, parts in bundle.members():
            part = part_of(member.name)
            if part and part.name in chosen and part.name != "pins" and member.name not in left_out:
                _write(folder / _FILES / member.name, member, parts)
        if bundle.sha256() != found.sha256:
            raise BundleInvalid(f"{path} was changed while it was read; nothing was taken in")
        pins = [
            replace(pin, machine=replace(pin.machine, system_hash=system_for(pin, here)))
            for pin in (step.pin for step in found.steps if step.changes)
            if "pins" in chosen
        ]
        text = share_text(Share(tuple(pins), found.share.by, found.share.when))
        (folder / PINS).write_text(text)
        safe.sync_all(layout.root)
        layout.arrived.write_bytes(b"")
        safe.sync(layout.arrived)
        safe.sync(folder)


def _check_room(found: Examined, layout: Layout, chosen: Collection[str]) -> None:
    members = (m for m in found.manifest.members if (p := part_of(m.name)) and p.name in chosen)
    needed = sum(m.size + _BLOCK for m in members if found.states.get(m.name, "new") == "new")
    with _writing(layout.home):
        status = os.statvfs(layout.home)
    free = status.f_bavail * status.f_frsize
    if needed > free:
        raise NotWritable(
            f"{layout.root} has {free >> 20} MiB free, and {needed >> 20} MiB are needed; make room"
        )


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise safe.not_writable(Path(error.filename or path), error) from error


def _write(path: Path, member: Member, parts: Iterable[bytes]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = 0o755 if path.suffix in _LIBRARY else 0o644
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as stream:
        for part in parts:
            stream.write(part)


def _settle(layout: Layout, elsewhere: Path | None) -> Taken:
    """Put what was unpacked in its places. Graphs come last: older ones than a pin, of which
    cannot be told what they call, would be moved aside for it."""
    files = sorted(_unpacked(layout.arriving / _FILES), key=order)
    put = _Putting(layout, elsewhere)
    tunings = sum(_merge(layout, Path(n).name) for n in files if _is_part(n, "timings"))
    for name in files:
        if not _is_part(name, "timings") and not _is_part(name, "graphs"):
            put(name)
    pins = _pin(layout)
    for name in files:
        if _is_part(name, "graphs"):
            put(name)
    PinStore(layout).reconcile()
    _remove(layout)
    return Taken(put.count, tunings, pins)


def _is_part(name: str, part: str) -> bool:
    return part_of(name) is PARTS[part]


def _unpacked(folder: Path) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        for name in names:
            relative = os.path.relpath(Path(place, name), folder)
            if part_of(relative) is not None:
                yield relative


class _Putting:
    """Gives files their place, and looks once at each folder on the way."""

    def __init__(self, layout: Layout, elsewhere: Path | None) -> None:
        self._layout = layout
        self._elsewhere = elsewhere
        self._folders: set[Path] = set()
        self.count = 0

    def __call__(self, name: str) -> None:
        """What is there already stays. Raises UnsafePath and NotWritable."""
        place = place_of(name, self._layout, self._elsewhere)
        if place is None:
            raise NotWritable(f"{name} has no place: set {ELSEWHERE}, or leave out triton")
        target, root = place
        source = self._layout.arriving / _FILES / name
        self._make(root, target.parent)
        with _writing(target):
            if target.name.startswith(GROUP):
                data = with_folder(source.read_bytes(), target.parent)
                source.unlink()
                _write(source, Member(name, len(data), ""), (data,))
            self.count += _link(source, target)

    def _make(self, root: Path, folder: Path) -> None:
        if folder in self._folders:
            return
        if not root.exists():
            with _writing(root):
                root.mkdir(mode=0o755, parents=True)
        safe.check_folder(root, folder)
        path = root
        for name in folder.relative_to(root).parts:
            path = path / name
            ours = path.is_relative_to(self._layout.home)
            with _writing(path):
                path.mkdir(mode=0o700 if ours else 0o755, exist_ok=True)
        safe.check_folder(root, folder)
        self._folders.add(folder)


def _link(source: Path, target: Path) -> bool:
    """Whether there was nothing at `target`."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError:  # another file system, or one without links
        if os.path.lexists(target):
            return False
        temporary = safe.temporary_path(target)
        safe.remove(temporary)
        shutil.copy(source, temporary, follow_symlinks=False)
        temporary.replace(target)
    return True


def _merge(layout: Layout, system_hash: str) -> int:
    """Bring the tunings of a bundle into the cache file of that name; how many were not here.

    As every tuning of ours goes: into the journal, then folded.
    """
    path = layout.autotune / system_hash
    unpacked = layout.arriving / _FILES / layout.autotune.name / system_hash
    data = read_bytes(unpacked)
    arriving = parse_cache(unpacked, data)
    there = read_cache(path).entries if path in cache_paths(layout) else {}
    now = time.time()
    lines = [
        line_of(Tuned(key.op, key.inputs, key.precision, times, now))
        for key, times in arriving.entries.items()
        if what_becomes(there.get(key), times) != "same"
    ]
    if lines:
        Journal(layout.root, path).append(b"".join(lines))
        fold(layout.root, path, arriving.system, pinned_choices)
    return len(lines)


def _pin(layout: Layout) -> int:
    """They are undone as one, also where a kill came between them: the mark is the same then."""
    store, made, began = PinStore(layout), 0, layout.arrived.stat().st_mtime_ns
    group = Group(f"{began:x}", "unbundle", began / 1e9)
    for pin in read_share(layout.arriving / PINS).pins:
        system = pin.machine.system_hash
        old = find(read_pin_file(layout.pins).pins, system or "", pin.key)
        if old is not None and old.hash == pin.hash:
            continue
        with contextlib.suppress(PinRefused):  # what has changed since it was looked at
            take_in(store, pin, system, group)
            made += 1
    return made


def _remove(layout: Layout) -> None:
    """The mark goes first, so that what is left of a folder half removed is none to finish."""
    folder = layout.arriving
    safe.remove(layout.arrived)
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        raise NotWritable(f"cannot remove {folder}; remove it")
