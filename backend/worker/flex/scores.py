"""The matrix of scores of a recorded call, whole: what its functions make of each score, which are
let through, and which blocks have any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from backend.wire.flex import MASK, SCORE
from backend.worker.flex.call import Call, Place
from backend.worker.trial.translation import Function

_KEPT = frozenset({"aten._to_copy.default", "prims.convert_element_type.default"})


class _Wide(torch.fx.Interpreter):  # type: ignore[misc]
    """Computes in one wide type what Inductor's kernels compute in float32."""

    def __init__(self, module: torch.fx.GraphModule, wide: torch.dtype) -> None:
        super().__init__(module)
        self._wide = wide

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        def widened(value: Any) -> Any:
            floating = isinstance(value, torch.dtype) and value.is_floating_point
            return self._wide if floating else value

        given = tuple(map(widened, args))
        words = {name: widened(value) for name, value in kwargs.items()}
        return super().call_function(target, given, words)


class Scores:
    """Of a `call` with the numbers `tensors`; everything in the type `wide`."""

    def __init__(self, call: Call, tensors: Sequence[Tensor], wide: torch.dtype) -> None:
        self._call = call
        self._wide = wide
        reads = [[self._read(tensors, value) for value in given] for given in call.arguments[-2:]]
        self._score_reads, self._mask_reads = reads
        self._score = _Wide(call.functions[SCORE].module(), wide)
        self._mask = _Wide(call.functions[MASK].module(), wide)
        self.device = tensors[0].device

    def _read(self, tensors: Sequence[Tensor], value: Any) -> Any:
        if not isinstance(value, Place):
            return value
        tensor = tensors[value.number]
        return tensor.to(self._wide) if tensor.is_floating_point() else tensor

    def places(self, *counts: int | range) -> list[Tensor]:
        """Batches, heads, queries and keys, to be spread over each other."""
        made = []
        for at, count in enumerate(counts):
            wanted = count if isinstance(count, range) else range(count)
            shape = [1] * 4
            shape[at] = len(wanted)
            numbers = torch.arange(
                wanted.start, wanted.stop, wanted.step, device=self.device, dtype=torch.int32
            )
            made.append(numbers.reshape(shape))
        return made

    def changed(self, scores: Tensor, places: Sequence[Tensor]) -> Tensor:
        changed: Tensor = self._score.run(scores, *places, *self._score_reads)
        return changed.expand_as(scores)

    def let_through(self, places: Sequence[Tensor]) -> Tensor:
        """Of all these, true or false."""
        through: Tensor = self._mask.run(*places, *self._mask_reads)
        return through.expand([len(each.flatten()) for each in places])


MOST_AT_ONCE = 1 << 24
"""Scores."""


def block_tensors(call: Call, scores: Scores) -> dict[int, Tensor]:
    """The tensors of its block mask by number, as `create_block_mask` makes them: blocks where some
    are let through, and those where all are."""
    given = call.block_mask
    queries, keys, tall, wide = call.lengths
    partial, full = (_shape(call, given[at]) for at in (3, 5))
    assert partial is not None
    batches, heads = partial[:2]
    any_, all_ = _blocks(scores, (batches, heads, queries, keys), (tall, wide))
    some = any_ & ~all_ if full is not None else any_
    made: dict[int, Tensor] = {}
    for at, blocks in ((2, some), (4, all_), (6, some.mT), (8, all_.mT)):
        counts, places = given[at : at + 2]
        if isinstance(counts, Place) and isinstance(places, Place):
            made[counts.number], made[places.number] = _sparse(
                blocks, call.tensors[places.number].sizes
            )
    return made


def _shape(call: Call, value: Any) -> Sequence[int] | None:
    return call.tensors[value.number].sizes if isinstance(value, Place) else None


def _blocks(scores: Scores, sizes: Sequence[int], block: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Where any is let through, and where all are."""
    batches, heads, queries, keys = sizes
    tall, wide = min(block[0], queries), min(block[1], keys)
    step = max(1, MOST_AT_ONCE // max(1, batches * heads * keys * tall)) * tall
    found: list[tuple[Tensor, Tensor]] = []
    for first in range(0, queries, step):
        rows = range(first, min(queries, first + step))
        through = scores.let_through(scores.places(batches, heads, rows, keys))
        missing = (-keys % wide, -len(rows) % tall)
        padded = torch.nn.functional.pad(through, (0, missing[0], 0, missing[1]))
        split = padded.reshape(batches, heads, -1, tall, padded.shape[-1] // wide, wide)
        found.append((split.any(-1).any(-2), split.all(-1).all(-2)))
    any_, all_ = (torch.cat(parts, -2) for parts in zip(*found, strict=True))
    return any_, all_


def _sparse(blocks: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """How many there are in each row, and where, those that count first."""
    whole = torch.zeros(tuple(sizes), dtype=torch.bool, device=blocks.device)
    rows, columns = min(sizes[-2], blocks.shape[-2]), min(sizes[-1], blocks.shape[-1])
    whole[..., :rows, :columns] = blocks[..., :rows, :columns]
    places = torch.argsort(whole.int(), dim=-1, descending=True, stable=True)
    return whole.sum(-1).to(torch.int32), places.to(torch.int32)


def is_place_of(function: Function, at: int) -> bool:
    """Whether what the function reads as its input number `at` says where it reads elsewhere."""
    module = function.module()
    nodes = list(module.graph.nodes)
    told = {[node for node in nodes if node.op == "placeholder"][at]}
    for node in nodes:
        if not told.intersection(node.all_input_nodes):
            continue
        if str(node.target).startswith("aten.index.") and told.intersection(
            each for each in node.args[1] if each is not None
        ):
            return True
        told.add(node)
    return False
