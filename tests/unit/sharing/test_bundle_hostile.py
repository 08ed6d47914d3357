"""Bundles that nobody should take in: each is one line, and nothing is written."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.errors import BundleInvalid, ShareInvalid, StoreError
from backend.sharing.bundle import archive
from tests.support.bundle_lab import (
    CODE,
    GRAPH,
    entry,
    looked_at,
    lying,
    made,
    manifest,
    member,
    opening,
    packed,
    raw,
    taken,
    tree,
)

END = bytes(1024)
DATA = b"print(1)\n"
ONE = member(CODE, DATA)


def of_names(*names: str) -> bytes:
    """A bundle that is right but for the names of its members."""
    members = [member(name, DATA) for name in names]
    blocks = [entry(name, DATA) if name.isascii() else b"" for name in names]
    return raw([opening(manifest(members)), *blocks, END])


def of_header(change: Callable[[tarfile.TarInfo], object]) -> bytes:
    """One whose tar says something else of its member than its manifest does."""
    info = tarfile.TarInfo(CODE)
    info.size, info.mode = len(DATA), 0o644
    change(info)
    head = info.tobuf(tarfile.GNU_FORMAT)
    return raw([opening(manifest([ONE])), head, DATA, archive.padding(len(DATA)), END])


def kind(type: bytes, leads_to: str = "") -> bytes:
    def change(info: tarfile.TarInfo) -> None:
        info.type, info.linkname = type, leads_to

    return of_header(change)


def text_of(manifest: bytes) -> bytes:
    return raw([entry("manifest.json", manifest), END])


GOOD = raw([opening(manifest([ONE])), entry(CODE, DATA), END])
NO_NAME = "is no name of a file"
NOT_IT = "in the place of"

ODD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "it ends too early"),
    "no gzip": (b"PK\x03\x04" * 300, "not compressed as one"),
    "zeros": (raw([bytes(4096)]), "does not begin as one"),
    "another tar": (raw([entry(CODE, DATA), END]), "does not begin as one"),
    "absolute": (of_names("/etc/passwd"), NO_NAME),
    "upwards": (of_names("ab/../../x.py"), NO_NAME),
    "upwards in a part": (of_names("triton/0/ABCDEFGH/../../x.so"), NO_NAME),
    "a folder of ours": (of_names("rocm_tui/pins.json"), NO_NAME),
    "a lock": (of_names("rocm_tui/locks/x.lock"), NO_NAME),
    "hidden": (of_names("ab/.x.py"), NO_NAME),
    "escape codes": (of_names("ab/\x1b]52;c;ZXZpbA==\x07.py"), NO_NAME),
    "half a character": (of_names("ab/\udcff.py"), NO_NAME),
    "not ASCII": (of_names("ab/ü.py"), NO_NAME),
    "line end": (of_names(f"{CODE}\n"), NO_NAME),
    "twice": (of_names(CODE, CODE), "twice or out of its order"),
    "out of order": (of_names(CODE, GRAPH), "twice or out of its order"),
    "symlink": (kind(tarfile.SYMTYPE, "/etc/passwd"), NOT_IT),
    "hard link": (kind(tarfile.LNKTYPE, "manifest.json"), NOT_IT),
    "device": (kind(tarfile.CHRTYPE), NOT_IT),
    "pipe": (kind(tarfile.FIFOTYPE), NOT_IT),
    "folder": (kind(tarfile.DIRTYPE), NOT_IT),
    "sparse": (kind(tarfile.GNUTYPE_SPARSE), NOT_IT),
    "setuid": (of_header(lambda info: setattr(info, "mode", 0o4755)), NOT_IT),
    "owner": (of_header(lambda info: setattr(info, "uid", 1000)), NOT_IT),
    "another name": (of_header(lambda info: setattr(info, "name", "../x")), NOT_IT),
    "size in the tar": (of_header(lambda info: setattr(info, "size", 5)), NOT_IT),
    "size in both": (
        raw([opening(manifest([lying(ONE, size=4096)])), archive.header(CODE, 4096), DATA, END]),
        "too early",
    ),
    "digest": (
        raw([opening(manifest([lying(ONE, sha256="0" * 64)])), entry(CODE, DATA), END]),
        "is not what its manifest says",
    ),
    "no digest": (raw([opening(manifest([lying(ONE, sha256="x")])), END]), "is no SHA-256"),
    "negative size": (raw([opening(manifest([lying(ONE, size=-1)])), END]), "is no number from 0"),
    "a bomb": (
        raw([opening(manifest([lying(ONE, size=1 << 32)])), archive.header(CODE, 1 << 32), END]),
        "far too much",
    ),
    "huge manifest": (
        raw([archive.header("manifest.json", 65 << 20), bytes(65 << 20)]),
        "does not begin as one",
    ),
    "deep manifest": (text_of(b"[" * 100_000), "not strict JSON"),
    "many members": (text_of(b'{"members": 1}'), "its manifest"),
    "another format": (text_of(b'{"format": "zip"}'), "is not 'rocm-tui bundle'"),
    "one more": (
        raw([opening(manifest([ONE])), entry(CODE, DATA), entry("ab/x.py", DATA), END]),
        "more follows",
    ),
    "one less": (raw([opening(manifest([ONE])), END]), NOT_IT),
    "no end": (raw([opening(manifest([ONE])), entry(CODE, DATA)]), "too early"),
    "more behind": (GOOD + b"x", "not compressed as one"),
    "another behind": (GOOD + GOOD, "more follows"),
    "padding": (
        raw([opening(manifest([ONE])), entry(CODE, DATA)[:-1] + b"x", END]),
        "is not what its manifest says",
    ),
    "no pins": (of_names("pins.json"), "pins.json"),
    "no timings": (of_names("cache/hash"), "is no bundle to take in"),
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    return made(tmp_path_factory.mktemp("here") / "cache")


@pytest.mark.parametrize("name", ODD)
def test_one_line_and_nothing_is_written(name: str, here: Layout, tmp_path: Path) -> None:
    data, why = ODD[name]
    path = tmp_path / "odd.tar.gz"
    path.write_bytes(data)
    before = tree(here.root)
    with pytest.raises((BundleInvalid, ShareInvalid), match=why) as caught:
        taken(path, here)
    said = str(caught.value)
    assert "\n" not in said and said.isprintable() and len(said) < 500
    assert tree(here.root) == before and not here.arriving.exists()


def test_the_good_one_is_good(here: Layout, tmp_path: Path) -> None:
    path = tmp_path / "good.tar.gz"
    path.write_bytes(GOOD)
    assert looked_at(path, here).states == {CODE: "same"}


def test_cut_and_mutated(tmp_path: Path) -> None:
    """At any byte: refused; or taken, where the stream says the same otherwise (zeros that are
    copied from further back are zeros)."""
    layout, path = made(tmp_path / "a"), tmp_path / "b.tar.gz"
    packed(layout, path)
    data, draw = path.read_bytes(), random.Random(0)
    there = looked_at(path, layout).manifest
    taken = 0
    for _ in range(150):
        at = draw.randrange(10, len(data))
        changed = bytearray(data)
        changed[at] ^= 1 << draw.randrange(8)
        path.write_bytes(data[:at] if draw.random() < 0.3 else bytes(changed))
        try:
            assert looked_at(path, layout).manifest == there
        except StoreError:
            continue
        assert gzip.decompress(path.read_bytes()) == gzip.decompress(data)
        taken += 1
    assert taken < 5
    path.write_bytes(data)
    assert looked_at(path, layout).manifest == there


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB of zeros behind a manifest that does not name them."""
    path = tmp_path / "bomb.tar.gz"
    zeros = zlib.compressobj(9, wbits=31)
    packed_zeros = b"".join(zeros.compress(bytes(1 << 20)) for _ in range(64)) + zeros.flush()
    path.write_bytes(GOOD + packed_zeros)
    unpacked = 0
    read = gzip.GzipFile.read

    def counted(file: gzip.GzipFile, size: int | None = -1) -> bytes:
        nonlocal unpacked
        data = read(file, size)
        unpacked += len(data)
        return data

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    with pytest.raises(BundleInvalid, match="more follows"):
        looked_at(path, Layout(tmp_path / "none"))
    assert 0 < unpacked < 1 << 20


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero"), tmp_path / "missing"):
        with pytest.raises(BundleInvalid, match=r"regular file|No such file"):
            looked_at(path, Layout(tmp_path / "none"))


def test_it_is_a_tar_that_others_can_list(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    there = packed(made(tmp_path / "a"), path).manifest
    with gzip.open(path) as stream, tarfile.open(fileobj=io.BytesIO(stream.read())) as tar:
        infos = tar.getmembers()
    assert [info.name for info in infos] == ["manifest.json", *(m.name for m in there.members)]
    assert all(info.isfile() and info.mtime == 0 and info.uid == 0 for info in infos)
