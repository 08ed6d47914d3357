"""The jobs of a worker, one frozen dataclass a kind, and what comes of each.

To the worker, a job:     {"job": "verify", ...its fields}, with the envelope of `worker.protocol`
From the worker:          the fields of its `Progress`, any number, then those of its result

A worker lives in another Python than those who ask it, so whatever is read here is checked.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from backend.model.choice import Caches, CacheTime, Choice, Measurement
from backend.model.graph import Arm, Trial
from backend.model.problem import Shape, TuningKey
from backend.wire.codec import WireError, read, to_json


@dataclass(frozen=True, slots=True)
class CacheLevel:
    """`gbs` is 10^9 bytes a second at best, None where that is neither published nor measured."""

    name: str
    bytes: int
    gbs: float | None = None


R = TypeVar("R")

SearchSpace = Literal["DEFAULT", "EXHAUSTIVE"]
Arithmetic = Literal["fp64", "fp32", "tf32", "half", "fp8", "int8"]


class BadJob(Exception):
    """What was asked makes no sense: no such job, or a field is missing or of another type."""


class BadAnswer(Exception):
    """What came of a job is not what should have."""


def _seconds(value: float) -> str:
    return "" if math.isfinite(value) and value > 0 else "is a number of seconds above 0"


def _threads(value: int) -> str:
    return "" if 0 < value < 1 << 16 else "is a whole number above 0"


def _index(value: int) -> str:
    return "" if value >= 0 else "is a whole number, 0 or more"


def _sizes(value: Shape) -> str:
    return "" if all(size >= 0 for size in value) else "has whole numbers, 0 or more"


def _amount(value: float) -> str:
    return "" if math.isfinite(value) and value >= 0 else "is a number, 0 or more"


def _filled(value: tuple[object, ...]) -> str:
    return "" if value else "is empty"


Count = Annotated[int, _index]
Amount = Annotated[float, _amount]
Seconds = Annotated[float, _seconds]
Threads = Annotated[int, _threads]
Mode = Annotated[int, _index]
"""An index of the modes that the worker's torch has."""
Names = Annotated[tuple[str, ...], _filled]
Sizes = Annotated[Shape, _sizes]


class WorkerJob(Generic[R]):
    """Some work, of which an R comes."""

    name: ClassVar[str]
    answer: ClassVar[type[Any]]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: counts of choices or of rounds, the best so far, seconds to go.

    `settled` are those of the measured `choices` whose verdict is clear. `log` is where the session
    is recorded.
    """

    what: str = ""
    compiled: Count = 0
    timed: Count = 0
    total: Count = 0
    rounds: Count = 0
    settled: Count = 0
    choices: Count = 0
    best: str = ""
    best_ms: Amount | None = None
    seconds_left: Amount | None = None
    log: str = ""


@dataclass(frozen=True, slots=True)
class _Result:
    """`reason` says in a line why it is not `ok`.

    It is not `conclusive` where another of the `modes` that there are is to be tried: torch keeps
    what it made for one mode, so each needs a process of its own.
    """

    ok: bool
    reason: str = ""
    conclusive: bool = True
    modes: int = 1


@dataclass(frozen=True, slots=True)
class _OfKey:
    """About a key of the autotune cache. Where a job has `options`, they are what its op is given
    besides, as a session tells it (`TuningStarted`); empty: not known."""

    op: str
    inputs: str
    precision: str

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)


# What torch is this, and what does it see?


@dataclass(frozen=True, slots=True)
class Environment:
    """Versions of torch, HIP, CUDA and Triton; the device.

    `hooks_off` and `templates_off` say why those do not work, else nothing. `triton_target` is what
    our Triton template is made for there; without one `triton_off` says why, in a line. `bus` is
    the device's PCI address, where torch tells it. `python` is a tag such as `cp311`; `torch_key`
    PyTorch's digest of its source, `compilers` what compiles our choices for an AMD GPU, a name by
    language (`hip`, `triton`) that is the same where the code is; both where asked for. `alike` are
    the GPUs of the kind of the one that was asked about.
    """

    torch: str
    hip: str | None = None
    cuda: str | None = None
    triton: str | None = None
    triton_target: str | None = None
    triton_off: str = ""
    hooks_off: str = ""
    templates_off: str = ""
    gpu: bool = False
    device: str | None = None
    arch: str | None = None
    compute_units: int | None = None
    system_hash: str | None = None
    python: str | None = None
    torch_key: str | None = None
    bus: str | None = None
    compilers: Mapping[str, str] = field(default_factory=dict)
    alike: tuple[Count, ...] = ()


@dataclass(frozen=True, slots=True)
class EnvironmentJob(WorkerJob[Environment]):
    """`fit` costs seconds: whether the hooks and our templates work there. `build` asks for
    PyTorch's digest of its own source, which stands in the name of each compiled graph, and
    `compilers` for those of our choices, `alike_to` for the other GPUs of the kind of that GPU."""

    name: ClassVar[str] = "environment"
    answer: ClassVar[type[Any]] = Environment
    fit: bool = False
    build: bool = False
    compilers: bool = False
    alike_to: Count | None = None


# What can this machine do at best?


@dataclass(frozen=True, slots=True)
class PeakResult:
    """The device; 10^12 operations a second by kind of arithmetic; 10^9 bytes a second from memory,
    and from each cache, the smallest first; the seconds that it took."""

    device: str
    tflops: Mapping[Arithmetic, float]
    gbs: float
    threads: int
    seconds: float = 0.0
    arch: str | None = None
    compute_units: int | None = None
    caches: tuple[CacheLevel, ...] = ()


@dataclass(frozen=True, slots=True)
class PeakJob(WorkerJob[PeakResult]):
    """`device` is `cpu` or `cuda`."""

    name: ClassVar[str] = "peak"
    answer: ClassVar[type[Any]] = PeakResult
    device: str


# Which choice is really faster?


@dataclass(frozen=True, slots=True)
class MeasureResult(_Result):
    """`log` is the path of the session's log, None where it could not be written; `missing` are
    the hashes that this mode does not offer."""

    measurement: Measurement | None = None
    log: str | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasureJob(_OfKey, WorkerJob[MeasureResult]):
    """Measure the choices `hashes`.

    `budget`: seconds of measuring, compiling not counted. `caches`: whether the inputs are in the
    caches when a call begins; None leaves that to the worker, see docs/measuring.md. `rounds`: so
    many at least, while there is time. `partly`: go on without those choices that are not offered
    in this mode. `broken`: those that are not run, since they ended an earlier worker, with the
    reasons. `threads`: as many as the process had that tuned it.
    """

    name: ClassVar[str] = "measure"
    answer: ClassVar[type[Any]] = MeasureResult
    hashes: Names
    budget: Seconds = 30.0
    caches: Caches | None = None
    rounds: int = 0
    mode: Mode = 0
    partly: bool = False
    broken: Mapping[str, str] = field(default_factory=dict)
    threads: Threads | None = None
    options: str = ""


@dataclass(frozen=True, slots=True)
class TuneResult(_Result):
    """The key that was tuned, and its choices with their times in ms, fastest first.

    `skipped` is how many choices the budget left out, `pin` the state of the key's pin, `trouble`
    what went wrong after the tuning, `log` where the session is recorded. `times` is what the cache
    file got, in ms by choice hash, infinite for what failed; `system` is the header of that file.
    `taken_over` are the GPUs under whose hashes it got them too.
    `single`: nothing failed, but there is one choice, so Inductor times nothing.
    """

    op: str = ""
    inputs: str = ""
    precision: str = ""
    system_hash: str = ""
    choices: tuple[Choice, ...] = ()
    seconds: float = 0.0
    skipped: int = 0
    pin: str | None = None
    trouble: str = ""
    log: str = ""
    times: Mapping[str, CacheTime] = field(default_factory=dict)
    system: Mapping[str, Any] = field(default_factory=dict)
    single: bool = False
    taken_over: tuple[Count, ...] = ()


@dataclass(frozen=True, slots=True)
class TuneJob(WorkerJob[TuneResult]):
    """Tune the key (`op`, `inputs`, `precision`); without `inputs` the op with these `shapes` and
    `dtypes` (one for all, or one each), and where given `strides` (else contiguous), `device` (else
    the GPU, else the CPU) and `precision`. `options`: what it is given besides.

    `backends` and `search_space` are Inductor's options; `templates` offers our kernels too;
    `budget` is in seconds from the first choice on; `any_mode` tunes in this mode even if the cache
    tells of another; `broken` are choices that have failed, by hash, with the reasons.

    `kept_as` is the index in the person's environment of the GPU that the worker sees as its first:
    the times are kept under the hashes of that device. `others` are the indices of GPUs of the same
    kind that take the times over.
    """

    name: ClassVar[str] = "tune"
    answer: ClassVar[type[Any]] = TuneResult
    op: str
    inputs: str | None = None
    precision: str | None = None
    shapes: tuple[Sizes, ...] = ()
    dtypes: tuple[str, ...] = ()
    strides: tuple[Sizes, ...] = ()
    device: str | None = None
    threads: Threads | None = None
    backends: Names | None = None
    search_space: SearchSpace | None = None
    templates: bool = False
    budget: Seconds | None = None
    mode: Mode = 0
    any_mode: bool = False
    options: str = ""
    broken: Mapping[str, str] = field(default_factory=dict)
    kept_as: Count | None = None
    others: tuple[Count, ...] = ()


# What a GPU's worker would have to compile, compiled where there is no GPU


@dataclass(frozen=True, slots=True)
class Gpu:
    """What choices and their code depend on: the arch without features (`gfx942`), and how many
    compute units there are. `compilers` name what compiles there (`Environment.compilers`); empty:
    whatever is here."""

    arch: str
    compute_units: int
    compilers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompileResult(_Result):
    """Of our choices so many were `compiled`, and so many `found` in the caches; `failed` has the
    reasons by name. `off` says what was not compiled at all, and why, in a line each."""

    compiled: Count = 0
    found: Count = 0
    failed: Mapping[str, str] = field(default_factory=dict)
    off: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileJob(WorkerJob[CompileResult]):
    """Compile our choices of a problem for a GPU that need not be here, into the caches in which a
    worker on that GPU looks. The process can do nothing else afterwards."""

    name: ClassVar[str] = "compile"
    answer: ClassVar[type[Any]] = CompileResult
    tune: TuneJob
    gpu: Gpu


# Does the generated code really call the pinned choice?


@dataclass(frozen=True, slots=True)
class VerifyResult(_Result):
    """`kernel` is the name of the choice that is called, `hash` its hash, where they are known;
    `proof` says how that was seen, `torch` by which version. `rebuilt` is False for an op that
    cannot be; `spent`: the next pin needs another process."""

    kernel: str | None = None
    hash: str | None = None
    proof: str = ""
    torch: str = ""
    rebuilt: bool = True
    spent: bool = False


@dataclass(frozen=True, slots=True)
class VerifyJob(_OfKey, WorkerJob[VerifyResult]):
    """Compile the op of a key as a program would, and see whether the choice `hash` is called; on
    the GPU `gpu` of those that the worker sees, else on its current one."""

    name: ClassVar[str] = "verify"
    answer: ClassVar[type[Any]] = VerifyResult
    hash: str
    mode: Mode = 0
    threads: Threads | None = None
    options: str = ""
    gpu: Count | None = None


# Is the model faster with other choices?


@dataclass(frozen=True, slots=True)
class TrialResult(_Result):
    """`log` is the path of the session's log, None where it could not be written."""

    trial: Trial | None = None
    log: str | None = None


@dataclass(frozen=True, slots=True)
class TrialJob(WorkerJob[TrialResult]):
    """Compile the captured graph `graph` once for each of `arms`, the first being the baseline, and
    time whole passes.

    `budget`: seconds of measuring, compiling not counted. `rounds`: so many at least, while there
    is time. `error`: the chance that is allowed for any wrong `faster` or `slower`. `threads`: as
    many as the process had whose graph it is. `stock`: compile it with the caches as they are and
    no choice put in place, as a program that knows nothing of us. `root` is the person's cache dir,
    where the graph lies and the trial is recorded; without it that of which the worker's is the
    private one for trials, else the worker's own. `fresh`: in a process that has done nothing else.
    """

    name: ClassVar[str] = "trial"
    answer: ClassVar[type[Any]] = TrialResult
    graph: str
    arms: tuple[Arm, ...]
    budget: Seconds = 30.0
    rounds: int = 0
    error: float = 0.05
    mode: Mode = 0
    threads: Threads | None = None
    stock: bool = False
    root: str = ""
    fresh: bool = False


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


JOBS: Mapping[str, type[WorkerJob[Any]]] = {
    kind.name: kind
    for kind in (
        CompileJob,
        EnvironmentJob,
        MeasureJob,
        PeakJob,
        TrialJob,
        TunableOpJob,
        TuneJob,
        VerifyJob,
    )
}


def job_words(job: WorkerJob[Any]) -> dict[str, Any]:
    """A job as the worker reads it."""
    return {"job": job.name, **to_json(job)}


def job_of(words: Mapping[str, Any]) -> WorkerJob[Any]:
    """The job that somebody asks for. Raises BadJob."""
    name = words.get("job")
    kind: Any = JOBS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise BadJob(f"no such job: {name}")
    for needed in dataclasses.fields(kind):
        optional = needed.default is not MISSING or needed.default_factory is not MISSING
        if needed.name not in words and not optional:
            what = "the text " if needed.type == "str" else ""
            raise BadJob(f"the job needs {what}`{needed.name}`")
    try:
        job: WorkerJob[Any] = read(kind, dict(words))
    except WireError as error:
        raise BadJob(f"the job's {error}") from error
    return job


def answer_of(job: WorkerJob[R], words: Mapping[str, Any]) -> R:
    """What came of `job`. Raises BadAnswer."""
    try:
        answer: R = read(job.answer, dict(words))
    except WireError as error:
        raise BadAnswer(f"the worker's answer makes no sense: {error}") from error
    return answer


def progress_of(words: Mapping[str, Any]) -> Progress:
    """What a worker says of its progress; nothing where that makes no sense."""
    try:
        return read(Progress, dict(words))
    except WireError:
        return Progress()
