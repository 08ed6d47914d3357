"""Private copies of the autotune caches, for trials that must not change the user's files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.cache.autotune import copy_pinned, copy_unpinned, discard, raise_ms
from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, UnsafePath
from backend.pins.store import PinStore
from tests.support.pin_lab import KEY, TIMES, cache_file, make_layout, read, states, times, write
from tests.support.store_disks import make_stale

Copy = Callable[[Layout, Layout], int]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A cache dir in which `Cpp-c2` is pinned."""
    layout = make_layout(tmp_path / "cache")
    PinStore(layout).pin(None, KEY, "Cpp-c2")
    return layout


def private_of(layout: Layout) -> Layout:
    return Layout(layout.root / "rocm_tui" / "trial")


def test_a_pinned_copy_has_the_same_pins_and_numbers(layout: Layout) -> None:
    private = private_of(layout)
    assert copy_pinned(layout, private) == 1
    assert cache_file(private).read_bytes() == cache_file(layout).read_bytes()
    assert private.pins.read_bytes() == layout.pins.read_bytes()
    assert states(PinStore(private)) == ["active"]


def test_a_pinned_copy_follows_the_original(layout: Layout) -> None:
    private = private_of(layout)
    copy_pinned(layout, private)
    PinStore(layout).unpin(KEY)
    copy_pinned(layout, private)
    assert times(private) == TIMES and states(PinStore(private)) == []


def test_a_cache_dir_without_pins_is_copied_as_well(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "cache")
    copy_pinned(layout, private_of(layout))
    assert times(private_of(layout)) == TIMES and not private_of(layout).pins.exists()


@pytest.mark.parametrize("copy", [copy_pinned, copy_unpinned])
def test_a_folder_that_others_can_write_gets_no_copy(layout: Layout, copy: Copy) -> None:
    shared = layout.root / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(UnsafePath, match="shared"):
        copy(layout, Layout(shared / "trial"))
    assert list(shared.iterdir()) == []


def test_an_unpinned_copy_has_the_measured_numbers(layout: Layout) -> None:
    private = private_of(layout)
    assert times(layout)["mm-c1"] == raise_ms(TIMES["mm-c1"])
    assert copy_unpinned(layout, private) == 1
    assert times(private) == TIMES and times(private, "high") == {"mm-c1": 3.0, "Cpp-c2": 1.0}
    assert not private.pins.exists()


def test_a_number_that_no_pin_raised_is_no_time_in_an_unpinned_copy(layout: Layout) -> None:
    cache = read(layout)
    cache["bmm"] = {"[x]": {"highest": {"slow": 2.0, "odd": 1e12, "huge": 10**400}}}
    write(layout, cache)
    copy_unpinned(layout, private_of(layout))
    assert read(private_of(layout))["bmm"] == cache["bmm"]
    assert times(private_of(layout)) == TIMES


def test_an_unpinned_copy_keeps_its_own_tunings_and_drops_its_own_numbers(layout: Layout) -> None:
    private = private_of(layout)
    copy_unpinned(layout, private)
    cache = read(private)
    cache["mm"][KEY.inputs]["highest"]["mm-c1"] = 9.0
    cache["bmm"] = {"[own]": {"highest": {"bmm-c4": 4.0}}}
    write(private, cache)
    copy_unpinned(layout, private)
    assert times(private) == TIMES
    assert read(private)["bmm"] == {"[own]": {"highest": {"bmm-c4": 4.0}}}


def test_an_unchanged_copy_is_not_written_again(layout: Layout) -> None:
    private = private_of(layout)
    copy_unpinned(layout, private)
    before = cache_file(private).stat()
    copy_unpinned(layout, private)
    after = cache_file(private).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_file_that_is_no_cache_is_left_out_of_an_unpinned_copy(layout: Layout) -> None:
    (layout.autotune / "torn").write_bytes(b'{"cache": ')
    private = private_of(layout)
    assert copy_unpinned(layout, private) == 1
    assert [path.name for path in private.autotune.iterdir()] == ["hash"]


@pytest.mark.parametrize("path", ["cache/hash", "cache", "rocm_tui/pins.json"])
def test_no_unpinned_copy_is_made_of_what_cannot_be_read(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    make_stale(monkeypatch, layout.root / path)
    with pytest.raises(CacheUnreadable, match=f"{path}: Stale file handle"):
        copy_unpinned(layout, private_of(layout))
    assert list(private_of(layout).autotune.iterdir()) == []


def test_a_damaged_copy_is_replaced(layout: Layout) -> None:
    private = private_of(layout)
    copy_unpinned(layout, private)
    cache_file(private).write_bytes(b"{torn")
    copy_unpinned(layout, private)
    assert times(private) == TIMES


def test_discarding_a_copy_leaves_the_original(layout: Layout) -> None:
    private = private_of(layout)
    copy_pinned(layout, private)
    before = json.loads(cache_file(layout).read_bytes())
    discard(layout, private)
    assert not private.root.exists()
    assert json.loads(cache_file(layout).read_bytes()) == before


@pytest.mark.parametrize("copy", [copy_pinned, copy_unpinned])
def test_a_copy_is_written_once_nobody_else_holds_its_lock(layout: Layout, copy: Copy) -> None:
    private = private_of(layout)
    copy(layout, private)
    write(private, {})
    before = cache_file(private).read_bytes()
    again = threading.Thread(target=copy, args=(layout, private), daemon=True)
    with safe.locked(private.root, cache_file(private)):
        again.start()
        again.join(0.5)
        assert cache_file(private).read_bytes() == before
    again.join(20)
    assert times(private)["Cpp-c2"] == TIMES["Cpp-c2"]


def test_no_folder_behind_a_symlink_is_discarded(layout: Layout, tmp_path: Path) -> None:
    kept = tmp_path / "elsewhere" / "trial" / "results"
    kept.parent.mkdir(parents=True)
    kept.write_text("of somebody else")
    (layout.root / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePath):
        discard(layout, Layout(layout.root / "link" / "trial"))
    assert kept.exists()
