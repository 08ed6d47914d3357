"""Private names of torch for process state beside Inductor: a GPU between two jobs and while it is
timed, modes that watch a thread, the store of the process group.

Checked with torch 2.8 to 2.15 (`torch/_dynamo/__init__.py`, `torch/csrc/cuda/Module.cpp`,
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
    """Return False after an error without recovery, such as an illegal memory access."""
    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def release() -> None:
    """Discard compiled programs and free unused memory. Raises RuntimeError if the device is lost.
    The context (some hundred MB) and the code of loaded kernels remain."""
    import torch._dynamo  # heavy: only if something was compiled

    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_initialized():
        clear: Any = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        torch.cuda.empty_cache()


def gpu_spin(cycles: int) -> None:
    """Keep the GPU busy without work, so that the host can queue work behind it."""
    torch.cuda._sleep(cycles)


_OF_A_FIRST_CALL = "_AnalyzeCustomOpInputOutputMode"
"""AOTAutograd's mode (`_aot_autograd/runtime_wrappers.py`): active in the first call of each graph,
and so during all tuning of its kernels, to detect outputs of custom ops that alias their inputs."""


def modes_active() -> bool:
    """Return whether this thread only simulates its calls, or other code watches them."""
    return bool(
        torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack()
    )


def mode_of_others() -> str:
    """Return the active mode set by the program, or PyTorch's own that only simulates; empty if
    there is none, or only that of a first call."""
    if torch._C._functorch.peek_interpreter_stack():
        return "a transform of functorch"
    count = torch._C._len_torch_dispatch_stack()
    names = [type(torch._C._get_dispatch_stack_at(at)).__name__ for at in range(count)]
    return next((name for name in names if name != _OF_A_FIRST_CALL), "")


@contextmanager
def unwatched() -> Iterator[None]:
    """A context in which no mode observes this thread's calls."""
    from torch.utils import _python_dispatch  # here, since it loads more of torch

    with _python_dispatch._disable_current_modes():
        yield


def default_store() -> tuple[str, int] | None:
    """Return the server's host and port; None without a group, or a store with a server."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return None
    store: Any = dist.distributed_c10d._get_default_store()
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return (store.host, store.port) if isinstance(store, dist.TCPStore) else None
