"""A program that launches one of Inductor's own Triton kernels, by Inductor's own autotuner and its
own files, on a driver of no GPU.

The compiler is Triton's, for an AMD GPU; a launch is written down, and the time of a config comes
from us. Arguments: the kernel's file, its name. `TIMES` has milliseconds by `XBLOCK`. With a third
argument the kernel comes from that file as it comes from a compiled graph that was kept, and goes
there first if it is not there. Prints one JSON object: the configs that were timed, and the one
that was launched.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch._inductor.codecache import PyCodeCache, StaticAutotunerFuture
from torch._inductor.runtime import triton_helpers, triton_heuristics
from triton.runtime import driver

from tests.support.no_gpu import NoGpu, Tensor

TIMES = {int(block): ms for block, ms in json.loads(os.environ["TIMES"]).items()}
TIMED: list[str] = []
LAUNCHED: list[str] = []


class Launcher:
    def __init__(self, src: Any, metadata: Any) -> None:
        self._told = dict(src.constants), metadata.num_warps

    def __call__(self, *arguments: object) -> None:
        pass


class Driver(NoGpu):
    launcher_cls = Launcher


class Interface:
    """What Inductor asks of a device."""

    def exchange_device(self, device: int) -> int:
        return 0

    maybe_exchange_device = exchange_device

    def current_device(self) -> int:
        return 0

    def synchronize(self, device: object = None) -> None: ...


def text_of(config: Any) -> str:
    members = dict(sorted(config.kwargs.items()))
    return " ".join(f"{k}={v}" for k, v in members.items()) + f" w{config.num_warps}"


def bench(self: Any, launcher: Any, *args: object, **kwargs: object) -> float:
    TIMED.append(text_of(launcher.config))
    blocks = launcher.config.kwargs
    return TIMES.get(blocks["XBLOCK"], 9.0) + 0.01 * launcher.config.num_warps


def kept(kernel: Any, path: Path) -> None:
    """As `TritonBundler.put_static_autotuner` keeps it in a graph."""
    old = kernel.prepare_for_pickle()
    copied = copy.deepcopy(kernel)
    copied.prepare_for_caching()
    copied._reload_kernel = None
    path.write_bytes(pickle.dumps(copied))
    kernel.restore_after_unpickle(old)


def load(source: str, name: str) -> Any:
    key = Path(source).stem
    return getattr(PyCodeCache.load_by_key_path(key, source), name)


def main(source: str, name: str, graph: str = "") -> None:
    driver.set_active(Driver())
    triton_helpers.set_driver_to_gpu = lambda: None
    torch._C._StaticCudaLauncher = SimpleNamespace(  # of a build for GPUs alone
        _load_kernel=lambda *args: (0, 1, 32, 0),
        _launch_kernel=lambda *args: None,
        _unload_kernel=lambda *args: None,
    )
    owner = triton_heuristics.CachingAutotuner
    owner.bench = bench
    owner.get_device_interface = lambda self: Interface()
    if graph and Path(graph).exists():
        future = StaticAutotunerFuture(pickle.loads(Path(graph).read_bytes()))
        for result in future.static_autotuner.compile_results:
            result.reload_cubin_path()
        future.reload_kernel_from_src = lambda: load(source, name)
        kernel = future.result()
    else:
        kernel = load(source, name)
        kernel._precompile_worker()
        if graph:
            kept(kernel, Path(graph))
        kernel.precompile()
    kernel.run(Tensor(), Tensor(), 4096, stream=0)
    LAUNCHED.append(text_of(kernel.launchers[0].config))
    print(json.dumps({"timed": TIMED, "launched": LAUNCHED}))


if __name__ == "__main__":
    main(*sys.argv[1:])
