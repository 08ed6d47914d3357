"""Who else hears of what a thread runs. Loads nothing of Inductor.

Read in torch 2.8 to 2.15 (`torch/csrc/autograd/init.cpp`, `torch/csrc/functorch/init.cpp`,
`torch/utils/_python_dispatch.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

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
