"""The choices of an op, caught where Inductor asks for one of them; nothing is tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from backend.inductor.benchmark.request import Question
from backend.inductor.torch import tuning as torch_api
from backend.model.problem import TuningKey
from backend.processes.shared import Mark
from backend.worker.rebuild import NotRebuildable, Rebuilt
from backend.worker.settings import ours


class _Caught(Exception):
    """Ends the compile: what we want is known."""


@dataclass
class Captured:
    """The question, and why some of the wanted choices cannot be compiled, by hash."""

    question: Question
    failed: dict[str, str] = field(default_factory=dict)


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
    nothing.
    """
    selector = _Selector(key, hashes, templates, mark or Mark())
    torch_api.set_selector(selector)
    settings = torch_api.compile_settings(mode, freezing=program.freezing, graph_cache=False)
    reason = "nothing"
    try:
        with settings, torch.no_grad():
            torch.compile(program.function, dynamic=False)(*program.arguments)
    except Exception as error:  # whatever the compiler makes of the end of the compile
        reason = torch_api.describe(error)
    if selector.captured is not None:
        return selector.captured
    if selector.asked:
        reason = "; ".join(f"{asked.op} {asked.inputs}" for asked in selector.asked)
    raise NotRebuildable(
        f"{key.op} cannot be rebuilt from its inputs key: Inductor was asked for {reason}"
    )


class _Selector(torch_api.LazySelector):
    def __init__(self, key: TuningKey, hashes: Sequence[str], templates: bool, mark: Mark) -> None:
        super().__init__()
        self._key = key
        self._hashes = hashes
        self._templates = templates
        self._mark = mark
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
        self.captured = Captured(Question(choices, input_nodes, layout, generators))
        self._prepare(self.captured)
        raise _Caught

    def _prepare(self, captured: Captured) -> None:
        for hash_ in self._hashes or captured.question.choices:
            if hash_ in captured.question.choices:
                try:
                    with self._mark.at("compiling", hash_):
                        captured.question.prepare(hash_)
                except BaseException as error:  # whatever a compiler raises is an answer
                    captured.failed[hash_] = torch_api.describe(error)
