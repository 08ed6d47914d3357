"""A cache dir that travels in a bundle: what goes along, and what it meets where it
arrives."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tarfile
import traceback
from pathlib import Path

import pytest
from filelock import FileLock

from backend.cache.autotune import raise_ms, read_cache
from backend.cache.journal import Journal, Tuned, line_of
from backend.disk.layout import Layout
from backend.errors import BundleInvalid, UnsafePath
from backend.model.problem import TuningKey
from backend.pins.file import HeldText, Record, read_pin_file
from backend.pins.store import PinStore
from backend.sharing.bundle.arrive import take
from backend.sharing.bundle.examine import examine
from backend.sharing.bundle.parts import part_of
from tests.support.bundle_lab import (
    ALL,
    CODE,
    CONFIG,
    FILES,
    FOLDER,
    GRAPH,
    GROUP,
    HERE,
    LIBRARY,
    PIN,
    TEMPLATE,
    TRITON,
    looked_at,
    packed,
    placed,
    taken,
)
from tests.support.pin_lab import KEY, TIMES, make_layout, times, write


@pytest.fixture
def here(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "here")


def test_it_arrives_whole(there: Layout, here: Layout, path: Path) -> None:
    bundle = packed(there, path)
    assert sorted(m.name for m in bundle.manifest.members) == sorted([*FILES, GROUP, "cache/hash"])
    assert (bundle.size, bundle.left) == (path.stat().st_size, ())
    done = taken(path, here)
    assert (done.files, done.tunings, done.pins) == (len(FILES) + 1, 2, 0)
    assert {name: placed(here)[name] for name in FILES} == FILES
    assert placed(here).keys() == {*FILES, GROUP, "cache/hash"}
    assert read_cache(here.autotune / "hash").entries == read_cache(there.autotune / "hash").entries
    modes = {name: stat.S_IMODE((here.root / name).stat().st_mode) for name in FILES}
    assert modes[LIBRARY] == modes[TEMPLATE] == 0o755 and modes[GRAPH] == 0o644
    assert stat.S_IMODE((here.root / TEMPLATE).parent.stat().st_mode) == 0o700
    again = taken(path, here)
    assert (again.files, again.tunings) == (0, 0) and not here.arriving.exists()


def test_triton_finds_its_kernels_in_another_place(there: Layout, here: Layout, path: Path) -> None:
    packed(there, path)
    taken(path, here)
    group = json.loads((here.root / GROUP).read_text())
    assert group == {"child_paths": {"kernel.hsaco": str(here.root / TRITON)}}
    assert looked_at(path, here).states[GROUP] == "same"


def test_the_same_files_give_the_same_bytes(there: Layout, tmp_path: Path) -> None:
    shutil.copytree(there.root, tmp_path / "copy", symlinks=True)
    for name in ("copy/triton/0", "there/triton/0"):
        text = next((tmp_path / name).glob("*/__grp__*")).read_text()
        assert "/there/" in text
    group = tmp_path / "copy" / GROUP
    when = group.stat()
    group.write_text(group.read_text().replace("/there/", "/copy/"))
    os.utime(group, ns=(when.st_atime_ns, when.st_mtime_ns))
    one, two = tmp_path / "one", tmp_path / "two"
    digests = {packed(there, one).sha256, packed(Layout(tmp_path / "copy"), two).sha256}
    assert len(digests) == 1 and one.read_bytes() == two.read_bytes()


def test_parts_can_be_left_out(there: Layout, here: Layout, path: Path) -> None:
    few = frozenset({"timings", "configs"})
    assert {m.name for m in packed(there, path, (), few).manifest.members} == {"cache/hash", CONFIG}
    packed(there, path)
    taken(path, here, few)
    assert placed(here).keys() == {"cache/hash", CONFIG}


def test_pins_hold_again_and_can_be_taken_back(there: Layout, here: Layout, path: Path) -> None:
    """The times go along as they were measured, not as the pin holds them."""
    before = read_cache(there.autotune / "hash").entries
    PinStore(there).pin("hash", KEY, "Cpp-c2")
    packed(there, path, (PIN,))
    (step,) = looked_at(path, here).steps
    assert (step.action, step.detail) == ("pin", "its times come with it")
    assert taken(path, here).pins == 1
    (status,) = PinStore(here).status()
    assert status.state == "active" and "from another host, pinned 2023" in status.pin.note
    assert times(here)["mm-c1"] > 1e7 and times(here)["Cpp-c2"] == TIMES["Cpp-c2"]
    assert taken(path, here).pins == 0 and len(PinStore(here).history()) == 1
    assert (group := PinStore(here).history()[0].group) and group.command == "unbundle"
    PinStore(here).unpin(KEY)
    assert read_cache(here.autotune / "hash").entries == before


def test_another_pin_is_replaced_and_named(there: Layout, here: Layout, path: Path) -> None:
    packed(there, path, (PIN,))
    make_layout(here.root)
    PinStore(here).pin("hash", KEY, "mm-c1", label="the other")
    (step,) = looked_at(path, here).steps
    assert step.action == "replace" and "instead of the other" in step.detail
    taken(path, here)
    assert [pin.hash for pin in PinStore(here).pins()] == ["Cpp-c2"]


def test_times_of_two_cards_are_not_mixed(there: Layout, here: Layout, path: Path) -> None:
    """A set with more choices replaces ours as a whole; what we have whole stays."""
    one, two = KEY.inputs, KEY.inputs.replace("4, 8", "16, 8")
    write(there, {"mm": {one: {"h": {"a": 1.0, "b": 2.0}}, two: {"h": {"a": 3.0}}}})
    make_layout(here.root, {"mm": {one: {"h": {"a": 9.0}}, two: {"h": {"a": 5.0, "b": 6.0}}}})
    packed(there, path)
    (told,) = looked_at(path, here).timings
    assert (told.new, told.wider, told.same) == (0, 1, 1)
    taken(path, here)
    entries = read_cache(here.autotune / "hash").entries
    assert entries[TuningKey("mm", one, "h")] == {"a": 1.0, "b": 2.0}
    assert entries[TuningKey("mm", two, "h")] == {"a": 5.0, "b": 6.0}


def test_what_is_here_stays(there: Layout, here: Layout, path: Path) -> None:
    packed(there, path)
    (here.root / CODE).parent.mkdir(parents=True)
    (here.root / CODE).write_text("ours")
    (here.root / LIBRARY).symlink_to("/etc/hostname")
    found = looked_at(path, here)
    assert found.states[CODE] == found.states[LIBRARY] == "kept" and found.states[GRAPH] == "new"
    taken(path, here)
    assert (here.root / CODE).read_text() == "ours" and (here.root / LIBRARY).is_symlink()


def test_a_folder_that_leads_elsewhere(
    there: Layout, here: Layout, path: Path, tmp_path: Path
) -> None:
    packed(there, path)
    here.root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (here.root / "fxgraph").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePath, match="symlink"):
        taken(path, here)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_another_file_than_was_looked_at(there: Layout, here: Layout, path: Path) -> None:
    packed(there, path)
    found = looked_at(path, here)
    (there.root / CODE).write_text("print(2)")
    packed(there, path)
    with pytest.raises(BundleInvalid, match="was changed while it was read"):
        take(path, found, here, HERE, ALL, None)
    assert placed(here) == {} and not here.arriving.exists()


def test_a_cache_of_triton_elsewhere(
    there: Layout, here: Layout, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.move(there.root / "triton" / "0", tmp_path / "cache of triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache of triton"))
    names = {m.name for m in packed(there, path).manifest.members}
    name = "TRITON_CACHE_DIR/" + TRITON.removeprefix("triton/0/")
    assert name in names
    assert looked_at(path, here).states[name] == "nowhere"
    place = tmp_path / "another"
    found = examine(path, here, HERE, ALL, place)
    assert found.states[name] == "new"
    take(path, found, here, HERE, ALL, place)
    assert (place / name.partition("/")[2]).read_bytes() == FILES[TRITON]


def test_what_is_in_the_journal_goes_along(there: Layout, here: Layout, path: Path) -> None:
    tuned = Tuned("bmm", "[new]", "highest", {"bmm-c9": 4.5}, 1.7e9)
    Journal(there.root, there.autotune / "hash").append(line_of(tuned))
    packed(there, path)
    taken(path, here)
    entries = read_cache(here.autotune / "hash").entries
    assert entries[TuningKey("bmm", "[new]", "highest")] == {"bmm-c9": 4.5}


def test_files_that_a_pin_holds_go_as_they_were(there: Layout, path: Path) -> None:
    held = HeldText(original='{"XBLOCK": 32}', written='{"XBLOCK": 64}')
    file = read_pin_file(there.pins)
    file.put(Record("inductor", "k", "", "h", "h", "hash", {}, files={CONFIG: held}))
    there.home.mkdir(exist_ok=True)
    file.save()
    config = {"kwargs": {"BLOCK": 64}, "num_warps": 4}
    times = {"key": [], "configs_timings": [[config, [raise_ms(2.0), 2.5, 3.0]]]}
    pinned = there.root / "triton" / "0" / FOLDER / "k.autotune.json"
    pinned.write_text(json.dumps(times))
    packed(there, path)
    with tarfile.open(path) as tar:
        configs, autotuned = (
            (stream := tar.extractfile(name)) and stream.read()
            for name in (CONFIG, f"triton/0/{FOLDER}/k.autotune.json")
        )
    assert configs == held.original.encode()
    assert autotuned and json.loads(autotuned)["configs_timings"][0][1] == [2.0, 2.5, 3.0]


def test_a_library_that_a_compiler_is_writing_stays(there: Layout, path: Path) -> None:
    (there.root / LIBRARY.removesuffix(".main.so")).with_suffix(".so").write_bytes(b"half of one")
    lock = there.root / "locks" / f"{Path(LIBRARY).name.partition('.')[0]}.lock"
    with FileLock(lock):
        bundle = packed(there, path)
    assert [left.why for left in bundle.left] == ["a compiler is writing it; pack again"] * 2
    assert LIBRARY not in {m.name for m in bundle.manifest.members}
    assert packed(there, path).left == ()


def test_several_at_once(there: Layout, here: Layout, path: Path) -> None:
    """As the ranks of a node would: each is told that all is there."""
    packed(there, path, (PIN,))
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                taken(path, here)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert {name: placed(here)[name] for name in FILES} == FILES and not here.arriving.exists()
    assert [s.state for s in PinStore(here).status()] == ["active"]
    assert [entry.what for entry in PinStore(here).history()] == ["pin"]


@pytest.mark.parametrize("name", sorted({*FILES, GROUP} - {CONFIG}))
def test_what_is_run_once_it_has_arrived_is_a_program(name: str) -> None:
    """`unbundle` takes programs only with the digest that the sender said."""
    part = part_of(name)
    assert part is not None and part.program


@pytest.mark.parametrize("name", ["pins.json", "cache/hash", CONFIG])
def test_data_is_no_program(name: str) -> None:
    part = part_of(name)
    assert part is not None and not part.program
