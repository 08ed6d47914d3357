"""What `improve` says and asks at its end: nothing is pinned without a yes."""

from __future__ import annotations

import io
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any, cast

import pytest

from backend.disk import safe
from backend.disk.layout import Layout
from backend.model.graph import TEMPLATES, CompileOption, Swap, options_of
from backend.pins.store import PinStore
from rocm_tui.actions.commands import ShellCommands
from rocm_tui.actions.improve import GraphSearch, result_of, rows_of
from rocm_tui.actions.sources import load_model
from rocm_tui.cli import graphs as command
from rocm_tui.cli import share
from rocm_tui.cli.common import CommandArguments
from rocm_tui.cli.entry import main
from rocm_tui.render.improve import (
    SearchJson,
    best_text,
    proposal_text,
    subject_title,
    summary,
)
from rocm_tui.search.types import Search
from rocm_tui.session.graph_rows import GraphRow
from tests.support.documents import document
from tests.support.improve_lab import FIVE_PERCENT, GRAPH, Workers, gains, graph_of, write_graph
from tests.support.search_lab import Bench, additive, advance, options_subject, run, search_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return write_graph(tmp_path / "cache")


def searched(layout: Layout) -> Search:
    workers = Workers(gains({8: FIVE_PERCENT, 16: FIVE_PERCENT}))
    return GraphSearch(workers, layout, graph_of(layout)).go()


def offer(layout: Layout, search: Search, *, yes: bool = False, json: bool = False) -> None:
    model, rows = load_model(layout), rows_of(graph_of(layout))
    command._offer(ShellCommands(layout), model, rows, search, yes=yes, json=json)


@pytest.mark.parametrize(("answer", "pins"), [("y\n", 2), ("n\n", 0), ("\n", 0), ("", 0)])
def test_on_a_terminal_it_asks(
    layout: Layout,
    answer: str,
    pins: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    offer(layout, searched(layout))
    assert "pin these 2? [y/N]" in capsys.readouterr().err
    assert len(PinStore(layout).pins()) == pins


def test_elsewhere_it_says_how_and_pins_nothing(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    search = searched(layout)
    offer(layout, search)
    lines = [line for line in capsys.readouterr().out.splitlines() if "rocm-tui pin " in line]
    assert PinStore(layout).pins() == ()
    assert len(lines) == 2
    words = [line.strip().removeprefix("rocm-tui ").partition(" --note ")[0] for line in lines]
    for line in words:
        assert main([*line.split(), "--cache-dir", str(layout.root)]) == 0
    assert len(PinStore(layout).pins()) == 2


def test_yes_pins_unasked_and_what_is_pinned_is_not_offered_again(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    search = searched(layout)
    offer(layout, search, yes=True)
    assert len(PinStore(layout).pins()) == 2
    capsys.readouterr()
    offer(layout, search)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    sentences = command.pinned_sentences(search, rows_of(graph_of(layout)))
    assert all("which is proposed too" in sentence for sentence in sentences)
    assert len(sentences) == 2


def test_a_pin_that_needs_an_option_says_so(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pin alone was never confirmed to make the graph faster."""
    effects = {"epilogue_fusion=False": 2 * FIVE_PERCENT, "mm-1": FIVE_PERCENT}
    searching = GraphSearch(Workers(additive(effects)), layout, graph_of(layout), options=True)
    offer(layout, searching.go())
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "rocm-tui pin " in line]
    assert ") together with epilogue_fusion=False' --cache-dir" in line
    offer(layout, searching.go(), yes=True)
    (pin,) = PinStore(layout).pins()
    assert f"--note '{pin.note}'" in line
    assert proposal_text((TEMPLATES,)) == "our kernels"
    assert proposal_text((CompileOption("a", "1"), TEMPLATES)) == "a=1 and our kernels"


def test_the_end_is_two_tables_and_sentences(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    search = searched(layout)
    command._print_search(
        search, rows_of(graph_of(layout)), 600.0, ShellCommands(layout), (4.0, 5.0, 4.5)
    )
    text = capsys.readouterr().out
    assert text.startswith("graph ")
    assert f"\n{GRAPH}  " in text
    assert "mm 8×32 · 32×64" in text
    assert "triton_mm_1" in text
    assert "3 of 3 tunings tried: 3 choices in 9 trials" in text
    assert "Of a hundred searches" in text
    assert "3 cold tunings of this graph in stock PyTorch differed by up to 25.0 %" in text


BOTH = {"epilogue_fusion=False": FIVE_PERCENT, "benchmark_fusion=True": FIVE_PERCENT}


def test_only_confirmed_options_are_printed_as_a_line_of_a_program(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    searching = GraphSearch(Workers(additive(BOTH)), layout, graph_of(layout), options=True)
    search = searching.go()
    sure = result_of(search)
    assert sure is not None and {change.identity for change in sure.arm} == set(BOTH)
    command._print_options(sure.arm)
    first, call, _, *lines, run = capsys.readouterr().out.splitlines()
    names = [option.name for option in options_of(sure.arm)]
    assert first == "To compile with the options:"
    values = {"epilogue_fusion": False, "benchmark_fusion": True}
    written = ", ".join(f'"{name}": {values[name]}' for name in names)
    assert call == f"  torch.compile(model, options={{{written}}})"
    assert lines == [f"    torch._inductor.config.{name} = {values[name]}" for name in names]
    given = " ".join(f"--option {option.label}" for option in sure.arm)
    assert run == f"  or, without a change: rocm-tui run {given} -- CMD"
    gain = SearchJson.of(search).gain
    assert gain is not None and gain.compile_call == call.strip()
    unconfirmed = replace(search, tries=tuple(t for t in search.tries if t.kind != "confirm"))
    assert SearchJson.of(unconfirmed).gain is None


COMBO = CompileOption("combo_kernels", "True")
POINTWISE = CompileOption("max_autotune_pointwise", "True")


def test_what_was_kept_has_the_figure_of_the_trial_that_kept_it() -> None:
    """The better one is kept first, and the other one beside it."""
    effects = {COMBO.label: log(0.9), POINTWISE.label: log(0.8)}
    search = replace(search_of(0), subjects=(options_subject(COMBO, POINTWISE),))
    bench = Bench(additive(effects), noise=0.0001)
    search = advance(advance(search, bench), bench)
    assert best_text(search) == "2 kept, some 28.0 % faster when tried, not confirmed"


def test_an_option_of_two_sweeps_is_counted_once() -> None:
    bench = Bench(additive({COMBO.label: -0.1, POINTWISE.label: -0.05}), noise=0.0001)
    search = run(replace(search_of(0), subjects=(options_subject(COMBO, POINTWISE),)), bench)
    assert [len(attempt.arms) for attempt in search.tries if attempt.kind == "screen"] == [3, 2]
    assert summary(search)[0].startswith("2 options tried in 8 trials")


def test_our_kernels_are_no_option_of_inductor() -> None:
    assert subject_title(options_subject(TEMPLATES)) == "our kernels"
    assert subject_title(options_subject(COMBO)) == "options of Inductor"
    both = options_subject(TEMPLATES, COMBO)
    assert subject_title(both) == "options of Inductor and our kernels"


def test_options_that_are_only_reset_or_need_pins_too_are_printed_as_such(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    swap = Swap("mm", "", "", "triton_mm-1")
    command._print_options((swap, CompileOption("max_fusion_size", "default")))
    assert capsys.readouterr().out.splitlines() == [
        "To compile with the options and the pins (the gain is that of both):",
        "  without the program's own setting of max_fusion_size",
        "  or, without a change: rocm-tui run --option max_fusion_size=default -- CMD",
    ]
    command._print_options((swap,))
    assert capsys.readouterr().out == ""


def test_nothing_found_is_said(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    search = GraphSearch(Workers(), layout, graph_of(layout)).go()
    command._print_search(search, rows_of(graph_of(layout)), 600.0, ShellCommands(layout))
    assert "Nothing was found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("jobs", "sentence"),
    [
        (1, "The budget of 10 s ran out while preparing; nothing was tried."),
        (4, "The budget of 10 s ran out before the search was finished; no gain is confirmed so"),
    ],
)
def test_a_budget_that_ran_out_is_not_reported_as_nothing_found(
    layout: Layout, jobs: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first jobs measure choices alone; the clock passes the budget during the last job."""
    workers = Workers()
    graph = graph_of(layout)

    def clock() -> float:
        return 11.0 if len(workers.jobs) >= jobs else 0.0

    search = GraphSearch(workers, layout, graph, budget=10.0, clock=clock).go()
    command._print_search(search, rows_of(graph), 10.0, ShellCommands(layout))
    out = capsys.readouterr().out
    assert sentence in out
    assert "Nothing was found" not in out
    assert ("tried: " in out) == bool(search.tries)
    assert f"More may be found: rocm-tui improve {GRAPH} --cache-dir {layout.root}" in out


def test_a_pin_that_fails_adds_no_second_document(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def searching(work: Any, layout: Layout, graph: GraphRow, **options: Any) -> GraphSearch:
        return GraphSearch(Workers(gains({8: FIVE_PERCENT})), layout, graph)

    monkeypatch.setattr(command, "GraphSearch", searching)
    safe.lock_of(layout.root, layout.pins).mkdir(parents=True)
    words = ["improve", "--yes", "--cache-dir", str(layout.root)]
    assert main([*words, "--json"]) == 1
    out, err = capsys.readouterr()
    assert len(document(out, "improve")["gain"]["choices"]) == 1
    assert main(words) == 1
    assert err.splitlines()[-1] == capsys.readouterr().err.splitlines()[-1]


def test_bad_words_are_refused() -> None:
    assert main(["improve", "--budget", "-1"]) == 2
    assert main(["improve", "--within", "-1"]) == 2
    assert main(["prove", "--pairs", "2"]) == 2


def test_without_a_graph_it_says_where_one_comes_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("improve", "prove"):
        assert main([name, "--cache-dir", str(tmp_path)]) == 1
        assert "--capture" in capsys.readouterr().err


def test_the_undo_of_agreed_pins_names_their_cache_dir(layout: Layout) -> None:
    args = cast("share.AgreeOptions", CommandArguments(paths=(), output=None))
    undo, _ = share._next(args, layout, 1)
    assert undo == f"`rocm-tui pin --undo --cache-dir {layout.root}` undoes it."
