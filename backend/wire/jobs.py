"""The jobs of a worker, one frozen dataclass per kind, and their results.

To the worker, a job:     {"job": "verify", ...its fields}, with the envelope of `worker.protocol`
From the worker:          the fields of its `Progress`, any number, then those of its result

A worker runs in another Python than its caller, so everything read here is checked.
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

R = TypeVar("R")

SearchSpace = Literal["DEFAULT", "EXHAUSTIVE"]


class JobInvalid(Exception):
    """A job request is invalid: no such job, or a field is missing or has the wrong type."""


class ResultInvalid(Exception):
    """A job's result is invalid."""


def _seconds(value: float) -> str:
    return "" if math.isfinite(value) and value > 0 else "must be a number of seconds above 0"


def _threads(value: int) -> str:
    return "" if 0 < value < 1 << 16 else "must be a whole number above 0"


def _index(value: int) -> str:
    return "" if value >= 0 else "must be a whole number, 0 or more"


def _sizes(value: Shape) -> str:
    return "" if all(size >= 0 for size in value) else "must have whole numbers, 0 or more"


def _amount(value: float) -> str:
    return "" if math.isfinite(value) and value >= 0 else "must be a number, 0 or more"


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
    """A job whose result is an R."""

    name: ClassVar[str]
    answer: ClassVar[type[Any]]


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job: counts of choices or rounds, the best so far, seconds left.

    `settled` counts the measured `choices` whose verdict is clear. `log` is the path of the
    session's log.
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
    """A result; `reason` is one line if it is not `ok`.

    A result that is not `conclusive` requires a try in another of the `modes`: torch keeps the
    state of a mode, so each mode needs its own process.
    """

    ok: bool
    reason: str = ""
    conclusive: bool = True
    modes: int = 1


@dataclass(frozen=True, slots=True)
class _KeyJob:
    """A job about a key of the autotune cache. `options`, if the job has them, are further
    arguments of the op as sessions record them (`TuningStarted`); empty if unknown."""

    op: str
    inputs: str
    precision: str

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs, self.precision)


# Environment


@dataclass(frozen=True, slots=True)
class Environment:
    """Versions of torch, HIP, CUDA and Triton; the device.

    `hooks_off` and `templates_off` are the reasons why those do not work, or empty. `triton_target`
    is our Triton template's target; without one, `triton_off` is a one-line reason. `bus` is the
    device's PCI address, if torch reports it. `python` is a tag such as `cp311`. On request,
    `torch_key` is PyTorch's digest of its source, and `compilers` identify the compilers of our
    choices for an AMD GPU, by language (`hip`, `triton`). `recommended` has `NAME=VALUE: reason
    (source)` for settings that PyTorch recommends on the device. `alike` are the GPUs of the same
    kind as the requested one.
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
    recommended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EnvironmentJob(WorkerJob[Environment]):
    """Describe the environment. `fit` also checks, in seconds, whether the hooks and our templates
    work. `build` adds PyTorch's digest of its own source, which is part of each compiled graph's
    name; `compilers` adds the compilers of our choices; `alike_to` adds the other GPUs of the same
    kind as that GPU."""

    name: ClassVar[str] = "environment"
    answer: ClassVar[type[Any]] = Environment
    fit: bool = False
    build: bool = False
    compilers: bool = False
    alike_to: Count | None = None


# Measurement


@dataclass(frozen=True, slots=True)
class MeasureResult(_Result):
    """A measurement. `log` is the path of the session's log, None if it could not be written;
    `missing` are the hashes that this mode does not offer."""

    measurement: Measurement | None = None
    log: str | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasureJob(_KeyJob, WorkerJob[MeasureResult]):
    """Measure the choices `hashes`.

    `budget`: seconds of measuring, without compiling. `caches`: whether the inputs are in the
    caches when a call begins; None: the worker decides, see docs/measuring.md. `rounds`: the
    minimum, budget permitting. `partly`: go on without choices that this mode does not offer.
    `broken`: choices to skip because they ended an earlier worker, with the reasons. `threads`: the
    thread count of the process that tuned.
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
    """The tuned key and its choices, with times in ms, fastest first.

    `skipped` counts the choices that the budget left out, `pin` is the state of the key's pin,
    `trouble` lists failures after the tuning, `log` is the path of the session's log. `times` are
    the cache file's, in ms by choice hash, infinite for failures; `system` is that file's header.
    `taken_over` are the GPUs whose hashes also got the times. `single`: nothing failed, but there
    is only one choice, so Inductor times nothing.
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
    """Tune the key (`op`, `inputs`, `precision`). Without `inputs`, tune the op with these `shapes`
    and `dtypes` (one for all, or one each), and optionally `strides` (default contiguous), `device`
    (default the GPU, else the CPU) and `precision`. `options` are its further arguments.

    `backends` and `search_space` are Inductor's options; `templates` adds our kernels; `budget` is
    in seconds from the first choice on; `any_mode` tunes in this mode even if the cache indicates
    another; `broken` are failed choices by hash, with the reasons.

    `kept_as` is the index, in the person's environment, of the worker's first GPU: times are stored
    under that device's hashes. `others` are indices of GPUs of the same kind that also get the
    times.
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


# Compiling for a GPU on a machine without one


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU properties that choices and their code depend on: the arch without features
    (`gfx942`) and the number of compute units. `compilers` name that machine's compilers
    (`Environment.compilers`); empty: those installed here."""

    arch: str
    compute_units: int
    compilers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompileResult(_Result):
    """Counts of our choices that were `compiled`, and of those `found` in the caches; `failed` has
    reasons by name. `off` has a one-line reason for each group that was not compiled at all."""

    compiled: Count = 0
    found: Count = 0
    failed: Mapping[str, str] = field(default_factory=dict)
    off: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileJob(WorkerJob[CompileResult]):
    """Compile our choices of a problem for a GPU that may be absent, into the caches that a worker
    on that GPU reads. The process is not usable for other jobs afterwards."""

    name: ClassVar[str] = "compile"
    answer: ClassVar[type[Any]] = CompileResult
    tune: TuneJob
    gpu: Gpu


# Verification of pins


@dataclass(frozen=True, slots=True)
class VerifyResult(_Result):
    """The generated code's choice: `kernel` is its name, `hash` its hash, if known; `proof` is the
    evidence, `torch` the version. `rebuilt` is False for an op that cannot be rebuilt; `spent`: the
    next pin needs another process."""

    kernel: str | None = None
    hash: str | None = None
    proof: str = ""
    torch: str = ""
    rebuilt: bool = True
    spent: bool = False


@dataclass(frozen=True, slots=True)
class VerifyJob(_KeyJob, WorkerJob[VerifyResult]):
    """Compile the op of a key as a program would, and check that the code calls the choice `hash`;
    on GPU `gpu` of those visible to the worker, else on its current one."""

    name: ClassVar[str] = "verify"
    answer: ClassVar[type[Any]] = VerifyResult
    hash: str
    mode: Mode = 0
    threads: Threads | None = None
    options: str = ""
    gpu: Count | None = None


# Trials of graphs


@dataclass(frozen=True, slots=True)
class TrialResult(_Result):
    """A trial. `others` are those of the job's other processes."""

    trial: Trial | None = None
    others: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialJob(WorkerJob[TrialResult]):
    """Compile the captured graph `graph` once for each of `arms`, baseline first, and time whole
    passes.

    `budget`: seconds of measuring, without compiling. `rounds`: the minimum, budget permitting.
    `error`: the accepted probability of any wrong `faster` or `slower`. `threads`: the thread count
    of the process that the graph is from. `stock`: compile with the caches as they are and no
    choice in place, like a program without our hooks. `root` is the person's cache dir, which
    contains the graph and gets the record; by default the dir that the worker's private trial cache
    belongs to, else the worker's own. `fresh`: run in a new process, and compile anew. `compilers`:
    the number of processes that compile at the same time, if there are others. `untimed`: compile
    `arms` for another process. `processes`: the number of trials, each in its own process; they
    compile side by side, and time one after another. `gpus`: GPUs of one kind, as the environment
    names them, among which these processes are divided, or the arms of a single trial: an arm and
    its baseline are timed on one of them. `control`: if choices were benchmarked again for an arm,
    also time the baseline with its choices benchmarked again.
    """

    name: ClassVar[str] = "trial"
    answer: ClassVar[type[Any]] = TrialResult
    graph: str
    arms: tuple[Arm, ...]
    budget: Seconds = 30.0
    rounds: int = 0
    error: float = 0.05
    threads: Threads | None = None
    stock: bool = False
    root: str = ""
    fresh: bool = False
    compilers: Count = 0
    untimed: bool = False
    processes: Count = 0
    gpus: tuple[str, ...] = ()
    control: bool = True


@dataclass(frozen=True, slots=True)
class TunedProduct:
    """A row of TunableOp's results; `ms` is not finite if no candidate ran."""

    op: str
    params: str
    solution: str
    ms: float


@dataclass(frozen=True, slots=True)
class TunableOpResult:
    """New TunableOp results: `rows` are new to PyTorch, `validators` its
    header.

    `reason` is a line if there is no row. `able` is whether this PyTorch can tune this way at all;
    if not, `reason` says why.
    """

    able: bool
    reason: str = ""
    validators: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[TunedProduct, ...] = ()


@dataclass(frozen=True, slots=True)
class TunableOpJob(WorkerJob[TunableOpResult]):
    """Tune the product of `line`, `op,params` as in TunableOp's untuned list; without a line, only
    check that tuning is possible. PyTorch keeps its own files in the caller's `folder`."""

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
        TrialJob,
        TunableOpJob,
        TuneJob,
        VerifyJob,
    )
}


def job_words(job: WorkerJob[Any]) -> dict[str, Any]:
    """Return a job as JSON for the worker."""
    return {"job": job.name, **to_json(job)}


def job_of(words: Mapping[str, Any]) -> WorkerJob[Any]:
    """Return the requested job. Raises JobInvalid."""
    name = words.get("job")
    kind: Any = JOBS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise JobInvalid(f"no such job: {name}")
    for needed in dataclasses.fields(kind):
        optional = needed.default is not MISSING or needed.default_factory is not MISSING
        if needed.name not in words and not optional:
            what = "the text " if needed.type == "str" else ""
            raise JobInvalid(f"the job needs {what}`{needed.name}`")
    try:
        job: WorkerJob[Any] = read(kind, dict(words))
    except WireError as error:
        raise JobInvalid(f"the job's {error}") from error
    return job


def answer_of(job: WorkerJob[R], words: Mapping[str, Any]) -> R:
    """Return the result of `job`. Raises ResultInvalid."""
    try:
        answer: R = read(job.answer, dict(words))
    except WireError as error:
        raise ResultInvalid(f"the worker's answer makes no sense: {error}") from error
    return answer


def progress_of(words: Mapping[str, Any]) -> Progress:
    """Return a worker's progress; empty if it is invalid."""
    try:
        return read(Progress, dict(words))
    except WireError:
        return Progress()
