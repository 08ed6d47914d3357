"""What a job shall compile again: a key of the autotune cache, or an op with shapes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from backend.cache.inputs_key import parse_inputs_key
from backend.errors import InputsKeyInvalid
from backend.inductor.torch import tuning as torch_api
from backend.model.ops import OPS
from backend.model.problem import Shape, TensorSpec, TuningKey
from backend.wire.jobs import BadJob, TuneJob
from backend.worker.settings import specs_of


@dataclass(frozen=True, slots=True)
class Recipe:
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
        row = OPS.get(self.op)
        packed = row.place("copy") if row and "copy" in row.inputs else None
        # how large that is, the library decides
        return all(
            at == packed or _alike(spec, given)
            for at, (spec, given) in enumerate(zip(asked, self.specs, strict=True))
        )


def _alike(asked: TensorSpec, given: TensorSpec) -> bool:
    """A bias of one dimension is spread over the rows."""
    return asked.sizes[-len(given.sizes) :] == given.sizes and asked.device == given.device


def asked_problem(job: TuneJob) -> Recipe:
    """What a job asks for; without a device on the GPU, else the CPU.

    Raises BadJob; NotRebuildable for an inputs key that cannot be read.
    """
    if job.inputs is not None:
        if job.precision is None:
            raise BadJob("the job needs the text `precision`")
        key = TuningKey(job.op, job.inputs, job.precision)
        return Recipe(job.op, specs_of(key), key.precision, key.inputs)
    dtypes = job.dtypes * len(job.shapes) if len(job.dtypes) == 1 else job.dtypes
    strides = job.strides or tuple(map(contiguous, job.shapes))
    if not job.shapes or not len(dtypes) == len(strides) == len(job.shapes):
        raise BadJob("the job needs `shapes`, and as many `dtypes` and `strides`")
    device = job.device or ("cuda" if torch.cuda.is_available() else "cpu")
    specs = tuple(
        TensorSpec(device, dtype, shape, stride, 0)
        for shape, stride, dtype in zip(job.shapes, strides, dtypes, strict=True)
    )
    row = OPS.get(job.op)
    if (
        row and "copy" in row.inputs and len(specs) == 2
    ):  # its key has the weight twice: packed, and as is
        specs = (*specs, specs[1])
    return Recipe(job.op, specs, job.precision or torch_api.precision())


def contiguous(shape: Shape) -> Shape:
    """The strides of a tensor whose rows lie one behind the other."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
