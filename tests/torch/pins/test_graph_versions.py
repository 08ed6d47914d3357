"""The text of compiled graphs under other versions of PyTorch.

`ROCM_TUI_TORCHES` names a folder of virtual environments, one a version, named after it; without it
these tests are skipped. `wrong_verdicts` is for whoever runs them otherwise.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.origin import kind_of
from backend.pins.graphs.index import GraphIndex
from backend.pins.graphs.match import WantedChoice, judge
from backend.pins.graphs.text import read_graph_text
from tests.support.tuned_ops import Offered, compile_ops

pytestmark = pytest.mark.torch

GRAPHS = ["mm", "bmm", "bmm_any_batch"]
FROZEN = ["packed_linear", "linear_unary"]


def torches() -> list[Path]:
    """The interpreters of the other versions."""
    folder = os.environ.get("ROCM_TUI_TORCHES")
    return sorted(Path(folder).glob("*/bin/python")) if folder else []


def wrong_verdicts(python: Path, cache: Path, *flags: str) -> list[str]:
    """Compile a few programs below `cache`, and say what is wrong about their graphs."""
    command = [str(python), "-W", "ignore"]
    # With more threads, 2.8 writes C++ for some of these that no compiler takes.
    rows = compile_ops(["--threads=1", *flags, *GRAPHS], cache, command)
    wrong = [f"{len(rows)} tunings of {GRAPHS}"] if len(rows) != len(GRAPHS) else []
    index = GraphIndex(Layout(cache))
    entries = [e for e in index.live() if e.relative.startswith("fxgraph/")]
    texts = [entry.path.read_bytes() for entry in sorted(entries, key=lambda entry: entry.mtime)]
    if len(texts) != len(rows):
        wrong.append(f"{len(texts)} graphs of {len(rows)} programs")
    for row, text in zip(rows, texts, strict=False):
        wrong += _wrong(row, text)
    before = len(index.live())
    compile_ops(["--threads=1", *FROZEN], cache, command)
    if len(index.live()) != before:
        wrong.append("a frozen linear layer is in the graph cache")
    return wrong


def _wrong(row: Offered, text: bytes) -> list[str]:
    """One of the choices is called, and no other: the text has ATen's name, or it has not."""
    graph = read_graph_text(text)
    aten = f"extern_kernels.{row.op}(".encode() in text or f"_{row.op}_out(".encode() in text
    found = {
        choice: judge(graph, WantedChoice(row.op, row.inputs, choice, row.choices))
        for choice in row.choices
    }
    right = {c: "same" if bool(kind_of(c)) != aten else "other" for c in row.choices}
    return [] if found == right else [f"{row.program}: {found}, not {right}"]


@pytest.mark.parametrize("python", torches(), ids=lambda path: path.parent.parent.name)
def test_graphs_of_another_version(python: Path, tmp_path: Path) -> None:
    assert wrong_verdicts(python, tmp_path) == []


if __name__ == "__main__":  # PYTHON CACHE_DIR [FLAG...]
    said = wrong_verdicts(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
    print("\n".join(said) or "right")
    sys.exit(bool(said))
