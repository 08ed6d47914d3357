"""Pins of kernels of `@triton.autotune`: where the file of one lies, and how its text is read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from backend.cache import configs
from backend.cache.autotune import CacheText
from backend.disk import exchange, safe
from backend.disk.layout import Layout
from backend.errors import PinRefused, brief
from backend.model.inductor_kernel import SYSTEM
from backend.model.kernel import TRITON, is_of, kernel_of
from backend.model.problem import TuningKey
from backend.pins.best_configs import is_virtual
from backend.pins.file import Record
from backend.tables import keys
from backend.tables.keys import is_table


def text_of(path: Path, data: bytes) -> CacheText:
    """The content of a cache file of Inductor's or of Triton's. Raises CacheUnreadable."""
    return (configs.ConfigText if configs.is_file(path) else CacheText)(path, data)


def system_of(path: Path, op: str) -> str:
    """What a record calls the file: its name, of Triton's files that of the folder, and one name
    for all best configs of Inductor's; of a tuned table a digest of where it is."""
    if is_table(op):
        return keys.system_of(path)
    if is_virtual(path):
        return SYSTEM
    return path.parent.name if configs.is_file(path) else path.name


def root_of(path: Path, layout: Layout) -> Path:
    """The cache that the file lies in."""
    if configs.is_file(path):
        return path.parent.parent
    return layout.root if path.is_relative_to(layout.root) else path.parent


def check(path: Path, layout: Layout) -> None:
    """Raise StoreErrors if writing to this file, or to a table that lies anywhere, is unsafe."""
    root = root_of(path, layout)
    if root == path.parent:
        safe.check_table(path)
    else:
        safe.check_file(root, path)


def path_of(record: Record) -> Path:
    """Of a Triton kernel. Raises CacheUnreadable for one that no file can have."""
    return configs.path_in(Path(record.folder), record.system_hash, kernel_of(record.inputs))


def locate(layout: Layout, records: Iterable[Record], digest: str | None, key: TuningKey) -> Path:
    """The file with the times of a kernel: in Triton's caches of this environment, or where one of
    `records`, pins that hold or were released, found it. Raises PinRefused, CacheUnreadable."""
    if digest is None or not is_of(key.inputs, digest):
        raise PinRefused(
            f"{brief(key.inputs, 80)} is in no cache of Triton; run its program once by "
            "`rocm-tui run --cache-triton -- CMD`"
        )
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
