"""Cache dirs to bundle, and bundles that nobody should take in."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
from collections.abc import Collection, Iterable
from pathlib import Path

from backend.disk.layout import Layout
from backend.sharing.bundle import archive
from backend.sharing.bundle.arrive import Taken, take
from backend.sharing.bundle.examine import Examined, examine
from backend.sharing.bundle.manifest import Box, Manifest, Member, manifest_text
from backend.sharing.bundle.pack import Packed, pack
from backend.sharing.bundle.parts import PARTS
from backend.sharing.share import Machine, Share, SharedPin
from tests.support.pin_lab import KEY as PINNED
from tests.support.pin_lab import TIMES, make_layout

HERE = Machine(arch="AVX512", device="cpu", torch="2.13.0+cpu", system_hash="hash")
BOX = Box(HERE, "ab" * 32, "cp311", "x86_64", ("avx2", "avx512f"))
ALL = frozenset(PARTS)

KEY = "f" + "a" * 51
GRAPH = f"fxgraph/aa/{KEY}/{KEY}"
CODE = f"ab/c{'b' * 51}.py"
LIBRARY = f"ab/c{'b' * 51}.main.so"
CONFIG = f"ab/{'c' * 64}.best_config"
FOLDER = "A" * 52
TRITON = f"triton/0/{FOLDER}/kernel.hsaco"
GROUP = f"triton/0/{FOLDER}/__grp__kernel.json"
TEMPLATE = f"rocm_tui/code/ab/ab{'0' * 30}.so"

FILES = {
    GRAPH: b"\x80\x04graph",
    CODE: b"print(1)\n",
    LIBRARY: b"\x7fELF library",
    CONFIG: b'{"XBLOCK": 64}',
    TRITON: b"hsaco",
    TEMPLATE: b"\x7fELF template",
}


def made(root: Path) -> Layout:
    """A cache dir with a file of each part, and some that no bundle takes."""
    layout = make_layout(root)
    others = {"locks/a.lock": b"", f"{CODE}.lock": b"", "ab/.hidden.py": b"x", "rocm_tui/x": b""}
    for name, data in {**FILES, **others}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    group = {"child_paths": {"kernel.hsaco": str(root / TRITON)}}
    (root / GROUP).write_text(json.dumps(group))
    (root / "ab" / f"c{'d' * 51}.py").symlink_to(root / CODE)
    return layout


def packed(
    layout: Layout, path: Path, pins: tuple[SharedPin, ...] = (), parts: Collection[str] = ALL
) -> Packed:
    return pack(layout, path, Share(pins, "jane@gpu7", 1.7e9), BOX, "jane@gpu7", parts)


def looked_at(path: Path, layout: Layout, parts: Collection[str] = ALL) -> Examined:
    return examine(path, layout, HERE, parts, None)


def taken(path: Path, layout: Layout, parts: Collection[str] = ALL) -> Taken:
    return take(path, looked_at(path, layout, parts), layout, HERE, parts, None)


def tree(root: Path) -> dict[str, bytes]:
    """Every file that lies below a folder, but for our locks."""
    paths = [path for path in root.rglob("*") if path.is_file()]
    found = {str(path.relative_to(root)): path.read_bytes() for path in paths}
    return {name: data for name, data in found.items() if not name.startswith("rocm_tui/locks/")}


def member(name: str, data: bytes) -> Member:
    return Member(name, len(data), hashlib.sha256(data).hexdigest())


def manifest(members: Iterable[Member]) -> Manifest:
    return Manifest(BOX, "jane", 1.7e9, (), tuple(members))


def raw(parts: Iterable[bytes]) -> bytes:
    """A file of these blocks."""
    return gzip.compress(b"".join(parts), 6, mtime=0)


def opening(told: Manifest) -> bytes:
    """The manifest as a member, whatever it says."""
    return entry("manifest.json", manifest_text(told))


def entry(name: str, data: bytes) -> bytes:
    return archive.header(name, len(data)) + data + archive.padding(len(data))


def lying(one: Member, **changes: object) -> Member:
    return dataclasses.replace(one, **changes)  # type: ignore[arg-type]


PIN = SharedPin(
    PINNED.op, PINNED.inputs, PINNED.precision, "Cpp-c2", "cpp_2", HERE, {},
    {"highest": dict(TIMES)}, who="jane@gpu7", when=1.7e9,
)  # fmt: skip


def placed(layout: Layout) -> dict[str, bytes]:
    """What is in its places: neither our journal nor what is on its way."""
    ours = ("rocm_tui/tuned/", "rocm_tui/arriving/", "rocm_tui/pins.json")
    return {name: data for name, data in tree(layout.root).items() if not name.startswith(ours)}
