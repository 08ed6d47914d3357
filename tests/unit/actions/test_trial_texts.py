"""The text of a captured graph, agreed to once, and the private cache that a trial runs in."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from backend.cache.autotune import FACTOR
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable
from backend.pins.store import PinStore
from rocm_tui.actions.trial import (
    NotTried,
    accept,
    accepted_path,
    is_accepted,
    private_cache,
    text_of,
)
from tests.support.pin_lab import KEY, cache_file, make_layout, read, times, write
from tests.support.store_disks import make_stale

# Its text


def captured(layout: Layout, text: str = "class Repro: ...\n", id: str = "abcdef0") -> None:
    layout.graphs.mkdir(parents=True, exist_ok=True)
    (layout.graphs / f"{id}.py").write_text(text)


def test_a_text_is_agreed_to_once_and_again_when_it_changes(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    captured(layout)
    text = text_of(layout, "abcdef0")
    assert not is_accepted(layout, text)
    accept(layout, text)
    assert is_accepted(layout, text_of(layout, "abcdef0"))
    captured(layout, "class Repro: other\n")
    assert not is_accepted(layout, text_of(layout, "abcdef0"))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"accepted": [1]}', '{"accepted": {"a": []}}']
)
def test_a_spoiled_file_of_agreements_agrees_to_nothing(tmp_path: Path, content: str) -> None:
    layout = Layout(tmp_path)
    captured(layout)
    accepted_path(layout).write_text(content)
    text = text_of(layout, "abcdef0")
    assert not is_accepted(layout, text)
    accept(layout, text)
    assert is_accepted(layout, text)


def test_agreements_that_cannot_be_read_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path)
    captured(layout)
    text = text_of(layout, "abcdef0")
    accept(layout, text)
    with monkeypatch.context() as broken:
        make_stale(broken, accepted_path(layout))
        with pytest.raises(CacheUnreadable, match=r"accepted\.json: Stale file handle"):
            accept(layout, replace(text, data=b"# another"))
    assert is_accepted(layout, text)


def test_where_others_can_write_nothing_is_agreed_to(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    captured(layout)
    text = text_of(layout, "abcdef0")
    accept(layout, text)
    layout.graphs.chmod(0o777)
    assert not is_accepted(layout, text)


@pytest.mark.parametrize("id", ["../abcdef0", "a/b", "", "é"])
def test_an_id_is_no_path(tmp_path: Path, id: str) -> None:
    with pytest.raises(NotTried, match="is no id of a graph"):
        text_of(Layout(tmp_path), id)


def test_a_text_that_is_not_there_or_no_file(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(NotTried, match="is not kept"):
        text_of(layout, "abcdef0")
    layout.graphs.mkdir(parents=True)
    os.mkfifo(layout.graphs / "abcdef0.py")
    with pytest.raises(NotTried, match="not a regular file"):
        text_of(layout, "abcdef0")
    (layout.graphs / "abcdef1.py").symlink_to("/etc/passwd")
    with pytest.raises(NotTried, match="cannot read"):
        text_of(layout, "abcdef1")


# The private caches


def test_the_private_cache_has_the_measured_numbers_and_the_persons_stays(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    measured = read(layout)
    PinStore(layout).pin(None, KEY, "Cpp-c2")
    before = cache_file(layout).read_bytes()
    assert times(layout)["mm-c1"] == 1.5 * FACTOR
    private = private_cache(layout)
    assert private.root == layout.graphs / "cache"
    assert read(private) == measured
    assert cache_file(layout).read_bytes() == before
    assert not private.pins.exists()


def test_the_private_cache_keeps_what_it_tuned_and_learns_what_is_new(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    private = private_cache(layout)
    own = read(private)
    own["bmm"] = {"[]": {"highest": {"bmm-1": 2.0}}}
    own["mm"][KEY.inputs]["highest"]["old-choice"] = 0.1
    write(private, own)
    theirs = read(layout)
    theirs["addmm"] = {"[]": {"highest": {"addmm-1": 3.0}}}
    write(layout, theirs)
    private_cache(layout)
    assert read(private) == {**theirs, "bmm": {"[]": {"highest": {"bmm-1": 2.0}}}}


def test_files_that_are_no_caches_are_left_out(tmp_path: Path) -> None:
    layout = make_layout(tmp_path)
    (layout.autotune / "other").write_text("no json")
    private = private_cache(layout)
    assert [path.name for path in private.autotune.iterdir()] == ["hash"]
