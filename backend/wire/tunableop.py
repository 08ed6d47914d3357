"""The job of a worker that lets PyTorch's TunableOp tune one product, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from backend.wire.jobs import WorkerJob


@dataclass(frozen=True, slots=True)
class TunedProduct:
    """A row of TunableOp's results; `ms` is not finite where no candidate ran."""

    op: str
    params: str
    solution: str
    ms: float


@dataclass(frozen=True, slots=True)
class TunableOpResult:
    """`rows` are those that PyTorch did not have before, `validators` what it puts above them.

    `reason` says in a line why there is no row. `able`: whether this PyTorch can tune so at all,
    where it is; if not, `reason` says why.
    """

    able: bool
    reason: str = ""
    validators: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[TunedProduct, ...] = ()


@dataclass(frozen=True, slots=True)
class TunableOpJob(WorkerJob[TunableOpResult]):
    """Tune the product of `line`, `op,params` as TunableOp's untuned list has it; without one only
    say whether that can be done. PyTorch keeps its own files in `folder`, which is the asker's."""

    name: ClassVar[str] = "tunableop"
    answer: ClassVar[type[Any]] = TunableOpResult
    folder: str
    line: str = ""
