"""Triton modules as Inductor writes them for the choices of one template, for any device."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from backend.cache.code import code_hash

_MODULE = """
import triton
import triton.language as tl

from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties

@triton_heuristics.template(

num_stages={stages},
num_warps={warps},
triton_meta={{'signature': {{'arg_A': '*fp16', 'arg_B': '*fp16', 'out_ptr0': '*fp16'}}, 'device': \
DeviceProperties(type='{kind}', index={index}, multi_processor_count={units}, cc=90), 'constants': \
{{}}}},
inductor_meta={{'kernel_name': 'Placeholder.DESCRIPTIVE_NAME', 'config_args': {{}}}},

)
@triton.jit
def {template}(arg_A, arg_B, out_ptr0):
{constants}
    INDEX_DTYPE : tl.constexpr = tl.int32
    A = arg_A
"""


def write_choice(
    root: Path,
    index: int | None,
    *,
    template: str = "triton_mm",
    kind: str = "cuda",
    stages: int = 3,
    warps: int = 4,
    units: int = 132,
    **constants: int | bool | str,
) -> str:
    """Write the module of a choice for the device `index` below the cache dir `root`; its hash.

    `constants` are the template's arguments, such as BLOCK_M=64; ACC_TYPE is `tl.float32`.
    """
    arguments = {"ACC_TYPE": "tl.float32", "GROUP_M": 8, **constants}
    text = _MODULE.format(
        stages=stages,
        warps=warps,
        kind=kind,
        units=units,
        index=index,
        template=template,
        constants="\n".join(f"    {k} : tl.constexpr = {v}" for k, v in arguments.items()),
    )
    parts = [f"{name}={arguments[name]!r}" for name in sorted(arguments)]
    extra = "-".join([*parts, f"num_stages={stages}", f"num_warps={warps}", ""])
    key = code_hash(text.strip().encode() + b"||" + extra.encode())
    path = root / key[1:3] / f"{key}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return f"{template}-{key}"


def compiled_on(root: Path, *indices: int) -> None:
    """Let these devices have compiled Triton kernels below the cache dir `root`."""
    for index in indices:
        (root / "triton" / str(index)).mkdir(parents=True, exist_ok=True)


MM = "[('cuda', 'torch.float16', 64, 32, 32, 1, 0), ('cuda', 'torch.float16', 32, 16, 16, 1, 0)]"
"""The inputs key of the product in `write_box`."""
ATEN = f"mm-{'c' * 52}"
SYSTEM = "5" * 64


def write_box(
    root: Path, times: Mapping[int, Sequence[float]], aten: float = 0.02
) -> dict[int, list[str]]:
    """An autotune cache in which these devices tuned one `mm`, with the milliseconds of a choice
    for each of BLOCK_M=16, 32, 64, ...; their hashes by device."""
    hashes = {
        index: [write_choice(root, index, BLOCK_M=16 << n) for n in range(len(each))]
        for index, each in times.items()
    }
    timings = {ATEN: aten}
    for index, each in times.items():
        timings |= dict(zip(hashes[index], each, strict=True))
    compiled_on(root, *times)
    path = root / "cache" / SYSTEM
    path.parent.mkdir(exist_ok=True)
    document = {"system": {}, "cache": {"mm": {MM: {"highest": timings}}}}
    path.write_text(json.dumps(document, indent=4))
    return hashes
