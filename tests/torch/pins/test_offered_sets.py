"""One key of the cache, several programs: what was never put up together is no rival."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.model.choice import Choice, sort_choices
from backend.model.tuning import Tuning
from rocm_tui.actions.measure import worth_measuring
from rocm_tui.cli.entry import main
from rocm_tui.ingest.formats import cache_file
from rocm_tui.ingest.records import Seen
from rocm_tui.session import stats
from rocm_tui.session.find import find_choice
from rocm_tui.session.model import Model
from tests.support.hooked import launch_program

INPUTS = "[('cpu', 'torch.float32', 4, 32, 64, 2048, 64, 1, 0)]"
ATEN, ONE, TWO = "bmm-a", "CppMicroGemmFP32Vec-one", "CppMicroGemmFP32Vec-two"

PROGRAM = """
import torch, torch._inductor.config as config
torch.set_num_threads(THREADS)
config.max_autotune = True
a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
torch.compile(lambda a, b: torch.bmm(a, b) + ADDED)(a, b)
"""


def from_cache(times: dict[str, float]) -> Tuning:
    document = {"system": {}, "cache": {"bmm": {INPUTS: {"highest": times}}}}
    (seen,) = cache_file.parse(json.dumps(document).encode(), "cache/s")
    assert isinstance(seen, Seen)
    return seen.tuning


def tuned(session: str, times: dict[str, float | None], **more: Any) -> Tuning:
    choices = [Choice(name=f"{hash_}_0", hash=hash_, ms=ms) for hash_, ms in times.items()]
    return replace(from_cache({}), choices=sort_choices(choices), session=session, **more)


def offered(tuning: Tuning) -> set[str | None]:
    return {choice.hash for choice in tuning.choices if choice.offered}


def test_the_cache_alone_tells_that_a_program_has_one_cpp_choice() -> None:
    tuning = from_cache({ATEN: 0.3, ONE: 0.1, TWO: 0.101})
    assert offered(tuning) == {ATEN, ONE} and stats.tried(tuning) == 2
    assert stats.standing(tuning) not in (None, "tied"), (
        "the other C++ choice is no rival that it ties with"
    )
    assert stats.lead(tuning) == pytest.approx(2.0)
    assert find_choice(tuning, "#2").hash == ATEN
    assert [choice.hash for choice in worth_measuring(tuning)] == [ONE, ATEN]
    assert [choice.hash for choice in tuning.choices] == [ONE, ATEN, TWO]
    behind = from_cache({ATEN: 0.1, ONE: 0.2, TWO: 0.3})
    assert offered(behind) == {ATEN, ONE, TWO}, "each of them was put up beside ATen"


def test_each_session_has_its_own_rivals() -> None:
    model = Model()
    views = [
        tuned("one", {ATEN: 0.31, ONE: 0.5}, when=1.0),
        tuned("two", {ATEN: 0.3, TWO: 0.1}, when=2.0),
        tuned("later", {ATEN: None, ONE: None}, when=3.0, selected=ATEN, selected_by="cache"),
    ]
    cache = from_cache({ATEN: 0.3, ONE: 0.5, TWO: 0.1})
    model.apply([Seen(f"{view.session}#1", view) for view in views])
    model.apply([Seen("cache/s#1", cache)])
    rows = {row.tuning.session: row.tuning for row in model.rows()}
    assert offered(rows["two"]) == {ATEN, TWO} and stats.lead(rows["two"]) == pytest.approx(2.0)
    assert {c.hash for c in rows["two"].choices} == {ATEN, TWO}, "the first row has the other"
    assert offered(rows["one"]) == {ATEN, ONE}
    best = stats.winner(rows["one"])
    assert best is not None and best.hash == ATEN
    assert rows["one"].selected == ATEN, "the program that found its times in the cache"


def test_a_program_that_timed_nothing_is_shown_with_the_times_of_the_cache() -> None:
    model = Model()
    two = tuned("two", {ATEN: 0.3, TWO: 0.1}, when=1.0)
    later = tuned("l", {ATEN: None, ONE: None}, when=2.0, selected=ATEN, selected_by="cache")
    cache = from_cache({ATEN: 0.3, ONE: 0.5, TWO: 0.1})
    model.apply([Seen("two#1", two), Seen("l#1", later), Seen("cache/s#1", cache)])
    rows = {row.tuning.session: row.tuning for row in model.rows()}
    assert rows["two"].selected is None, "another program's choice is not its own"
    assert offered(rows["l"]) == {ATEN, ONE}
    assert {c.hash: c.ms for c in rows["l"].choices if c.offered} == {ATEN: 0.3, ONE: 0.5}


@pytest.mark.torch
def test_two_programs_with_other_threads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    for added, threads in enumerate((2, 1)):
        launch_program(f"THREADS, ADDED = {threads}, {added}\n{PROGRAM}", cache)
    assert main(["ls", "--json", "--cache-dir", str(cache)]) == 0
    rows = json.loads(capsys.readouterr().out)["tunings"]
    assert len(rows) == 2
    sets = [{c["hash"] for c in row["choices"] if c["offered"]} for row in rows]
    assert [len(found) for found in sets] == [2, 2] == [row["num_choices"] for row in rows]
    (shared,) = sets[0] & sets[1]
    assert shared.startswith("bmm-")
    assert main(["show", rows[0]["id"], "--cache-dir", str(cache)]) == 0
    told = capsys.readouterr().out
    assert "no program is known that offers it beside the others" not in told
