"""Files that are no mega-cache, or a hostile one: read without unpickling, refused with a line."""

from __future__ import annotations

import base64
import gzip
import os
from pathlib import Path

import pytest

from backend.errors import MegaCacheInvalid
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from backend.sharing import mega_cache
from backend.sharing.mega_cache import (
    MAX_ARTIFACTS,
    Artifact,
    configurations,
    hidden_pins,
    read_mega_cache,
)
from tests.support.descriptors import open_descriptors
from tests.support.graph_lab import GRAPH, KEY, TRITON, form
from tests.support.pin_lab import make_layout
from tests.support.sharing_lab import doctor, with_checksum


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def text(value: str) -> bytes:
    data = base64.b64encode(value.encode())
    return number(len(data)) + data


def section(kind: str, *entries: tuple[str, bytes]) -> bytes:
    parts = [text(kind), number(len(entries))]
    parts += [text(key) + number(len(data)) + data for key, data in entries]
    return b"".join(parts)


ODD = {
    "empty": (b"", "too short"),
    "garbage": (b"\x80\x04" * 500, "does not begin"),
    "bundle": (gzip.compress(b"manifest.json"), "bundles were removed"),
    "version": (with_checksum(number(2)), "does not begin"),
    "checksum": (b"\0\0\0\0" + number(1) + section("inductor", ("fab", b"x")), "checksum"),
    "cut": (with_checksum(number(1) + section("inductor", ("fab", b"xyz"))[:-2]), "ends in"),
    "count": (with_checksum(number(1) + text("inductor") + number(1 << 62)), "more entries"),
    "length": (with_checksum(number(1) + number((1 << 64) - 1)), "ends in"),
    "no text": (with_checksum(number(1) + number(4) + b"\xff\xff\xff\xff"), "is not text"),
    "long name": (with_checksum(number(1) + section("x" * 500)), "too long"),
    "long key": (with_checksum(number(1) + section("a", ("k" * 6001, b""))), "too long"),
    "type": (with_checksum(number(1) + section("x" * 151)), "too long"),
    "one too many": (with_checksum(number(1) + text("a") + number(200_001)), "more entries"),
    "not one too many": (with_checksum(number(1) + text("a") + number(200_000)), "ends in"),
    "sections": (with_checksum(number(1) + section("a") * 1001), "more entries"),
}


@pytest.mark.parametrize("name", ODD)
def test_one_line_for_what_is_no_mega_cache(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, why = ODD[name]
    path = tmp_path / "odd.bin"
    descriptors = open_descriptors()
    path.write_bytes(data)
    with pytest.raises(MegaCacheInvalid, match=why) as caught:
        read_mega_cache(path)
    assert "\n" not in str(caught.value)
    assert open_descriptors() == descriptors
    code, out = doctor(capsys, path, "--cache-dir", tmp_path)
    assert code == 1 and str(caught.value) in out and len(out.splitlines()) == 2


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all calls of `os.pread` from now on."""
    sizes: list[int] = []
    pread = os.pread

    def counting(descriptor: int, size: int, offset: int) -> bytes:
        sizes.append(size)
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", counting)
    return sizes


def test_files_of_other_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo, sparse = tmp_path / "fifo", tmp_path / "sparse"
    os.mkfifo(fifo)
    with sparse.open("wb") as file:
        file.truncate(100 << 30)
    for path, why in (
        (fifo, "regular file"),
        (sparse, "bigger than 8 GiB"),
        (tmp_path, "regular file"),
        (Path("/dev/zero"), "regular file"),
        (tmp_path / "nothing", "read: No such file or directory$"),
    ):
        with pytest.raises(MegaCacheInvalid, match=why):
            read_mega_cache(path)
    with sparse.open("r+b") as file:  # small enough, and nothing but zeros
        file.truncate(7 << 30)
    read = count_reads(monkeypatch)
    with pytest.raises(MegaCacheInvalid, match="does not begin"):
        read_mega_cache(sparse)
    assert 0 < sum(read) < 100  # no checksum of the zeros
    assert MAX_ARTIFACTS < 1_000_000


def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mega.bin"
    path.write_bytes(with_checksum(number(1) + section("autotune", ("a.best_config", b"x" * 999))))
    mega = read_mega_cache(path)
    os.truncate(path, 100)
    with pytest.raises(MegaCacheInvalid, match="became shorter"):
        list(mega.contents(mega.artifacts))


def test_hostile_names_do_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "evil.bin"
    evil = "\x1b]52;c;ZXZpbA==\x07"
    entries = [
        section(f"new{evil}", (evil, b"")),
        section("autotune", ("../../../etc/x.best_config", b"{}"), ("/etc/passwd", b"{}")),
        section("inductor", ("../up", b"")),
    ]
    path.write_bytes(with_checksum(number(1) + b"".join(entries)))
    code, out = doctor(capsys, path, "--cache-dir", tmp_path)
    assert code == 1 and "\x1b" not in out and "\x07" not in out
    assert "3 names that PyTorch never gives" in out and "do not load it" in out
    assert "unknown type" in out


def saved(path: Path, *sections: bytes) -> Path:
    path.write_bytes(with_checksum(number(1) + b"".join(sections)))
    return path


def test_what_is_just_within_the_limits_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mega.bin"
    assert read_mega_cache(saved(path)).artifacts == ()
    big = b"x" * ((1 << 20) + 1)  # the checksum is computed in parts of this size
    sections = [section("x" * 150, ("k" * 6000, big), ("", b""))]
    sections += [section(f"type {n}") for n in range(999)]
    before = open_descriptors()
    mega = read_mega_cache(saved(path, *sections))
    assert (mega.path, mega.size) == (path, path.stat().st_size)
    assert [(a.type, a.key, a.size) for a in mega.artifacts] == [
        ("x" * 150, "k" * 6000, len(big)), ("x" * 150, "", 0),
    ]  # fmt: skip
    assert [data for _, data in mega.contents(mega.artifacts)] == [big, b""]
    assert open_descriptors() == before


def test_of_sections_of_one_type_the_last_is_loaded(tmp_path: Path) -> None:
    sections = [section("a", ("old", b"")), section("b", ("b", b"")), section("a", ("new", b""))]
    mega = read_mega_cache(saved(tmp_path / "mega.bin", *sections))
    assert [(a.key, a.loaded) for a in mega.artifacts] == [
        ("old", False), ("b", True), ("new", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("type", "key", "leads_out"),
    [
        ("inductor", "fabc_-1", False),
        ("inductor", "fab", True),
        ("inductor", "f" * 255, False),
        ("inductor", "f" * 256, True),
        ("aot_autograd", "../up", True),
        ("autotune", "ab/cd.best_config", False),
        ("autotune", "../cd.best_config", True),
        ("autotune", f"ab/{'c' * 200}.best_config", False),
        ("autotune", f"ab/{'c' * 201}.best_config", True),
        ("autotune", "ab/cd.best_config\n", True),
        ("pgo", "../any", False),
    ],
)
def test_which_names_pytorch_never_gives(type: str, key: str, leads_out: bool) -> None:
    assert Artifact(type, key, 0, 0).leads_out is leads_out


def test_configurations_that_are_new_the_same_or_others(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "cache")
    (layout.root / "ab").mkdir()
    names = [f"ab/{name}.best_config" for name in ("new", "same", "other", "large", "limit")]
    for name in names[1:]:
        (layout.root / name).write_bytes(b"{}")
    (layout.root / "x.best_config").write_bytes(b"{}")
    contents = b"{}", b"{}", b"[]", b"x" * ((1 << 20) + 1), b"x" * (1 << 20)
    sections = [
        section("autotune", *zip(names, contents, strict=True), ("../x.best_config", b"")),
        section("inductor", ("ab/graph.best_config", b"")),
    ]
    old = section("autotune", (names[2], b"not loaded"))
    mega = read_mega_cache(saved(tmp_path / "mega.bin", old, *sections))
    found = [(artifact.key, effect) for artifact, effect in configurations(mega, layout)]
    assert found == [
        (names[0], "new"),
        (names[1], "same"),
        (names[2], "other"),
        (names[4], "other"),
    ]


def test_a_graph_that_calls_another_choice_hides_a_pin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"mm-c1": 1.0, "triton_mm-c2": 2.0}
    layout = make_layout(tmp_path / "cache", {"mm": {KEY: {"highest": times}}})
    store, key = PinStore(layout), TuningKey("mm", KEY, "highest")
    graph, other = form(TRITON + GRAPH).encode(), form(TRITON + GRAPH, m=511).encode()
    sections = [
        section("inductor", ("fold", graph)),
        section("inductor", ("fabc", graph), ("fabd", other), ("fabe", b"no graph")),
        section("aot_autograd", ("aabc", graph)),
        section("pgo", ("pabc", graph)),
    ]
    mega = read_mega_cache(saved(tmp_path / "mega.bin", *sections))
    assert hidden_pins(mega, layout) == []
    store.pin(None, key, "triton_mm-c2")
    assert hidden_pins(mega, layout) == []
    store.pin(None, key, "mm-c1")
    hidden = hidden_pins(mega, layout)
    assert [(each.artifact.key, each.verdict) for each in hidden] == [
        ("fabc", "other"), ("aabc", "other"),
    ]  # fmt: skip
    assert {each.pin.hash for each in hidden} == {"mm-c1"}
    monkeypatch.setattr(mega_cache, "MAX_CONTENT", len(graph) - 1)
    assert hidden_pins(mega, layout) == [], "they are too big to be examined"
