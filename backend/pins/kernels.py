"""Pins of kernels of `@triton.autotune`: where the file of one lies, and how its text is read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from backend.cache import configs
from backend.cache.autotune import CacheText
from backend.disk import exchange
from backend.disk.layout import Layout
from backend.errors import PinRefused, brief
from backend.model.kernel import TRITON, is_of, kernel_of
from backend.model.problem import TuningKey
from backend.pins.file import Record


def text_of(path: Path, data: bytes) -> CacheText:
    """The content of a cache file of Inductor's or of Triton's. Raises CacheUnreadable."""
    return (configs.ConfigText if configs.is_file(path) else CacheText)(path, data)


def system_of(path: Path) -> str:
    """What a record calls the file: its name, of Triton's files that of the folder."""
    return path.parent.name if configs.is_file(path) else path.name


def root_of(path: Path, layout: Layout) -> Path:
    """The cache that the file lies in."""
    return path.parent.parent if configs.is_file(path) else layout.root


def path_of(record: Record) -> Path:
    """Of a Triton kernel. Raises CacheUnreadable for one that no file can have."""
    return configs.path_in(Path(record.folder), record.system_hash, kernel_of(record.inputs))


def locate(layout: Layout, records: Iterable[Record], digest: str | None, key: TuningKey) -> Path:
    """The file with the times of a kernel: in Triton's caches of this environment, or where one of
    `records`, pins that hold or were released, found it. Raises PinRefused, CacheUnreadable."""
    if digest is None or not is_of(key.inputs, digest):
        raise PinRefused(f"{brief(key.inputs, 80)} is not of a cache of Triton; pin it there")
    known = [Path(r.folder) for r in records if r.op == TRITON and r.system_hash == digest]
    folders = dict.fromkeys([*known, *configs.folders_of(layout.root)])
    paths = [configs.path_in(folder, digest, kernel_of(key.inputs)) for folder in folders]
    there = [path for path in paths if path.is_file()]
    if not there:
        raise PinRefused(
            f"{brief(key.inputs, 80)} is in no cache of Triton that is known here; set "
            "TRITON_CACHE_DIR to that of its program"
        )
    return max(there, key=lambda path: (exchange.signature_of(path) or (0, 0, 0))[1])
