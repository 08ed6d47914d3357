"""What the readers of a compiled graph's text find: tensors, calls, kernels.

The text is hostile: each pattern here and in the readers is bounded, so that a reader takes time
linear in the length of the text, whatever stands in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Dim = int | None
"""A size or stride; None where the graph has a symbol, which stands for many values."""

MAX_LINE = 100_000
"""Characters; a longer line is data, not code."""


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """One tensor. What its text does not say is None; `computed` if it is no input or view."""

    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    dtype: str | None = None
    device: str | None = None
    computed: bool = False


Known = dict[str, GraphTensor]
"""The tensors that a text has named so far."""

Hints = Mapping[str, int]
"""The value of each symbol for which the graph was compiled and tuned."""


@dataclass(frozen=True, slots=True)
class Call:
    """One op or kernel with the tensors that it reads, in order. `node` is its name in the graph
    that was printed."""

    name: str
    operands: tuple[GraphTensor, ...]
    node: str = ""


@dataclass(frozen=True, slots=True)
class TemplateKernel:
    """A template's kernel. `kind` is `triton`, `cpp` or another of Inductor's compilers.

    `config` has the constants of its source (`BLOCK_M`, `num_warps`, ...), sorted. `nodes` are the
    nodes of the printed graph that it computes, where the text says so; `calls` what it is called
    with, the outputs too.
    """

    name: str
    kind: str
    config: tuple[tuple[str, str], ...]
    nodes: frozenset[str] = frozenset()
    calls: tuple[tuple[GraphTensor, ...], ...] = ()


def dims(text: str, hints: Hints) -> tuple[Dim, ...]:
    """The sizes or strides in `text`, as Python or C++ writes them: `4, s7, 8*s7` or `4L, s7`."""
    return tuple(_dim(part.strip(), hints) for part in text.split(",") if part.strip())


def _dim(text: str, hints: Hints) -> Dim:
    product = 1
    for factor in text.split("*"):
        factor = factor.strip()
        digits = factor.removesuffix("L")
        if digits.isascii() and digits.isdigit() and len(digits) < 20:
            product *= int(digits)
        elif factor in hints:
            product *= hints[factor]
        else:
            return None
    return product


def lines(text: str) -> Iterator[str]:
    """The lines that are short enough to be code."""
    return (line for line in text.split("\n") if len(line) <= MAX_LINE)


def split_arguments(text: str) -> list[str]:
    """The arguments of a call, split at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return parts
