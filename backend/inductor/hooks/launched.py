"""Which configs Inductor launches of its own kernels in this process, and whether it timed any: one
line a kernel, in a file of a folder that `rocm-tui verify -- CMD` made and reads. Nothing else of
the program is touched.
"""

from __future__ import annotations

import functools
import json
import os
import weakref
from pathlib import Path
from typing import Any

from backend.inductor.guard import quietly
from backend.inductor.hooks.kernels import UNTOLD
from backend.inductor.torch import autotuner as torch_api
from backend.inductor.torch.autotuner import Autotuner


def install(folder: Path) -> None:
    """Tell of each first launch from now on. Raises AttributeError on a torch without the
    methods."""
    owner: Any = torch_api.tuner()
    told: weakref.WeakSet[Autotuner] = weakref.WeakSet()
    timed: weakref.WeakSet[Autotuner] = weakref.WeakSet()
    stock_run, stock_bench = getattr(owner, torch_api.RUN), getattr(owner, torch_api.BENCH)

    @functools.wraps(stock_bench)
    def bench(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        timed.add(self)
        return stock_bench(self, *args, **kwargs)

    @functools.wraps(stock_run)
    def run(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        result = stock_run(self, *args, **kwargs)
        if self not in told:
            told.add(self)
            with quietly(UNTOLD):
                _tell(folder, self, self not in timed)
        return result

    setattr(owner, torch_api.BENCH, bench)
    setattr(owner, torch_api.RUN, run)


def _tell(folder: Path, autotuner: Autotuner, read: bool) -> None:
    """One line for the launch that was just done; several processes write to files of their own."""
    kernel, config = torch_api.kernel_of(autotuner), torch_api.launched(autotuner)
    if config is None:
        return
    line = {
        "op": kernel.op,
        "inputs": kernel.inputs,
        "config": torch_api.named(config)[0],
        "read": read,
    }
    with (folder / f"{os.getpid()}.jsonl").open("a") as stream:
        stream.write(json.dumps(line) + "\n")
