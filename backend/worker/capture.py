"""The question which choice to take, caught in the middle of a compile and kept beyond it.

The last few are kept for the next job, which then compiles nothing: what is offered depends on the
key, the mode, the threads and our templates, and on nothing that stands in a file.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from backend.inductor.benchmark.question import Question
from backend.inductor.benchmark.request import forget_problem
from backend.inductor.torch import choices as torch_choices
from backend.inductor.torch import tuning as torch_api
from backend.model.ops import is_flex
from backend.model.options import Options
from backend.model.problem import TuningKey
from backend.processes.shared import Mark
from backend.worker.problem import options_of, ours, rebuild_key
from backend.worker.rebuilt import KnownNumbers, NotRebuildable, Rebuilt


class _Caught(Exception):
    """Ends the compile: what we want is known."""


@dataclass
class Captured:
    """The question, and why some of the wanted choices cannot be compiled, by hash."""

    question: Question
    numbers: KnownNumbers | None = None
    failed: dict[str, str] = field(default_factory=dict)

    prepared: frozenset[str] = frozenset()
    """The choices that are compiled, or were tried."""

    @property
    def size(self) -> int:
        """Bytes of the weights that are frozen into its graph."""
        return self.question.constant_bytes


MOST_KEPT = 8
MOST_BYTES = 256 << 20
"""Of frozen weights; those of linear layers alone are, on a CPU."""

_Asked = tuple[TuningKey, Options, str, tuple[tuple[str, bool], ...], int, bool]
_kept: OrderedDict[_Asked, Captured] = OrderedDict()


def question_of(
    key: TuningKey,
    hashes: Sequence[str],
    mode: Mapping[str, bool],
    *,
    templates: bool,
    mark: Mark | None = None,
    told: str = "",
) -> Captured:
    """The question for `key`, its choices `hashes` compiled, as `capture` has it; that of an
    earlier job where it is kept. `told` is for `options_of`. Raises NotRebuildable."""
    given = options_of(key, hashes, told)
    call = told if is_flex(key.op) else ""
    asked = (key, given, call, tuple(sorted(mode.items())), torch.get_num_threads(), templates)
    kept = _kept.pop(asked, None)
    if kept is None or not kept.prepared.issuperset(hashes):
        program = rebuild_key(key, hashes, told)
        kept = capture(program, key, hashes, mode, templates=templates, mark=mark)
    _kept[asked] = kept
    while len(_kept) > 1 and (
        len(_kept) > MOST_KEPT or sum(one.size for one in _kept.values()) > MOST_BYTES
    ):
        _kept.popitem(last=False)
    return kept


def forget_tensors() -> None:
    """What is kept is the question, and not the tensors that it was last measured on."""
    forget_problem()
    for captured in _kept.values():
        captured.question.given = ()
        if captured.numbers is not None:
            captured.numbers.forget()
    if sum(captured.size for captured in _kept.values()) > MOST_BYTES:
        _kept.clear()


def capture(
    program: Rebuilt,
    key: TuningKey,
    hashes: Sequence[str],
    mode: Mapping[str, bool],
    *,
    templates: bool,
    mark: Mark | None = None,
) -> Captured:
    """Compile `program` up to the question for `key`, and its choices `hashes` (none: all).

    `templates` asks for ours too. The settings of `mode` are for the compile alone. `mark` is told
    which choice is being compiled. Raises NotRebuildable where Inductor asks for something else, or
    nothing, and where it does not compile.
    """
    selector = _Selector(key, hashes, templates, mark or Mark(), program.numbers)
    torch_api.set_selector(selector)
    settings = torch_api.compile_settings(
        {**mode, **program.settings}, freezing=program.freezing, graph_cache=False
    )
    trouble = ""
    try:
        with settings, torch.no_grad():
            program.compiled()(*program.arguments)
    except Exception as error:  # whatever the compiler makes of the end of the compile
        trouble = torch_api.describe(error)
    if selector.captured is not None:
        return selector.captured
    if trouble and not selector.asked:  # a full disk, say: nothing is known of the key
        raise NotRebuildable(f"{key.op} does not compile: {trouble}")
    asked = "; ".join(f"{other.op} {other.inputs}" for other in selector.asked) or "nothing"
    raise NotRebuildable(
        f"{key.op} cannot be rebuilt from its inputs key: Inductor was asked for {asked}"
    )


class _Selector(torch_api.LazySelector):
    def __init__(
        self,
        key: TuningKey,
        hashes: Sequence[str],
        templates: bool,
        mark: Mark,
        numbers: KnownNumbers | None,
    ) -> None:
        super().__init__()
        self._key = key
        self._hashes = hashes
        self._templates = templates
        self._mark = mark
        self._numbers = numbers
        self.asked: list[TuningKey] = []
        self.captured: Captured | None = None

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        key = torch_api.tuning_key(name, input_nodes, layout, kwargs)
        self.asked.append(key)
        if key != self._key:
            raise _Caught
        if self._templates:
            choices = [*choices, *ours(name, choices, input_nodes, layout)]
        generators = kwargs.get("input_gen_fns", args[0] if args else None)
        nodes, generators = _inputs(choices, input_nodes, generators, self._numbers)
        self.captured = Captured(Question(choices, nodes, layout, generators), self._numbers)
        self._prepare(self.captured)
        raise _Caught

    def _prepare(self, captured: Captured) -> None:
        captured.prepared = frozenset(self._hashes or captured.question.choices)
        for hash_ in captured.prepared:
            if hash_ in captured.question.choices:
                try:
                    with self._mark.at("compiling", hash_):
                        captured.question.prepare(hash_)
                except BaseException as error:  # whatever a compiler raises is an answer
                    captured.failed[hash_] = torch_api.describe(error)


Generators = Mapping[int, Callable[[Any], Tensor]]


def _inputs(
    choices: Sequence[Any],
    nodes: Sequence[Any],
    generators: Generators | None,
    numbers: KnownNumbers | None,
) -> tuple[Sequence[Any], Generators | None]:
    """What the choices get, and how it is made: of numbers that are known.

    The template of flex attention for a CPU reads more than the key tells.
    """
    if numbers is None or not choices:
        return nodes, generators
    own = list(getattr(choices[0], "input_nodes", ()))
    nodes = own if len(own) > len(nodes) and nodes[0].get_device().type == "cpu" else nodes
    stock = generators or {}

    def made(at: int, node: Any) -> Tensor:
        given = numbers.given(at, node.get_name())
        if given is not None:
            return given
        return stock[at](node) if at in stock else torch_choices.example(node)

    return nodes, {at: functools.partial(made, at) for at in range(len(nodes))}
