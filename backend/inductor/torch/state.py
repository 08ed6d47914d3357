"""Private names of torch for what a process holds and hears beside Inductor: a GPU between two jobs
and while it is timed, modes that watch a thread, the store of its process group.

Read in torch 2.8 to 2.15 (`torch/_dynamo/__init__.py`, `torch/csrc/cuda/Module.cpp`,
`torch/cuda/__init__.py`, `torch/csrc/autograd/init.cpp`, `torch/csrc/functorch/init.cpp`,
`torch/utils/_python_dispatch.py`, `torch/distributed/distributed_c10d.py`). Loads nothing of
Inductor.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def device_works() -> bool:
    """False after an error that a process cannot get over, such as an illegal memory access."""
    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def release() -> None:
    """Forget compiled programs; give back the memory that nobody uses. Raises RuntimeError where
    the device is lost. What stays is the context (some hundred MB) and the code of the kernels
    that were loaded."""
    import torch._dynamo  # heavy: only where something was compiled

    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_initialized():
        clear: Any = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        torch.cuda.empty_cache()


def gpu_spin(cycles: int) -> None:
    """Keep the GPU busy with nothing, so that the host can queue work behind it."""
    torch.cuda._sleep(cycles)


_OF_A_FIRST_CALL = "_AnalyzeCustomOpInputOutputMode"
"""AOTAutograd's (`_aot_autograd/runtime_wrappers.py`): around the first call of each graph, and so
around all tuning of its kernels, to see whether outputs of custom ops lie in their inputs."""


def modes_active() -> bool:
    """Whether this thread only pretends to run what it calls, or lets others watch it."""
    return bool(
        torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack()
    )


def mode_of_others() -> str:
    """The mode that is active by the program's will, or PyTorch's own that only pretends; empty
    where there is none, or that of a first call alone."""
    if torch._C._functorch.peek_interpreter_stack():
        return "a transform of functorch"
    count = torch._C._len_torch_dispatch_stack()
    names = [type(torch._C._get_dispatch_stack_at(at)).__name__ for at in range(count)]
    return next((name for name in names if name != _OF_A_FIRST_CALL), "")


@contextmanager
def unwatched() -> Iterator[None]:
    """Within it no mode hears of what this thread runs."""
    from torch.utils import _python_dispatch  # late: it loads more of torch

    with _python_dispatch._disable_current_modes():
        yield


def default_store() -> tuple[str, int] | None:
    """Host and port of the server; None before there is a group, or where its store has none."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return None
    store: Any = dist.distributed_c10d._get_default_store()
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return (store.host, store.port) if isinstance(store, dist.TCPStore) else None
