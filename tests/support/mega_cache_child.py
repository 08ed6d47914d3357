"""A program that saves or loads a mega-cache: `save FILE [again]`, `load FILE` or `run`.

Each compiles and runs one product, except `load`; what is printed last is JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

CONFIG = {"XBLOCK": 64, "num_warps": 4, "num_stages": 1, "configs_hash": "0" * 64}
"""What PyTorch keeps of a pointwise kernel's tuning. On a CPU there is no such kernel."""


def compiled(again: bool = False) -> str:
    """The kernel that the generated code calls, `bmm` or another one's name."""
    import torch
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    config.max_autotune = True
    config.max_autotune_gemm_backends = "ATEN,CPP"
    codes: list[str] = []
    GraphLowering.save_output_code = codes.append  # type: ignore[method-assign]
    torch.manual_seed(0)
    a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
    if again:
        torch.compile(lambda a, b: torch.bmm(a, b).sin())(a, b)
    else:
        torch.compile(lambda a, b: torch.relu(torch.bmm(a, b)))(a, b)
    return "bmm" if "extern_kernels.bmm(" in "".join(codes) else "template"


def save(path: Path, again: bool) -> dict[str, Any]:
    import torch
    from torch.compiler._cache import CacheArtifactManager

    kernel = compiled()
    CacheArtifactManager.record_artifact("autotune", "ab/cdefgh.best_config", CONFIG)
    saved = torch.compiler.save_cache_artifacts()
    if again:
        compiled(again=True)
        saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    path.write_bytes(saved[0])
    read = CacheArtifactManager.deserialize(saved[0]) or {}
    return {
        "kernel": kernel,
        "artifacts": [
            [
                kind,
                artifact.key,
                len(artifact.content),
                hashlib.sha256(artifact.content).hexdigest(),
            ]
            for kind, artifacts in read.items()
            for artifact in artifacts
        ],
    }


def load(path: Path) -> dict[str, Any]:
    import torch

    info = torch.compiler.load_cache_artifacts(path.read_bytes())
    assert info is not None
    return {"loaded": {k: len(v) for k, v in info.artifacts.items()}}


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "save":
        told = save(Path(rest[0]), "again" in rest)
    elif what == "load":
        told = load(Path(rest[0]))
    else:
        told = {"kernel": compiled()}
    print(json.dumps(told))
