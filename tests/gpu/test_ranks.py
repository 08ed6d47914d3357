"""Two ranks on two GPUs of one kind, with choices of Triton and fusions: alike with --agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ranks.__main__ import choices_in, environment, run

pytestmark = pytest.mark.torch

PROGRAM = """
import os
import torch
import torch.distributed as dist
torch._inductor.config.max_autotune = True
torch._inductor.config.max_autotune_gemm_backends = "ATEN,TRITON"
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
own = 2.0 + dist.get_rank()  # else a rank may take the graph that the other has compiled
a = torch.randn(512, 768, device="cuda", dtype=torch.bfloat16)
b = torch.randn(768, 640, device="cuda", dtype=torch.bfloat16)
torch.compile(lambda a, b: torch.relu(a @ b) * own)(a, b)
dist.barrier()
dist.destroy_process_group()
"""
LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def test_two_gpus_choose_alike(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    cache = tmp_path / "cache"
    run(["--agree"], [*LAUNCH, str(program)], environment(cache))
    (found,) = choices_in(cache).values()
    assert sorted(found) == [0, 1]
    assert len({hash_ for hash_, _ in found.values()}) == 1
    assert sorted(by for _, by in found.values()) == ["rank", "timing"]
