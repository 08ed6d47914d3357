"""Tensors for a captured graph: drawn, always the same.

Numbers are such that deep graphs neither overflow nor vanish: weights are scaled by the number of
summed terms, tensors of one dimension (a bias, a scale, a variance) are around 1. Integers may be
indices: they stay below the size of the indexed dimension, or are 0. Groups of rows end at even
distances. Block masks of flex attention are derived from their masks: drawn like other integers,
they would exclude all blocks.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from backend.inductor.torch.captured import flex_op, functions_of
from backend.inductor.torch.compiling import FakeTensors
from backend.model.problem import TensorSpec
from backend.wire.captured import FUNCTIONS
from backend.worker.flex_numbers import AttentionCall, FunctionRef, Numbers, TensorRef
from backend.worker.trial.program import CapturedProgram, SizeInput, TensorInput
from backend.worker.trial.text import constant_tensor, generator_of


def draw_masks(program: CapturedProgram, inputs: Sequence[Any]) -> None:
    """Give the `inputs` that are block masks, or integers that a function reads, the numbers of a
    separately recorded call. Raises what torch raises."""
    module = program.module({each.name: constant_tensor(each, {}) for each in program.constants})
    stand_ins = FakeTensors({})
    stands = [
        stand_ins.tensor(each.shape, each.stride(), each.dtype, each.device, 0)
        if isinstance(each, Tensor)
        else each
        for each in inputs
    ]
    stand_ins.spread(module, stands)
    nodes = list(module.graph.nodes)
    given = dict(zip((node for node in nodes if node.op == "placeholder"), inputs, strict=True))
    for node in nodes:
        if not flex_op(node.target):
            continue
        call, sources = _call(program, node)
        numbers = Numbers(call.op, call)
        for at, source in enumerate(sources):
            value = given.get(source)
            mask = numbers.given(-1, f"t{at}") if isinstance(value, Tensor) else None
            if isinstance(value, Tensor) and mask is not None and not mask.is_floating_point():
                value.copy_(mask)


def _call(program: CapturedProgram, node: Any) -> tuple[AttentionCall, list[Any]]:
    """Return the call as if recorded alone, and the node of each of its tensors."""
    op = flex_op(node.target)
    own = dict(zip(functions_of(node), FUNCTIONS[op], strict=True))
    sources: dict[Any, TensorSpec] = {}

    def read(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            if str(value.target) in own and value.op == "get_attr":
                return FunctionRef(own[str(value.target)])
            tensor = value.meta["val"]
            if not isinstance(tensor, Tensor):
                return tensor
            sources.setdefault(value, _spec(tensor))
            return TensorRef(list(sources).index(value))
        if isinstance(value, (tuple, list)):
            return tuple(map(read, value))
        return dict(value) if isinstance(value, dict) else value

    arguments = tuple(map(read, node.args))
    functions = {kind: program.functions[name] for name, kind in own.items()}
    return AttentionCall(op, arguments, tuple(sources.values()), functions), list(sources)


def _spec(tensor: Tensor) -> TensorSpec:
    return TensorSpec(
        str(tensor.device), str(tensor.dtype), tuple(tensor.shape), tensor.stride(), 0
    )


MOST_BYTES = 1 << 42
"""The maximum bytes of one storage; more is an error."""


class NotDrawable(Exception):
    """The tensors cannot be created here; the message is one line."""


@contextlib.contextmanager
def _drawing(what: str) -> Iterator[None]:
    """A context that raises NotDrawable for torch's errors."""
    try:
        yield
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise NotDrawable(f"its {what} cannot be made here: {reason[0]}") from error


def drawn_inputs(program: CapturedProgram) -> list[Any]:
    """Return the arguments of `forward`: tensors, and sizes as numbers. Raises NotDrawable."""
    symbols = program.head.symbols
    generators: dict[str, torch.Generator] = {}
    views: dict[int, list[TensorInput]] = {}
    for given in program.inputs:
        if isinstance(given, TensorInput):
            views.setdefault(given.storage, []).append(given)
    static = {program.inputs[at].name for at in program.head.static if at < len(program.inputs)}
    memory: dict[int, Tensor] = {}
    with _drawing("inputs"):
        for at, users in views.items():
            storage = program.storages[at]
            size = int(storage.size(symbols))
            generator = generator_of(storage.device, generators)
            memory[at] = _storage(program, users, size, storage.device, static, generator)
        inputs = [
            int(given.value(symbols))
            if isinstance(given, SizeInput)
            else _view(memory[given.storage], given, symbols)
            for given in program.inputs
        ]
        if program.functions:
            draw_masks(program, inputs)
        return inputs


def drawn_constants(program: CapturedProgram) -> dict[str, Tensor]:
    """Return the constants by name. Raises NotDrawable."""
    generators: dict[str, torch.Generator] = {}
    with _drawing("constants"):
        return {each.name: constant_tensor(each, generators) for each in program.constants}


def _storage(
    program: CapturedProgram,
    users: Sequence[TensorInput],
    size: int,
    device: torch.device,
    static: set[str],
    generator: torch.Generator,
) -> Tensor:
    """Return bytes, with the numbers of the first view that uses them."""
    if not 0 <= size <= MOST_BYTES:
        raise ValueError(f"a storage of {size} bytes")
    first = users[0]
    count = size // first.dtype.itemsize
    rows = next(
        (program.head.ends[view.name] for view in users if view.name in program.head.ends), 0
    )
    if rows:
        places = [rows * (group + 1) // count for group in range(count)]
        return torch.tensor(places, dtype=first.dtype, device=device).view(torch.uint8)
    bound = min(program.head.bounds.get(view.name, 0) for view in users)
    fan = _fan_in(first, program.head.symbols) if first.name in static else 1
    dims = len(first.sizes)
    numbers = _numbers(count, first.dtype, device, dims, fan, bound, generator)
    bytes_ = (
        numbers.view(torch.uint8) if numbers.numel() else numbers.new_empty(0, dtype=torch.uint8)
    )
    missing = size - bytes_.numel()
    return torch.cat([bytes_, bytes_.new_zeros(missing)]) if missing else bytes_


def _fan_in(view: TensorInput, symbols: Mapping[str, int]) -> int:
    """Return how many numbers of a weight contribute to one result: for `(out, in)` and `(out, in,
    3, 3)` all but the first size."""
    sizes = [int(size(symbols)) for size in view.sizes]
    return max(1, math.prod(sizes[1:])) if len(sizes) > 1 else 1


_ODD = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def _numbers(
    count: int,
    dtype: torch.dtype,
    device: torch.device,
    dims: int,
    fan: int,
    bound: int,
    generator: torch.Generator,
) -> Tensor:
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator, device=device).to(dtype)
    if dtype in (torch.int8, torch.uint8) and not bound:
        low, high = (0, 256) if dtype == torch.uint8 else (-128, 128)
        return torch.randint(low, high, (count,), generator=generator, device=device).to(dtype)
    if dtype.is_complex:
        parts = torch.empty(2 * count, device=device).normal_(generator=generator)
        return torch.view_as_complex(parts.reshape(count, 2)).to(dtype)
    if not dtype.is_floating_point:
        high = max(1, min(bound, 1 << 40))
        return torch.randint(0, high, (count,), generator=generator, device=device).to(dtype)
    plain = torch.float32 if dtype in _ODD or dtype.itemsize < 2 else dtype
    numbers = torch.empty(count, dtype=plain, device=device)
    if dims == 1:
        numbers.uniform_(0.5, 1.5, generator=generator)
    else:
        numbers.normal_(generator=generator).div_(math.sqrt(fan))
    return numbers.to(dtype)


def _view(memory: Tensor, given: TensorInput, symbols: Mapping[str, int]) -> Tensor:
    """Return a view. Raises RuntimeError if it exceeds its memory."""
    item = given.dtype.itemsize
    sizes = [int(size(symbols)) for size in given.sizes]
    strides = [int(stride(symbols)) for stride in given.strides]
    whole = memory[: memory.numel() // item * item].view(given.dtype)
    return torch.as_strided(whole, sizes, strides, int(given.offset(symbols)))
