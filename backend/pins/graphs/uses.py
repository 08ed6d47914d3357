"""Which tunings a compiled graph holds, and by which of its kernels, as its text tells.

The way back from `match.judge`: a kernel that a profiler saw bears the name that the wrapper gave
it, or is the n-th call of its op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from backend.errors import InputsKeyInvalid
from backend.model.origin import extern_name, kind_of
from backend.model.problem import TensorSpec, parse_inputs_key
from backend.pins.graphs.fit import OpForm, form_of, serves
from backend.pins.graphs.match import Wanted, holds, judge, nodes_of
from backend.pins.graphs.parts import Dim
from backend.pins.graphs.text import GraphText


@dataclass(frozen=True, slots=True)
class Held:
    """What of an (op, inputs) a graph holds: how often, the template kernels that compute it, and
    which of the wrapper's extern calls, counted from 0. `hash` is the choice, where that is told.
    """

    count: int
    kernels: frozenset[str]
    externs: tuple[int, ...]
    hash: str | None = None


class GraphUses:
    """Asks one text, which is read once."""

    def __init__(self, graph: GraphText) -> None:
        self._graph = graph
        calls = [call for calls in graph.graphs for call in calls]
        self._names = {call.name for call in (*calls, *graph.externs)}
        tensors = [tensor for call in (*calls, *graph.externs) for tensor in call.operands]
        self._sizes: set[tuple[Dim, ...]] = {tensor.sizes for tensor in tensors}
        self._open = any(None in sizes for sizes in self._sizes)

    def held(self, op: str, inputs: str) -> Held | None:
        """None if the graph does not hold it, or does not tell."""
        form = form_of(op)
        if self._names.isdisjoint((*form.nodes, *form.externs)):
            return None
        try:
            specs = parse_inputs_key(inputs).specs
        except InputsKeyInvalid:
            return None
        known = self._open or any(spec.sizes in self._sizes for spec in specs)
        return self._held(form, specs, Wanted(op, inputs, "")) if specs and known else None

    def _held(self, form: OpForm, specs: tuple[TensorSpec, ...], wanted: Wanted) -> Held | None:
        graph, required = self._graph, form.read(specs)
        externs = tuple(
            at
            for at, call in enumerate(graph.externs)
            if call.name in form.externs and serves(call.operands, required, not form.exact_strides)
        )
        nodes = {call.node for call in nodes_of(graph, form, specs)}
        kernels = [kernel for kernel in graph.templates if kernel.nodes & nodes]
        computed = {node for kernel in kernels for node in kernel.nodes & nodes}
        count = len(externs) + len(computed)
        if not count and holds(graph, wanted, form, specs):
            count = len(nodes)  # by a kernel that does not say which nodes it computes
        if not count:
            return None
        return Held(count, frozenset(kernel.name for kernel in kernels), externs)

    def chosen(self, held: Held, wanted: Sequence[Wanted]) -> Held:
        """With the choice that is called, if the text tells just one of those that are `wanted`."""
        names = {self._graph.externs[at].name for at in held.externs}
        if names and not held.kernels:
            fits = [w.hash for w in wanted if not kind_of(w.hash) and _extern(w.hash) in names]
        elif not names:
            templates = [w for w in wanted if kind_of(w.hash)]
            fits = [w.hash for w in templates if judge(self._graph, w) == "same"]
        else:
            fits = []
        return replace(held, hash=fits[0] if len(fits) == 1 else None)

    @property
    def externs(self) -> tuple[str, ...]:
        """The names of the wrapper's extern calls, in order."""
        return tuple(call.name for call in self._graph.externs)


def _extern(hash: str) -> str:
    return extern_name(hash).partition(".")[0]
