"""What inputs of a graph must stay below, because they are indices, or must add up to.

Read in torch 2.8 to 2.15.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

_THROUGH = re.compile(
    r"aten\.(view|_unsafe_view|reshape|unsqueeze|squeeze|expand|permute|slice|select|clone|alias"
    r"|t|transpose|repeat|_to_copy)\.|prims\.convert_element_type\."
)
"""What hands the numbers of its first input on."""


def bounds(nodes: Sequence[Any], inputs: Sequence[Any]) -> Iterator[tuple[str, int]]:
    """Of inputs that are indices and nothing else, the size of what they index."""
    placeholders = [node for node in nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, inputs, strict=True):
        if not isinstance(value, torch.Tensor):
            continue
        if value.dtype in (torch.int32, torch.int64):
            bound = _bound(node, 0)
            if bound is not None and bound > 1:
                yield node.name, bound
        elif any("offsets_to_ind" in str(user.target) for user in node.users):
            yield node.name, 1  # places in a window, as a pooling has kept them


def ends(nodes: Sequence[Any]) -> Iterator[tuple[str, int]]:
    """Of inputs that say where the groups of a grouped product end, how many rows these have."""
    for node in nodes:
        if "_grouped_mm." not in str(node.target):
            continue
        a, b = (given.meta["val"].shape for given in node.args[:2])
        for given in node.all_input_nodes:
            kind = getattr(given.meta["val"], "dtype", None)
            if given.op == "placeholder" and kind == torch.int32:
                yield given.name, int(grouped_rows(a, b))


def grouped_rows(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """What groups of a grouped product are cut from, by the sizes of its factors: the rows of `a`,
    the columns of `b`, or what both are summed up over."""
    if len(a) == 3:
        return b[-1]
    return a[-1] if len(b) == 2 else a[0]


def _bound(node: Any, depth: int) -> int | None:
    """None where it is used for something else too."""
    bounds: list[int] = []
    for user in node.users:
        bound = _bound_by(user, node, depth)
        if bound is None:
            return None
        bounds.append(bound)
    return min(bounds, default=None)


def _bound_by(user: Any, node: Any, depth: int) -> int | None:
    name = str(user.target)
    if name == "aten.embedding.default" and user.args[1] is node:
        return _size(user.args[0], 0)
    if name.startswith(("aten.index.", "aten._unsafe_index.")) and user.args[0] is not node:
        places = [at for at, index in enumerate(user.args[1]) if index is node]
        sizes = [_size(user.args[0], at) for at in places]
        return None if None in sizes else min(size for size in sizes if size is not None)
    if name in ("aten.gather.default", "aten.index_select.default") and user.args[2] is node:
        return _size(user.args[0], user.args[1])
    if depth < 8 and _THROUGH.match(name) and user.args[0] is node:
        return _bound(user, depth + 1)
    if user.op == "output":  # saved for the backward graph
        return 1 << 62
    return None


def _size(node: Any, dim: int) -> int | None:
    value = node.meta.get("val")
    size = value.shape[dim] if isinstance(value, torch.Tensor) and value.dim() else None
    return size if type(size) is int else None
