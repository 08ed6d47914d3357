"""Kernels as Inductor writes them, the best configs beside them, and `inductor_kernel_program`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.triton_lab import ROOT, triton_python

NAME = "triton_poi_fused_add_0"
TIMES = {256: 3.0, 128: 2.0}
"""Milliseconds by XBLOCK; the two configs of a pointwise kernel of 4096 elements."""
_SOURCE = """import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 4096},
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': \
'constexpr'}, 'device': DeviceProperties(type='hip', index=0, multi_processor_count=304, \
cc='gfx942', major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, \
warp_size=64), 'constants': {}, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): \
[['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'autotune_hints': set(), 'kernel_name': 'NAME', \
'mutated_arg_names': [], 'optimize_mem': True, 'no_x_dim': False, 'num_load': 1, \
'num_reduction': 0, 'backend_hash': 'AB', 'are_deterministic_algorithms_enabled': False, \
'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, \
'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, \
'max_autotune': True, 'max_autotune_pointwise': True, 'min_split_scan_rblock': 256, \
'spill_threshold': 16, 'store_cubin': False, 'coordinate_descent_tuning': DESCENT},
    min_elem_per_thread=0
)
@triton.jit
def NAME(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tl.store(out_ptr0 + (x0), tmp0 + ADDED, xmask)
"""


def source(name: str = NAME, added: float = 1.0, descent: bool = False) -> str:
    text = _SOURCE.replace("NAME", name).replace("ADDED", str(added))
    return text.replace("DESCENT", str(descent))


def put_source(root: Path, text: str, folder: str | None = None) -> Path:
    """Where Inductor puts it: below the cache dir, named by its content."""
    digest = base64.b32encode(hashlib.sha256(text.encode()).digest())[:51].decode().lower()
    path = root / (folder or digest[:2]) / f"c{digest}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def best_config(block: int = 256, warps: int = 4, **more: object) -> dict[str, object]:
    """What Inductor 2.13 writes."""
    return {
        "XBLOCK": block,
        "num_warps": warps,
        "num_stages": 1,
        "configs_hash": "1b2cc4dbebb9680d3ce31843331593b159e4046c056f195ca1ccf2464d5b37d1",
        "found_by_coordesc": False,
        "time_taken_ms": 105,
        "triton_cache_hash": None,
        **more,
    }


def put_config(folder: Path, content: object, stem: str = "1" * 64) -> Path:
    path = folder / f"{stem}.best_config"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def put_compiled(root: Path, digest: str, module: Path) -> None:
    """What Triton keeps of a kernel of `module`, as far as it names that."""
    folder = root / "triton" / "0" / digest
    folder.mkdir(parents=True)
    (folder / "k.ttir").write_text(f'#loc = loc("{module}":33:0)\n')


def environment(root: Path, times: Mapping[int, float] = TIMES) -> dict[str, str]:
    return {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(root),
        "TRITON_CACHE_DIR": str(root / "triton" / "0"),
        "PYTHONPATH": str(ROOT),
        "TRITON_DEFAULT_FP_FUSION": "1",  # else 3.9 warns
        "TIMES": json.dumps(times),
    }


def argv(kernel: Path, graph: Path | None = None) -> list[str]:
    program = ["-W", "ignore", "-m", "tests.support.inductor_kernel_program"]
    return [triton_python(), *program, str(kernel), NAME, *([str(graph)] if graph else [])]


def run(root: Path, kernel: Path, graph: Path | None = None) -> Any:
    """What the program printed: with `graph` the kernel comes from there, or goes there first."""
    ended = subprocess.run(
        argv(kernel, graph), env=environment(root), cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def files(root: Path) -> list[Path]:
    return sorted(root.glob("*/*.best_config"))
