"""Mega-caches: read without unpickling, judged against the pins, noticed when they are loaded."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.errors import MegaCacheInvalid
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from backend.sharing.mega_cache import read_mega_cache
from tests.support.places import ROOT
from tests.support.sharing_lab import doctor, with_checksum
from tests.support.terminal_lab import WATCH, Terminal
from tests.support.tools import needs_tool, require_tool

pytestmark = pytest.mark.torch

CHILD = ROOT / "tests" / "support" / "mega_cache_child.py"


def child(cache: Path, *words: object) -> dict[str, Any]:
    from tests.support.torch_models import told_by

    return told_by(CHILD, cache, *words)


class Saved(NamedTuple):
    """A cache dir and the mega-caches of it: saved once, and saved twice by one process."""

    cache: Path
    once: Path
    twice: Path
    told: dict[str, Any]
    told_twice: dict[str, Any]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp("mega")
    cache, once, twice = folder / "cache", folder / "mega.bin", folder / "twice.bin"
    told = child(cache, "save", once)
    return Saved(cache, once, twice, told, child(cache, "save", twice, "again"))


@pytest.fixture
def layout(saved: Saved, tmp_path: Path) -> Layout:
    shutil.copytree(saved.cache, tmp_path / "cache")
    return Layout(tmp_path / "cache")


def pin_the_other(layout: Layout) -> TuningKey:
    """Pin what lost the one tuning of `layout`."""
    (file,) = read_caches(layout)[0]
    ((key, times),) = file.entries.items()
    PinStore(layout).pin(None, key, max(times, key=times.__getitem__))
    return key


@pytest.mark.parametrize("which", ["once", "twice"])
def test_what_pytorch_reads_is_what_is_listed(saved: Saved, which: str) -> None:
    path, told = (saved.once, saved.told) if which == "once" else (saved.twice, saved.told_twice)
    mega = read_mega_cache(path)
    loaded = [a for a in mega.artifacts if a.loaded]
    listed = [[a.type, a.key, a.size] for a in loaded]
    assert sorted(listed) == sorted(entry[:3] for entry in told["artifacts"])
    assert {a.type for a in loaded} >= {"inductor", "aot_autograd", "autotune"}
    # PyTorch makes a dictionary of the sections, so of two with one type it loads the last.
    passed_over = {a.type for a in mega.artifacts if not a.loaded}
    assert passed_over == (set() if which == "once" else {"inductor", "aot_autograd"})
    digests = [hashlib.sha256(data).hexdigest() for _, data in mega.contents(loaded)]
    assert sorted(digests) == sorted(entry[3] for entry in told["artifacts"])


def test_doctor_says_which_pins_it_hides(
    saved: Saved, layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--cache-dir", layout.root]
    code, text = doctor(capsys, saved.once, *place)
    assert code == 0 and "compiled graph" in text and "pin " not in text
    pin_the_other(layout)
    (pin,) = PinStore(layout).pins()
    code, text = doctor(capsys, saved.once, *place)
    assert code == 1 and f"{pin.id} (" in text and "is hidden by 1 graph" in text
    code, text = doctor(capsys, "--json", saved.once, *place)
    (told,) = json.loads(text)["bundles"]
    assert [hiding["pin"] for hiding in told["hides"]] == [pin.id]
    graphs = [a["key"] for a in told["artifacts"] if a["type"] == "inductor"]
    assert told["hides"][0]["key"] in graphs and told["hides"][0]["verdict"] == "other"

    again = tmp_path / "pinned.bin"
    assert child(layout.root, "save", again)["kernel"] != saved.told["kernel"]
    code, text = doctor(capsys, again, *place)
    assert code == 0 and "hidden" not in text


def test_doctor_says_what_becomes_of_configurations(
    saved: Saved, layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--cache-dir", layout.root]
    assert "1 new, 0 as here, 0 would replace others" in doctor(capsys, saved.once, *place)[1]
    assert child(layout.root, "load", saved.once)["loaded"]["autotune"] == 1
    path = layout.root / "ab" / "cdefgh.best_config"
    assert "0 new, 1 as here, 0 would replace others" in doctor(capsys, saved.once, *place)[1]
    path.write_text("{}")
    assert "0 new, 0 as here, 1 would replace another" in doctor(capsys, saved.once, *place)[1]


def test_mutations_of_a_real_one(saved: Saved, tmp_path: Path) -> None:
    """With a right checksum: read or refused, never anything else."""
    body = saved.twice.read_bytes()[4:]
    draw = random.Random(0)
    path = tmp_path / "mutated.bin"
    places = [*range(200), *(draw.randrange(len(body)) for _ in range(100))]
    read = 0
    for at in places:
        changed = bytearray(body)
        changed[at] = draw.randrange(256)
        cut = changed[: draw.randrange(len(body))] if draw.random() < 0.3 else changed
        path.write_bytes(with_checksum(bytes(cut)))
        try:
            mega = read_mega_cache(path)
        except MegaCacheInvalid:
            continue
        assert all(len(data) == a.size for a, data in mega.contents(mega.artifacts))
        read += bool(mega.artifacts)
    assert 0 < read < len(places)


# Loaded after the pin


def test_watch_notices_a_loaded_mega_cache(saved: Saved, layout: Layout) -> None:
    """The control: without us the loaded graph hides the pin, in PyTorch and in `pins`."""
    from rocm_tui.session.feed import Inbox, Reconciler

    key = pin_the_other(layout)
    store = PinStore(layout)
    (status,) = store.status()
    assert status.state == "active"
    child(layout.root, "load", saved.once)
    (status,) = store.status()
    assert (status.state, status.detail) == ("drifted", "1 compiled graph made with another choice")
    assert child(layout.root, "run")["kernel"] == saved.told["kernel"]
    (status,) = store.reconcile()
    assert status.state == "active" and status.pin.drifts == 1
    assert "compiled graphs with another choice had appeared" in status.detail
    assert [entry.what for entry in store.history()] == ["pin", "drift"]

    inbox = Inbox(lambda: None)
    reconciler = Reconciler(layout, inbox)
    reconciler.start()
    try:
        wait_until(lambda: inbox.take(1)[0].pins, "the first look")
        for drifts in (2, 3):
            time.sleep(2.5)  # the folders have settled: nothing is read again but what changed
            child(layout.root, "load", saved.once)
            wait_until(lambda d=drifts: store.pins()[0].drifts == d, "a drift")
            assert [s.state for s in store.status()] == ["active"]
    finally:
        reconciler.stop()
    batch = inbox.take(1)[0]
    assert [s.pin.drifts for s in batch.drifted] == [2, 3]
    assert child(layout.root, "run")["kernel"] != saved.told["kernel"]
    store.unpin(key)
    assert child(layout.root, "run")["kernel"] == saved.told["kernel"]


@pytest.mark.parametrize("program", ["rsync -a", "cp -a"])
def test_a_copied_graph_with_its_old_times(
    program: str, saved: Saved, layout: Layout, tmp_path: Path
) -> None:
    """Copying programs set the times of files and folders back to those of the source."""
    require_tool(program.split()[0])
    store = PinStore(layout)
    pin_the_other(layout)
    assert [s.state for s in store.reconcile()] == ["active"]
    for drifts in (1, 2):
        subprocess.run([*program.split(), f"{saved.cache}/fxgraph", layout.root], check=True)
        (status,) = store.reconcile()
        assert status.state == "active" and status.pin.drifts == drifts
        assert [s.detail for s in store.reconcile()] == [""]


@needs_tool("tmux")
@pytest.mark.terminal
def test_watch_says_so_on_the_screen(saved: Saved, layout: Layout) -> None:
    pin_the_other(layout)
    with Terminal([*WATCH, "--cache-dir", str(layout.root)], (120, 30)) as terminal:
        terminal.wait_for("●")
        child(layout.root, "load", saved.once)
        terminal.wait_for("had drifted")
        terminal.press("3")
        terminal.wait_for("1 drift seen")
        terminal.wait_for("active")


def wait_until(true: Any, what: str, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.01)
