"""A program with a kernel of `@triton.autotune`, as stock Triton runs it, on a driver of no GPU.

The compiler is Triton's own, for an AMD GPU; a launch is written down, and times come from us.

Prints one JSON object: the configs that were benchmarked, and the block and warps of each launch
beside. Arguments: sizes to run for. `TIMES` has the milliseconds by block; `BLOCKS` the blocks.
With `REAL` the tensor is one of torch, which a launch doubles in place and takes its time for; the
tuner restores it, and `found` is what launches by others than Triton and the program find in it.
With `STEPS` it goes on launching, ten times before each line, and each launch takes its time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import triton
import triton.language as tl
from triton.runtime import driver

from tests.support.no_gpu import NoGpu, Tensor

REAL = "REAL" in os.environ
if REAL:
    import torch
elif "ROCM_TUI_RUN" in os.environ:  # with torch it is torch that calls this
    import rocm_tui_autoload

    rocm_tui_autoload.autoload()

LAUNCHED: list[dict[str, int]] = []
FOUND: set[float] = set()
STEPS = int(os.environ.get("STEPS", "0"))
REAL = "REAL" in os.environ
BENCHED: list[int] = []
TIMES = {int(block): ms for block, ms in json.loads(os.environ["TIMES"]).items()}
BLOCKS = json.loads(os.environ.get("BLOCKS", "[32, 64, 128]"))


class Launcher:
    def __init__(self, src: Any, metadata: Any) -> None:
        self._told = {"block": src.constants[(2,)], "warps": metadata.num_warps}

    def __call__(self, *arguments: object) -> None:
        if REAL:
            (tensor,) = (value for value in arguments if hasattr(value, "data_ptr"))
            end = time.perf_counter() + TIMES[self._told["block"]] / 1e4
            found = float(tensor[0])
            tensor.mul_(2)
            while time.perf_counter() < end:
                pass
            if tensor.data_ptr() != given.data_ptr():
                FOUND.add(found)
                return
        if STEPS and len(LAUNCHED) > 1:
            time.sleep(TIMES[self._told["block"]] / 1e3)
        LAUNCHED.append(self._told)


class Driver(NoGpu):
    launcher_cls = Launcher


def bench(call: Any, quantiles: object) -> list[float]:
    call()
    block = LAUNCHED.pop()["block"]
    BENCHED.append(block)
    ms = TIMES[block]
    return [ms, ms * 0.9, ms * 1.1]


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=block // 32) for block in BLOCKS],
    key=["n"],
    restore_value=["p"] if REAL else None,
    do_bench=bench,
)
@triton.jit
def scale_kernel(p, n, BLOCK: tl.constexpr) -> None:  # noqa: ANN001
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(p + at, tl.load(p + at, mask=at < n) * 2, mask=at < n)


if __name__ == "__main__":
    driver.set_active(Driver())
    given: Any = Tensor()
    if REAL:
        given = torch.full((512,), 3.0)
    for size in map(int, sys.argv[1:]):
        scale_kernel[(4,)](given, size)
    for step in range(STEPS):
        for _ in range(10):
            scale_kernel[(4,)](given, int(sys.argv[1]))
        print("step", step, flush=True)
    told: dict[str, object] = {"benched": BENCHED, "launched": LAUNCHED}
    if REAL:
        told |= {"found": sorted(FOUND), "left": float(given[0])}
    print(json.dumps(told))
