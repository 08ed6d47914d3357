"""Real Triton compiles a module of Inductor's place for two GPUs that are not here.

In a test: `compiled(root)`. As a program, in a Python that has Triton: `triton_stages.py FILE`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

NAME = "c" + "ab2" * 17
"""What Inductor would call the file: 52 characters."""
SOURCE = """\
import triton
import triton.language as tl


@triton.jit
def triton_mm(A, B, C, K, BLOCK: tl.constexpr):
    m = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        a = tl.load(A + m[:, None] * K + k + m[None, :])
        b = tl.load(B + (k + m)[:, None] * BLOCK + m[None, :])
        acc += tl.dot(a, b)
    tl.store(C + m[:, None] * BLOCK + m[None, :], acc)
"""


def compiled(root: Path) -> Path:
    """The module below the cache dir `root`, beside Triton's cache; skips without Triton."""
    from tests.support.triton_lab import triton_python  # the far end has no `tests`

    python = triton_python()
    module = root / NAME[1:3] / f"{NAME}.py"
    module.parent.mkdir(parents=True)
    module.write_text(SOURCE)
    env = {**os.environ, "TRITON_CACHE_DIR": str(root / "triton" / "0")}
    subprocess.run([python, "-W", "ignore", __file__, module], env=env, check=True, timeout=120)
    return module


def main(path: str) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    types = {"A": "*fp16", "B": "*fp16", "C": "*fp32", "K": "i32", "BLOCK": "constexpr"}
    for target in (GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)):
        triton.compile(ASTSource(module.triton_mm, types, {"BLOCK": 32}), target=target)


if __name__ == "__main__":
    main(sys.argv[1])
