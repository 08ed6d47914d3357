"""What a job compiles of a recorded call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from backend.inductor.torch.flex import compile_call
from backend.model.problem import TensorSpec
from backend.worker.flex.call import read_call
from backend.worker.flex.numbers import Numbers
from backend.worker.rebuilt import NotRebuildable, Rebuilt
from backend.worker.tensors import storage_of
from backend.worker.trial.expressions import Refused


def flex_program(op: str, told: str) -> Rebuilt:
    """The call that a session tells of. Raises NotRebuildable."""
    if not told:
        raise NotRebuildable(
            f"{op} cannot be rebuilt: its key tells neither its functions nor its block mask; run "
            "its program once with `rocm-tui run -- CMD`, which records them"
        )
    try:
        call = read_call(told)
    except Refused as error:
        raise NotRebuildable(f"{op} cannot be rebuilt: {error}") from error

    def compiler(module: Callable[..., Any]) -> Callable[..., Any]:
        def run(*memory: Tensor) -> object:
            compiled = compile_call(module(), memory, backward=call.backward)
            return compiled(list(memory))

        return run

    memory = tuple(_memory(spec) for spec in call.tensors)
    return Rebuilt(
        call.module, memory, freezing=False, compiler=compiler, numbers=Numbers(op, call)
    )


def _memory(spec: TensorSpec) -> Tensor:
    """Whole numbers are all 0: some are read as places in other tensors. What lies behind an offset
    is a view in the graph; the template for a CPU takes the number of keys from the base of it."""
    storage: Tensor = storage_of(spec)
    storage = storage if storage.is_floating_point() else torch.zeros_like(storage)
    if not spec.offset:
        return torch.as_strided(storage, spec.sizes, spec.strides)
    if len(spec.sizes) < 3:
        return storage
    rows = spec.sizes[2]
    return storage.new_zeros(1, 1, rows, -(-len(storage) // rows))
