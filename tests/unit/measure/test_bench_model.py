"""`benchmarks/bench_model.py`: what its table says of a search, and what its threads share."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from math import inf, log
from pathlib import Path
from typing import Any

from benchmarks.bench_model import Bench, summary
from rocm_tui.actions.improve import GraphSearch
from rocm_tui.json_output import builtins_of
from rocm_tui.render.improve import SearchJson
from tests.support.improve_lab import Workers, graph_of, write_graph
from tests.support.search_lab import additive

EFFECTS = {"epilogue_fusion=False": log(0.8), "benchmark_fusion=True": log(0.9)}


def test_an_option_with_wrong_results_is_not_the_best(tmp_path: Path) -> None:
    layout = write_graph(tmp_path / "cache")
    search = GraphSearch(Workers(additive(EFFECTS)), layout, graph_of(layout), options=True).go()
    improved: dict[str, Any] = builtins_of(SearchJson.of(search))
    row = {"name": "it", "steps": {"improve": {"value": improved, "seconds": 1.0}}}
    before = summary(row)
    assert before["option_name"] == "epilogue_fusion=False"
    (options,) = (subject for subject in improved["tunings"] if not subject["op"])
    (best,) = (each for each in options["candidates"] if each["name"] == before["option_name"])
    first = best["graph"][0]
    for error in (2 * first["allowed"], None):  # JSON has null for what is not finite
        first["error"] = error
        after = summary(row)
        assert after["option_name"] == "benchmark_fusion=True"
        assert after["option_tried"] == before["option_tried"]


def test_a_row_changes_under_the_lock_of_its_readers(tmp_path: Path) -> None:
    class Guarded(dict[str, Any]):
        def __setitem__(self, name: str, value: Any) -> None:
            assert bench.lock.locked()
            super().__setitem__(name, value)

    bench = Bench(Namespace(seconds=inf, timeout=60.0, out=None), tmp_path)
    row: dict[str, Any] = {"name": "it", "steps": Guarded()}
    bench._step(row, "before", [sys.executable, "-c", "print('{\"us\": [1.5]}')"], {})
    assert json.loads((tmp_path / "it.json").read_text()) == row
    assert row["steps"]["before"]["value"] == {"us": [1.5]}
