"""For each op that Inductor tunes: is a graph that calls another choice found? Real graphs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.origin import kind_of
from backend.pins.graphs.index import GraphIndex
from backend.pins.graphs.match import WantedChoice, judge
from backend.pins.graphs.parts import ChoiceSources
from backend.pins.graphs.text import read_graph_text
from tests.support.cpu_offers import onednn_takes_bfloat16
from tests.support.tuned_ops import CHEAP, Offered, compile_ops


@pytest.mark.torch
def test_graphs_of_this_cpu(tmp_path: Path) -> None:
    offered = compile_ops(CHEAP, tmp_path)
    assert {row.program for row in offered} == set(CHEAP)
    _all_are_found(tmp_path, offered)
    # What a graph of its own serves no other tuning.
    texts = [
        read_graph_text(entry.path.read_bytes()) for entry in GraphIndex(Layout(tmp_path)).live()
    ]
    for row in offered:
        head, tail = row.inputs.split("), (", 1)
        tail = re.sub(r"', (\d+)", lambda m: f"', {int(m[1]) + 1}", tail, count=1)
        inputs = f"{head}), ({tail}"
        wanted = WantedChoice(row.op, inputs, row.choices[0], row.choices)
        assert {judge(text, wanted) for text in texts} == {"absent"}


@pytest.mark.torch
def test_templates_of_this_cpu_static_and_not(tmp_path: Path) -> None:
    programs = ["--backends=CPP", "bmm", "bmm_any_batch", "flex_attention"]
    offered = compile_ops(programs, tmp_path)
    held = {"bmm": 2, "flex_attention": 1}  # the two bmm differ in the hash of their template alone
    for row in offered:
        (choice,) = row.choices
        for asked, expected in ((choice, "same"), ("aten_kernel-c1", "other")):
            verdicts = [v for v in _verdicts(tmp_path, row, asked) if v != "absent"]
            assert verdicts == [expected] * held[row.op], row
    # Another batch may be served by the graph that was compiled for any.
    other = offered[1].inputs.replace("'torch.float32', 4,", "'torch.float32', 5,")
    index = GraphIndex(Layout(tmp_path))
    wanted = WantedChoice("bmm", other, "bmm-c1", (*offered[1].choices, "bmm-c1"))
    assert sorted(set(index.verdicts(index.live(), wanted))) == ["absent", "unclear"]


@pytest.mark.torch
def test_frozen_layers_never_reach_the_graph_cache(tmp_path: Path) -> None:
    op = "linear_binary" if onednn_takes_bfloat16() else "packed_linear"
    offered = compile_ops([op], tmp_path)
    assert [row.op for row in offered] == [op] and len(offered[0].choices) == 2
    assert GraphIndex(Layout(tmp_path)).live() == []


@pytest.mark.torch
def test_a_template_that_packs_a_frozen_weight_is_found(tmp_path: Path) -> None:
    (row,) = compile_ops(["--backends=CPP", "frozen_bmm"], tmp_path)
    (choice,) = row.choices
    assert _verdicts(tmp_path, row, choice) == ["same"]
    assert _verdicts(tmp_path, row, "bmm-c1") == ["other"]


@pytest.mark.torch
def test_choices_for_other_threads_are_told_apart_by_their_source(tmp_path: Path) -> None:
    # Timed, so that their sources lie there; then compiled with nothing else to take.
    timed = ["--threads=1", "bmm", "--threads=2", "bmm"]
    rows = compile_ops([*timed, "--backends=CPP", "bmm", "--threads=1", "bmm"], tmp_path)
    assert len({(row.op, row.inputs) for row in rows}) == 1
    one, two = (row.choices[1] for row in rows[:2])
    assert one != two and [row.choices for row in rows[2:]] == [(two,), (one,)]
    rivals = (*rows[0].choices, two)
    sources, index = ChoiceSources(tmp_path), GraphIndex(Layout(tmp_path))
    found = {}
    for choice in (one, two):
        constants = sources.constants(choice, kind_of(choice))
        assert constants["num_threads"].split()[-1] == ("1" if choice == one else "2")
        wanted = WantedChoice("bmm", rows[0].inputs, choice, rivals, {}, constants)
        graphs = sorted(index.live(), key=lambda entry: (entry.mtime, entry.relative))
        graphs = [entry for entry in graphs if entry.relative.startswith("fxgraph/")]
        found[choice] = index.verdicts(graphs, wanted)[-2:]  # the last two are those for templates
    assert found == {one: ["other", "same"], two: ["same", "other"]}


def _all_are_found(cache: Path, offered: list[Offered]) -> None:
    for row in offered:
        (choice,) = row.choices
        assert "same" in _verdicts(cache, row, choice), row
        for rival in ("triton_mm-c1", "other_kernel-c2", "CppMicroGemm-c3"):
            assert set(_verdicts(cache, row, rival)) == {"absent", "other"}, row


def _verdicts(cache: Path, row: Offered, choice: str) -> list[str]:
    index = GraphIndex(Layout(cache))
    wanted = WantedChoice(row.op, row.inputs, choice, (*row.choices, choice))
    return list(index.verdicts(index.live(), wanted))
