"""Small real models that stock PyTorch compiles in a child process, with autotuning on the CPU.

In a test: `compiled(["bmm"], cache_dir)` runs the child and gives the code that Inductor generated
for each model, in that order, how often it tuned, and what it printed. As a program: `python
torch_models.py NAME...` compiles the models by name in one process.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BEGIN = "# compiling "
_OURS = ("TORCH", "ROCM_TUI")
_HASTE = ("TORCHINDUCTOR_VEC_ISA_OK", "TORCH_DYNAMO_RUN_GC_AFTER_COMPILE")  # of conftest.py


@dataclass(frozen=True)
class Run:
    """One child process. `code` is the generated source by model, `tuned` how many tunings each
    one benchmarked; `stderr` is all that it printed there."""

    code: dict[str, str]
    tuned: dict[str, int]
    stderr: str


def compiled(
    names: Sequence[str], cache_dir: Path, *, bundled: bool = False, new: bool = False
) -> Run:
    """Compile `names` under stock PyTorch with warm caches below `cache_dir`.

    It is a fork of a process with PyTorch imported, or, if `new`, a process that imports it.
    """
    from tests.support.warm_python import warm_python

    python = [sys.executable, "-W", "ignore"] if new else warm_python()
    flags = ["--bundled"] if bundled else []
    child = subprocess.run(
        [*python, __file__, *flags, *names],
        env=child_env(cache_dir, {"TORCH_LOGS": "output_code"}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.returncode == 0, child.stderr[-4000:]
    tuned = [json.loads(line) for line in child.stdout.splitlines()]
    return Run(_code(child.stderr), dict(zip(names, tuned, strict=True)), child.stderr)


def told_by(program: Path, cache_dir: Path, *words: object) -> dict[str, Any]:
    """The object that a program prints last, run with PyTorch imported and caches below there."""
    from tests.support.warm_python import warm_python

    done = subprocess.run(
        [*warm_python(), str(program), *map(str, words)],
        env=child_env(cache_dir),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def child_env(cache_dir: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment without what would change Inductor's behaviour, and with `cache_dir`."""
    kept = {k: v for k, v in os.environ.items() if k in _HASTE or not k.startswith(_OURS)}
    return {**kept, "TORCHINDUCTOR_CACHE_DIR": str(cache_dir), **(more or {})}


def _code(stderr: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in stderr.split(_BEGIN)[1:]:
        name, _, rest = part.partition("\n")
        lines = [line for line in rest.splitlines() if "[__output_code]" in line]
        found[name] = "\n".join(re.sub(r"^.*?\[__output_code\] ?", "", line) for line in lines)
    return found


def _models() -> dict[str, Any]:
    """Each model by name: a function that compiles and runs it once."""
    import torch
    from torch._inductor import config

    torch.manual_seed(0)

    def bmm() -> Any:
        a, b = torch.randn(8, 128, 256), torch.randn(8, 256, 192)
        return torch.compile(lambda a, b: torch.relu(torch.bmm(a, b)))(a, b)

    def transposed() -> Any:
        """The sizes of `bmm`, other strides."""
        a, b = torch.randn(8, 128, 256), torch.randn(8, 192, 256)
        return torch.compile(lambda a, b: torch.bmm(a, b.transpose(1, 2)) * 2)(a, b)

    def small_bmm() -> Any:
        a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
        return torch.compile(lambda a, b: torch.bmm(a, b) + 1)(a, b)

    def bystander() -> Any:
        """Takes the inputs of `bmm` but only adds them up; its bmm is that of `small_bmm`."""
        a, b = torch.randn(8, 128, 256), torch.randn(8, 256, 192)
        c, d = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
        return torch.compile(lambda a, b, c, d: torch.bmm(c, d) + a.sum() * b.sum())(a, b, c, d)

    def untuned() -> Any:
        """The op and inputs of `bmm`, compiled without autotuning: always the ATen kernel."""
        a, b = torch.randn(8, 128, 256), torch.randn(8, 256, 192)
        with config.patch(max_autotune=False):
            return torch.compile(lambda a, b: torch.bmm(a, b) - 3)(a, b)

    def linear() -> Any:
        model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU()).eval()
        with torch.no_grad(), config.patch(freezing=True):
            return torch.compile(model)(torch.randn(64, 256))

    def attention() -> Any:
        """Two bmm of which the second reads what the first made."""
        q, k, v = torch.randn(4, 64, 32), torch.randn(4, 64, 32), torch.randn(4, 64, 48)

        def forward(q: Any, k: Any, v: Any) -> Any:
            return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1), v)

        return torch.compile(forward)(q, k, v)

    return {
        f.__name__: f for f in (bmm, transposed, small_bmm, bystander, untuned, linear, attention)
    }


def tui(root: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "rocm_tui", *words],
        env=child_env(root),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == code, (words, done.stdout[-2000:], done.stderr[-4000:])
    return done


def main(arguments: list[str]) -> None:
    import torch
    import torch._functorch.config as functorch_config
    from torch._dynamo.utils import counters
    from torch._inductor import config

    config.max_autotune = True
    config.max_autotune_gemm_backends = "ATEN,CPP"
    functorch_config.bundled_autograd_cache = "--bundled" in arguments
    models = _models()
    for name in arguments:
        if name.startswith("--"):
            continue
        torch._dynamo.reset()
        counters.clear()
        print(f"{_BEGIN}{name}", file=sys.stderr, flush=True)
        models[name]()
        print(counters["inductor"]["select_algorithm_autotune"])


if __name__ == "__main__":
    main(sys.argv[1:])
