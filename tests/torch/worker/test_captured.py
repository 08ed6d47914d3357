"""Captured graphs: what is compiled from a graph's text is what the program had compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch


def same(cache: Path, mode: str, *names: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.capture_child", "same", mode]
    done = subprocess.run(
        [*command, *names],
        env=child_env(cache, {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    graphs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for graph in graphs:
        assert graph["same"], f"{graph['name']}: other code than the program's"
        assert graph["finite"], f"{graph['name']}: what was drawn leads to infinities"
    return graphs


def test_inference(tmp_path: Path) -> None:
    """Products with an activation, attention, also with a function of scores, indices that stay
    within their table, changed inputs, constants of the graph."""
    graphs = {graph["name"]: graph for graph in same(tmp_path, "inference")}
    assert set(graphs) == {"mlp", "attention", "embedding", "conv", "experts", "flex", "rows"}
    assert graphs["rows"]["mutated"] == [0]
    names = ["extern_kernels.addmm", "cpp fused gelu", "extern_kernels.addmm"]
    assert graphs["mlp"]["kernels"] == names


def test_training_steps(tmp_path: Path) -> None:
    """Forward and backward: memory that a backward graph may reuse, dropout, running averages."""
    graphs = same(tmp_path, "train", "mlp", "attention", "embedding", "conv")
    assert [graph["kind"] for graph in graphs] == ["forward", "backward"] * 4
    assert [graph["mutated"] for graph in graphs if graph["name"] == "conv"] == [[3, 4, 5], []]


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_bags_of_embeddings_read_the_whole_table(training: bool) -> None:
    """The two modes call different ops."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    from backend.inductor.torch.captured import bounds

    def bags(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding_bag(index, table)

    inputs = torch.randn(50, 8, requires_grad=training), torch.randint(50, (4, 6))
    with torch.set_grad_enabled(training):
        nodes = list(make_fx(bags, tracing_mode="fake")(*inputs).graph.nodes)
    assert dict(bounds(nodes, inputs)) == {"index_1": 50}


def test_sizes_that_are_open(tmp_path: Path) -> None:
    graphs = same(tmp_path, "dynamic", "mlp", "attention")
    assert len(graphs) == 2


def test_frozen_weights(tmp_path: Path) -> None:
    """They are packed into constants again, by the same way."""
    graphs = same(tmp_path, "freezing", "mlp", "attention")
    assert graphs[0]["kernels"].count("mkl._mkl_linear") == 2
