"""Graphs with planted options of Inductor: known to help, to hurt, to change the outputs or to do
nothing. `python option_plants.py NAME...` compiles and calls graphs of `PROGRAMS`.

Options that help or hurt do so by twice or more on any CPU, so that a busy machine does not hide
it: the graphs compute more than they read, in one thread.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from backend.model.graph import RETUNED

Expected = Literal["faster", "slower", "refused", "alike"]
"""What a trial must say. `refused`: it does not compile, or its outputs differ. `alike`: neither
faster nor slower."""

CHAIN = "    for _ in range(4): x = torch.tanh(x) * 1.5 + torch.exp(-x * x)\n    return x"
STATISTICS = """
    for _ in range(6): x = torch.abs(x) * 0.9 + 0.1
    return x.sum(-1), x.amax(-1), x.amin(-1), (x * x).sum(-1)"""
ROUNDED = "    for _ in range(64): x = (x + 8388608.0) - 8388608.0\n    return x"
MIXED = "    return torch.tanh(x * 1e-6), (x * 3e4).half().float() * 2, torch.relu(x) + 1"

PROGRAMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "chain": (CHAIN, {}),
    "scalar_chain": (CHAIN, {"cpp.simdlen": 1}),
    "eager_chain": (CHAIN, {"fallback_by_default": True}),
    "statistics": (STATISTICS, {}),
    "eager_statistics": (STATISTICS, {"disable_cpp_codegen": True}),
    "rounded": (ROUNDED, {}),
    "mixed": (MIXED, {}),
    "exact_mixed": (MIXED, {"emulate_precision_casts": True}),
}
"""The body of a function of a matrix `x`, and the options that the program sets."""

PLANTS: Mapping[str, Mapping[str, Expected]] = {
    "chain": {
        "cpp.simdlen=1": "slower",
        "fallback_by_default=True": "slower",
        "disable_cpp_codegen=True": "slower",
        "loop_ordering_after_fusion=False": "alike",
    },
    "scalar_chain": {"cpp.simdlen=default": "faster", "epilogue_fusion=False": "alike"},
    "eager_chain": {"fallback_by_default=False": "faster"},
    "statistics": {
        "cpp.simdlen=1": "slower",
        "fallback_by_default=True": "slower",
        "split_reductions=False": "alike",
    },
    "eager_statistics": {
        "disable_cpp_codegen=default": "faster",
        "aggressive_fusion=True": "alike",
    },
    "rounded": {
        "cpp.enable_tiling_heuristics=False": "alike",
        "cpp.simdlen=1": "slower",
    },
    "mixed": {
        "cpp.use_decompose_tanh=True": "refused",  # differences of numbers near 1; faster
        "emulate_precision_casts=True": "refused",  # float16 overflows
        "cpp.inject_relu_bug_TESTING_ONLY=accuracy": "refused",
        "cpu_backend=halide": "refused",
        "combo_kernels=True": "alike",
    },
    "exact_mixed": {"emulate_precision_casts=default": "refused"},
}
"""By program and option. Torch's own planted bug is refused by its name."""


@dataclass(frozen=True)
class Tried:
    """What a trial said of an option: `arm` is its object in `trial --json`."""

    option: str
    arm: Mapping[str, Any]

    @property
    def differs(self) -> bool:
        return self.arm["error"] is not None and self.arm["error"] > self.arm["allowed"]

    @property
    def said(self) -> Expected:
        """The verdict in the words of a plant."""
        if self.arm["failed"] or self.differs:
            return "refused"
        verdict = self.arm["verdict"]
        return verdict if verdict in ("faster", "slower") else "alike"


def rocm_tui(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    from tests.support.torch_models import child_env

    return subprocess.run(
        [sys.executable, "-m", "rocm_tui", *words],
        env=child_env(cache, {"OMP_NUM_THREADS": "1"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )


def captured(cache: Path, names: Sequence[str]) -> dict[str, str]:
    """Run programs under `rocm-tui run --capture`; return the ids of their graphs by name."""
    python = [sys.executable, "-W", "ignore", __file__]
    done = rocm_tui(cache, "run", "--capture", "--", *python, *names)
    assert done.returncode == 0, done.stderr
    graphs = json.loads(rocm_tui(cache, "graphs", "--json").stdout)["graphs"]
    return {graph["title"].rpartition(" ")[2]: graph["id"] for graph in graphs}


def trial(cache: Path, graph: str, *options: str, budget: float) -> list[Tried]:
    """Run `rocm-tui trial --option ...` on a captured graph; return its arms by option."""
    words = [word for option in options for word in ("--option", option)]
    budgeted = ["--budget", f"{budget:g}", "--yes", "--json"]
    done = rocm_tui(cache, "trial", "--graph", graph, *words, *budgeted)
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    arms = json.loads(done.stdout)["trial"]["arms"][1:]
    arms = [arm for arm in arms if RETUNED.name not in arm["options"]]
    labels = ["=".join(*arm["options"].items()) for arm in arms]
    return [Tried(label, arm) for label, arm in zip(labels, arms, strict=True)]


def main(names: Sequence[str]) -> None:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name in names:
        body, options = PROGRAMS[name]
        rows = 64 + list(PROGRAMS).index(name)  # graphs that differ only in options have one id
        x = torch.randn(rows, 256)
        space: dict[str, Any] = {"torch": torch}
        exec(compile(f"def {name}(x):\n{body}", name, "exec"), space)
        function = torch.compile(space[name], options=dict(options))
        with torch.no_grad():
            for _ in range(20):
                function(x)


if __name__ == "__main__":
    main(sys.argv[1:])
