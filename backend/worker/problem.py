"""What a job shall compile again: a key of the autotune cache, or an op with shapes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from backend.inductor.torch import tuning as torch_api
from backend.records import Shape, TensorSpec, TuningKey
from backend.store.errors import InputsKeyInvalid
from backend.store.inputs_key import parse_inputs_key
from backend.worker.protocol import Arguments, BadJob, text_argument
from backend.worker.rebuild import PACKED
from backend.worker.settings import specs_of


@dataclass(frozen=True, slots=True)
class Problem:
    """`specs` are the inputs to rebuild; `inputs` is the key that must come out, where one was
    asked for. Without it any key of that op with those sizes is the one."""

    op: str
    specs: tuple[TensorSpec, ...]
    precision: str
    inputs: str | None = None

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs or "", self.precision)

    def is_met_by(self, key: TuningKey) -> bool:
        """Whether `key`, which Inductor asks about, is what was meant."""
        if self.inputs is not None:
            return key == self.key
        if key.op != self.op:
            return False
        try:
            asked = parse_inputs_key(key.inputs).specs
        except InputsKeyInvalid:
            return False
        if len(asked) != len(self.specs):
            return False
        packed = 1 if self.op == PACKED[0] else None  # how large that is, the library decides
        return all(
            at == packed or _alike(one, given)
            for at, (one, given) in enumerate(zip(asked, self.specs, strict=True))
        )


def _alike(asked: TensorSpec, given: TensorSpec) -> bool:
    """A bias of one dimension is spread over the rows."""
    return asked.sizes[-len(given.sizes) :] == given.sizes and asked.device == given.device


def problem_argument(arguments: Arguments) -> Problem:
    """From `op`, `inputs`, `precision`; or from `op`, `shapes`, `dtypes`, and where wanted
    `strides` (else contiguous), `device` (else the GPU, else the CPU) and `precision`.

    Raises BadJob; NotRebuildable for an inputs key that cannot be read.
    """
    op = text_argument(arguments, "op")
    if "inputs" in arguments:
        key = TuningKey(
            op, text_argument(arguments, "inputs"), text_argument(arguments, "precision")
        )
        return Problem(op, specs_of(key), key.precision, key.inputs)
    shapes = _shapes(arguments, "shapes")
    dtypes = _texts(arguments, "dtypes")
    strides = _shapes(arguments, "strides") if arguments.get("strides") else None
    if len(dtypes) == 1:
        dtypes *= len(shapes)
    if len(dtypes) != len(shapes) or (strides is not None and len(strides) != len(shapes)):
        raise BadJob("the job needs as many `dtypes` and `strides` as `shapes`")
    device = arguments.get("device") or ("cuda" if torch.cuda.is_available() else "cpu")
    steps = strides or tuple(map(contiguous, shapes))
    specs = tuple(
        TensorSpec(str(device), dtype, shape, stride, 0)
        for shape, stride, dtype in zip(shapes, steps, dtypes, strict=True)
    )
    if op == PACKED[0] and len(specs) == 2:  # its key has the weight twice: packed, and as it was
        specs = (*specs, specs[1])
    precision = arguments.get("precision") or torch_api.precision()
    return Problem(op, specs, str(precision))


def contiguous(shape: Shape) -> Shape:
    """The strides of a tensor whose rows lie one behind the other."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _shapes(arguments: Arguments, name: str) -> tuple[Shape, ...]:
    value = arguments.get(name)
    if isinstance(value, list) and value and all(map(_is_shape, value)):
        return tuple(map(tuple, value))
    raise BadJob(f"the job needs `{name}`: one list of whole numbers for each input")


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)


def _texts(arguments: Arguments, name: str) -> list[str]:
    value = arguments.get(name)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return list(value)
    raise BadJob(f"the job needs `{name}`: a list of texts")
