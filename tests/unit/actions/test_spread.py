"""`trial --spread N -- CMD`: cold tunings whose times and winners are planted."""

from __future__ import annotations

import errno
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from backend.disk import safe
from backend.disk.layout import Layout
from backend.model.graph import Trial
from rocm_tui.actions.trial import NotTried
from rocm_tui.actions.trial_program import read_spread, steps_of, tune_cold
from rocm_tui.cli.entry import main
from rocm_tui.jobs.program import Ended, run_program
from rocm_tui.render.spread import known_spread_text, spread_sentences
from rocm_tui.session.spread import Spread
from tests.support.documents import document
from tests.support.places import ROOT
from tests.support.printed_times import run_at_printed_times
from tests.support.screen_lab import SYSTEM, inputs, write_cache
from tests.support.store_disks import make_stale

PROGRAM = f"""
import json, os, pathlib, sys
cache = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
assert not list(cache.rglob("*.*")), "the cache dir is not empty"
assert os.environ["TRITON_CACHE_DIR"].startswith(str(cache))
runs = pathlib.Path(sys.argv[1])
number = len(runs.read_text()) if runs.exists() else 0
runs.write_text("x" * (number + 1))
slow = number == 1
if sys.argv[2] == "compiles":
    (cache / "aa").mkdir(parents=True)
    (cache / "aa" / "caaa.py").write_text("code")
    (cache / "cache").mkdir()
    times = {{"mm-bb": 1.0 + slow, "triton_mm-aa": 1.5}}
    entries = {{"mm": {{{inputs(8)!r}: {{"highest": times}}}}}}
    (cache / "cache" / {SYSTEM!r}).write_text(json.dumps({{"system": {{}}, "cache": entries}}))
for step in range(9):
    print(f"loss at {{step * (0.25 if slow else 0.2):.3f}} s", flush=True)
"""


GRAPHS = f"""
import json, os, pathlib, sys
sys.path.insert(0, {str(ROOT)!r})
from backend.model.events import GraphCalled, GraphCompiled
from backend.model.graph import Graph
from tests.support.graph_log import writer_of
run = json.loads(os.environ["ROCM_TUI_RUN"])["run"]
writer = writer_of(pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]), f"{{run}}-1")
for g, (id, ms) in enumerate({{"aaaaaa1": 9.0, "aaaabb2": 4.0}}.items(), 1):
    writer.write(GraphCompiled(g, 105.0, Graph(id)))
    writer.write(GraphCalled(g, 106.0, 10, 3, ms))
writer.close()
"""
CALLED = Trial("aaaaaa1", 1.0, (), device="cpu")


@pytest.fixture(autouse=True)
def printed_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocm_tui.actions.trial_program.run_program", run_at_printed_times)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    write_cache(tmp_path / "cache", 8)
    return Layout(tmp_path / "cache")


def command(layout: Layout, how: str = "compiles") -> list[str]:
    return [sys.executable, "-c", PROGRAM, str(layout.root.parent / "runs"), how]


def cold(layout: Layout, how: str = "compiles", count: int = 3) -> Spread:
    return tune_cold(command(layout, how), layout, steps_of("loss", None, 2), count)


def test_each_tuning_is_cold_and_what_differs_is_named(layout: Layout) -> None:
    before = {path: path.read_bytes() for path in layout.root.rglob("*") if path.is_file()}
    spread = cold(layout)
    assert spread.times == pytest.approx((200.0, 250.0, 200.0))
    assert spread.ratio == pytest.approx(1.25) and spread.ms == pytest.approx(200.0)
    (differing,) = spread.differing
    assert differing.winners == (("mm-bb", 2), ("triton_mm-aa", 1))
    first, meaning, heading, winners = spread_sentences(spread)
    assert "200.0 ms to 250.0 ms, a spread of 25.0 %" in first
    assert meaning.startswith("A difference below 25.0 % between two tunings of this program says")
    assert heading == "1 problem had different winners:"
    assert winners.startswith("mm ") and winners.endswith(": mm-bb (2), triton_mm-aa (1)")
    after = {path: path.read_bytes() for path in layout.root.rglob("*") if path.is_file()}
    assert after == before


def test_a_program_that_compiles_elsewhere_is_doubted(layout: Layout) -> None:
    spread = cold(layout, "elsewhere")
    assert not spread.differing and "its tunings are not cold" in spread.trouble[0]
    assert spread_sentences(spread)[-2].startswith("Nothing was tuned: ")


def test_a_run_without_steps_ends_it(layout: Layout) -> None:
    with pytest.raises(NotTried, match="printed no line"):
        tune_cold(command(layout), layout, steps_of("nothing", None, 2), 3)
    assert not list(layout.graphs.glob("trial-*"))


def test_the_command_prints_lines_or_a_document(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["trial", "--spread", "3", "--step", "loss", "--cache-dir", str(layout.root)]
    assert main([*words, "--", *command(layout)]) == 0
    out = capsys.readouterr().out
    assert "cold tuning 2: 250.0 ms a step, 5 steps in" in out and "a spread of 25.0 %" in out
    (layout.root.parent / "runs").unlink()
    assert main([*words, "--json", "--", *command(layout)]) == 0
    printed = document(capsys.readouterr().out, "trial-spread")
    assert printed["high"] == pytest.approx(250.0) and len(printed["tunings"]) == 3
    assert printed["differing"][0]["winners"][0] == {"choice": "mm-bb", "tunings": 2}


def test_the_first_digits_of_a_graph_do(layout: Layout) -> None:
    words = [sys.executable, "-c", GRAPHS]
    spread = tune_cold(words, layout, steps_of(None, "AAAAA", 2), 3)
    assert spread.times == read_spread(layout, "aaaaaa1", CALLED) == (9.0, 9.0, 9.0)


def test_times_that_cannot_be_kept_are_printed(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = safe.put_in_place

    def full(temporary: Path, path: Path) -> None:
        if path.name.endswith(".spread.json"):
            raise safe.not_writable(path, OSError(errno.ENOSPC, "No space left on device"))
        real(temporary, path)

    monkeypatch.setattr(safe, "put_in_place", full)
    spread = tune_cold([sys.executable, "-c", GRAPHS], layout, steps_of(None, "aaaaaa1", 2), 3)
    assert spread.times == (9.0, 9.0, 9.0) and read_spread(layout, "aaaaaa1", CALLED) == ()
    assert (
        "graph aaaaaa1 are not kept" in spread.trouble[-1] and "disk is full" in spread.trouble[-1]
    )


def test_a_log_that_cannot_be_read_ends_it(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_stale_log(command: Sequence[str], env: Mapping[str, str], hear: Any) -> Ended:
        ended = run_program(command, env, hear)
        (log,) = Layout(Path(env["TORCHINDUCTOR_CACHE_DIR"])).sessions.glob("*.jsonl")
        make_stale(monkeypatch, log)
        return ended

    monkeypatch.setattr("rocm_tui.actions.trial_program.run_program", with_stale_log)
    with pytest.raises(NotTried, match=r"\.jsonl: cannot read it: Stale file handle"):
        tune_cold([sys.executable, "-c", GRAPHS], layout, steps_of(None, "aaaaaa1", 2), 3)


def test_the_first_digits_of_several_graphs_are_one_line(layout: Layout) -> None:
    words = [sys.executable, "-c", GRAPHS]
    several = "several graphs whose ids begin with aaaa: aaaaaa1, aaaabb2; give more digits"
    with pytest.raises(NotTried, match=several):
        tune_cold(words, layout, steps_of(None, "aaaa", 2), 3)
    with pytest.raises(NotTried, match="did not call graph ab"):
        tune_cold(words, layout, steps_of(None, "ab", 2), 3)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--spread", "2", "--", "true"], "3 or more"),
        (["--spread", "3", "--pairs", "3", "--", "true"], "goes without"),
        (["--spread", "3"], "needs a program"),
    ],
)
def test_other_words_are_refused(
    layout: Layout, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert main(["trial", "--step", "loss", "--cache-dir", str(layout.root), *words]) == 2
    assert why in capsys.readouterr().err


def test_improve_says_what_is_known_of_this_host_torch_and_device_alone(layout: Layout) -> None:
    trial = Trial("aaaaaa1", 1.0, (), device="a GPU", system_hash=SYSTEM, torch="2.13.0")
    assert read_spread(layout, "aaaaaa1", trial) == ()
    layout.graphs.mkdir(parents=True)
    path = layout.graphs / "aaaaaa1.spread.json"
    here = {"host": socket.gethostname(), "torch": "2.13.0", "device": "a GPU", "system": SYSTEM}
    others = [{name: "another"} for name in here]
    for other in ({}, *others):
        path.write_text(json.dumps({**here, **other, "ms": [4.0, 5.0, 4.5]}))
        known = () if other else (4.0, 5.0, 4.5)
        assert read_spread(layout, "aaaaaa1", trial) == known
    path.write_text(json.dumps({"host": socket.gethostname(), "ms": [4.0, 5.0, 4.5]}))
    assert read_spread(layout, "aaaaaa1", trial) == (), "of an earlier version"
    said = known_spread_text((4.0, 5.0, 4.5))
    assert said.startswith("3 cold tunings of this graph") and "25.0 %" in said
    path.write_text('{"host": 1, "ms": [')
    assert read_spread(layout, "aaaaaa1", trial) == ()
