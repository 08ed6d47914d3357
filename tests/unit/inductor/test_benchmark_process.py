"""The processes that benchmark: who is blamed for one that was lost, what they keep, and which
device is current where a kernel is started."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._inductor import config, utils  # noqa: E402
from torch._inductor.runtime import benchmarking  # noqa: E402

from backend.errors import (  # noqa: E402
    CompileError,
    CompileTimeoutError,
    KernelError,
    MissingCompilerError,
    TritonCompileError,
    TritonMissingError,
)
from backend.inductor.benchmark import child, request, tensors  # noqa: E402
from backend.inductor.benchmark import process as rocm_process  # noqa: E402
from backend.inductor.benchmark.errors import (  # noqa: E402
    ChoiceError,
    CompileFailed,
    Crashed,
    DeviceLost,
    EntryFailed,
    ErrorFromChoice,
    Killed,
    NoDevice,
    NotCompiled,
    NotStarted,
    OutOfMemory,
    TimedOut,
    WrongResult,
    choice_error,
    is_own_fault,
)
from backend.inductor.benchmark.process import DeviceBench  # noqa: E402
from backend.inductor.benchmark.request import ROCmBenchmarkRequest  # noqa: E402
from backend.inductor.benchmark.tensors import TensorPlan  # noqa: E402


class Noted:
    """A request that leaves a line in a file wherever it runs."""

    def __init__(self, log: Path, value: float = 1.0) -> None:
        self.log = log
        self.value = value

    def note(self) -> None:
        with self.log.open("a") as stream:
            stream.write(f"{os.getpid()}\n")

    @property
    def runs(self) -> list[str]:
        """The process of each run."""
        return self.log.read_text().split() if self.log.exists() else []

    def benchmark(self) -> float:
        self.note()
        return self.value


class Raises(Noted):
    def __init__(self, log: Path, number: int) -> None:
        super().__init__(log)
        self.number = number

    def benchmark(self) -> float:
        self.note()
        os.kill(os.getpid(), self.number)
        return 1.0


class Lost:
    """A device that nothing works on any more; a fake of a GPU after an illegal memory access."""

    def trouble(self) -> str:
        return "RuntimeError: an illegal memory access was encountered"


class Damages(Noted):
    """It ends well, and the device is lost: nobody looks before the next choice."""

    def benchmark(self) -> float:
        self.note()
        request.BenchmarkDevice = lambda device: Lost()  # type: ignore[assignment,return-value]
        return 1.0


class Works(Noted):
    def benchmark(self) -> float:
        self.note()
        return 2.0


class Illegal(Damages):
    def benchmark(self) -> float:
        super().benchmark()
        raise RuntimeError("an illegal memory access was encountered")


@pytest.fixture(scope="module")
def bench() -> Iterator[DeviceBench]:
    made = DeviceBench()
    yield made
    made.close()


def test_an_innocent_choice_is_not_blamed_for_what_ran_before(
    bench: DeviceBench, tmp_path: Path
) -> None:
    assert bench.run(Damages(tmp_path / "first"), 60) == 1.0
    second = Works(tmp_path / "second")
    assert bench.run(second, 60) == 2.0
    assert len(second.runs) == 1  # not in the damaged process


def test_who_loses_every_fresh_process_is_to_blame(bench: DeviceBench, tmp_path: Path) -> None:
    assert bench.run(Works(tmp_path / "before"), 60) == 2.0
    illegal = Illegal(tmp_path / "illegal")
    with pytest.raises(Crashed, match="illegal memory access"):
        bench.run(illegal, 60)
    assert len(set(illegal.runs)) == 3


def test_one_that_was_killed_is_tried_again_and_not_blamed(
    bench: DeviceBench, tmp_path: Path
) -> None:
    assert bench.run(Works(tmp_path / "before"), 60) == 2.0
    killed = Raises(tmp_path / "killed", signal.SIGKILL)
    with pytest.raises(Killed, match="SIGKILL") as caught:
        bench.run(killed, 60)
    assert len(killed.runs) == 3 and not is_own_fault(caught.value)


def test_a_supervisor_that_was_terminated_says_so() -> None:
    """Else two of them in a row would be the crash of a choice."""
    work = "lambda: print('ready', flush=True) or signal.pause() or 0"
    code = f"import signal; from backend.processes.supervisor import supervised; supervised({work})"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM
    assert rocm_process._lost_as(process.returncode) is Killed
    process.stdout.close()


class Meets:
    """It ends when another one has begun."""

    def __init__(self, mine: Path, other: Path, device: str) -> None:
        self.mine, self.other, self.device = mine, other, device

    def benchmark(self) -> float:
        self.mine.touch()
        while not self.other.exists():
            time.sleep(0.01)
        return 1.0


def test_devices_are_benchmarked_side_by_side(tmp_path: Path) -> None:
    """The second device is one by name alone."""
    a, b = tmp_path / "a", tmp_path / "b"
    results: list[float] = []

    def run(request: Meets) -> None:
        results.append(rocm_process.benchmark(request))

    try:
        threads = [
            threading.Thread(target=run, args=(Meets(*places, device),))
            for places, device in (((a, b), "cpu"), ((b, a), "cpu:1"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        assert results == [1.0, 1.0]
    finally:
        rocm_process.shut_down()


def test_one_that_does_not_start_is_no_fault_of_a_choice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor is it tried for each choice."""
    starts = tmp_path / "starts"
    program = f"open({str(starts)!r}, 'a').write('once '); sys.exit(3)"
    monkeypatch.setattr(rocm_process, "_SERVE", program)
    bench = DeviceBench()
    for _ in range(4):
        with pytest.raises(NotStarted, match="does not start") as caught:
            bench.run(Works(tmp_path / "never"), 60)
        assert not is_own_fault(caught.value)
    assert starts.read_text() == "once once "


def test_a_device_that_cannot_be_had_is_no_fault_of_a_choice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(request, "BenchmarkDevice", lambda device: Lost())
    asked = Works(tmp_path / "asked")
    said = request.answer(asked)
    assert said.last and isinstance(said.value, NoDevice) and not said.value.own
    assert asked.runs == []


# What is kept


PLAN = TensorPlan("cpu", torch.float32, (8, 8), (8, 1))


class Makes:
    def benchmark(self) -> float:
        return float(len(request._inputs_of((PLAN,))))


class Keeps:
    def benchmark(self) -> float:
        return float(request._inputs_of.cache_info().currsize)


def test_inputs_are_let_go_at_the_end_of_a_tuning(bench: DeviceBench) -> None:
    assert bench.run(Makes(), 60) == 1.0
    assert bench.run(Keeps(), 60) == 1.0
    bench.forget()
    assert bench.run(Keeps(), 60) == 0.0


def test_inputs_are_let_go_where_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(child, "IDLE_SECONDS", 0.0)
    ours, theirs = Pipe()
    forgot: list[bool] = []
    assert not child._comes(theirs, lambda: forgot.append(True))
    assert forgot == [True]
    ours.send("something")
    assert child._comes(theirs, lambda: forgot.append(True))
    assert forgot == [True]


# Whose fault


def compile_error(kind: type[CompileError], line: str) -> CompileError:
    return kind("cpu", "g++", (line,), Path("a.hip"), Path("a.log"))


@pytest.mark.parametrize(
    "error, kind, own",
    [
        (compile_error(CompileError, "a.hip:1: error: no"), CompileFailed, True),
        (compile_error(CompileError, "g++: fatal error: Killed signal"), NotCompiled, False),
        (compile_error(CompileError, "exit status -9, nothing printed"), NotCompiled, False),
        (compile_error(CompileError, "k.s: error: Disk quota exceeded"), NotCompiled, False),
        (compile_error(CompileError, "error: 'Stale file handle'"), NotCompiled, False),
        (
            compile_error(
                CompileError, "g++: fatal error: vfork: Resource temporarily unavailable"
            ),
            NotCompiled,
            False,
        ),
        (compile_error(CompileError, "fatal error: x.h: Too many open files"), NotCompiled, False),
        (compile_error(CompileError, "exit status 137, nothing printed"), NotCompiled, False),
        (compile_error(CompileError, "exit status 1, nothing printed"), CompileFailed, True),
        (
            compile_error(CompileError, "nvcc error: 'ptxas' died due to signal 9 (Kill signal)"),
            NotCompiled,
            False,
        ),
        (
            compile_error(
                CompileError,
                "g++: internal compiler error: Segmentation fault signal terminated program",
            ),
            CompileFailed,
            True,
        ),
        (compile_error(CompileTimeoutError, "stopped after 300 s"), NotCompiled, False),
        (MissingCompilerError("no compiler"), NotCompiled, False),
        (TritonCompileError("no"), CompileFailed, True),
        (TritonCompileError("k: out of resource: shared memory"), CompileFailed, True),
        (TritonCompileError("k: [Errno 28] No space left on device"), NotCompiled, False),
        (TritonCompileError("k: [Errno 122] Disk quota exceeded"), NotCompiled, False),
        (TritonCompileError("ended with status 1: MemoryError"), NotCompiled, False),
        (TritonCompileError("RuntimeError: can't start new thread"), NotCompiled, False),
        (TritonMissingError("no Triton"), NotCompiled, False),
        (KernelError("rocm_gemm", 1, "invalid value"), EntryFailed, True),
        (KernelError("rocm_gemm", 2, "out of memory"), OutOfMemory, False),
        (torch.OutOfMemoryError("CUDA out of memory"), OutOfMemory, False),
        (MemoryError(), OutOfMemory, False),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), OutOfMemory, False),
        (RuntimeError("something else"), ChoiceError, False),
        (WrongResult("by 3"), WrongResult, True),
        (TimedOut("no result"), TimedOut, False),
        (DeviceLost("lost"), DeviceLost, False),
    ],
)
def test_whose_fault_it_is(error: Exception, kind: type[ChoiceError], own: bool) -> None:
    failure = choice_error(error)
    assert type(failure) is kind and is_own_fault(failure) == own
    choice = SimpleNamespace(name="rocm_gemm_0", description="")
    told = ErrorFromChoice(failure, choice, "8x8")
    told.__cause__ = failure
    assert is_own_fault(told) == own


def test_only_a_compilers_own_errors_are_repeated_without_another_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker may be kept long after its disk was full."""
    monkeypatch.setattr(request, "_failed", {})
    errors = [
        compile_error(CompileError, "a.hip:1: error: no"),
        compile_error(CompileError, "error: No space left on device"),
    ]

    class Fails(request.Spec):
        def _load(self) -> None:
            raise errors.pop()

    spec = Fails()
    for expected in (NotCompiled, CompileFailed, CompileFailed):
        with pytest.raises(expected):
            spec.load()
    assert not errors


# The device


class Devices:
    """A fake of the calls that switch devices, for a machine that has none: it knows which device
    is current, and has a stream of its own for each."""

    def __init__(self) -> None:
        self.index = 0
        self.waited: list[int] = []

    @contextlib.contextmanager
    def device(self, device: Any) -> Iterator[None]:
        before, self.index = self.index, torch.device(device).index
        try:
            yield
        finally:
            self.index = before

    def current_stream(self, device: Any) -> object:
        return SimpleNamespace(cuda_stream=1000 + torch.device(device).index)

    def synchronize(self, device: Any) -> None:
        self.waited.append(torch.device(device).index)


class Spec:
    """A kernel whose calls are written down: the device that is current, and the stream."""

    entry, target, hash_key = "rocm_gemm", "sm_90", "hash"

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.calls: list[tuple[int, object]] = []

    def load(self) -> Any:
        return self

    def workspace_bytes(self, integers: Any) -> int:
        self.calls.append((self.devices.index, 1000 + self.devices.index))
        return 64

    def __call__(self, *arguments: Any) -> None:
        self.calls.append((self.devices.index, arguments[-1]))


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[Devices]:
    """GPUs whose memory is the CPU's, and whose events say 1 ms."""
    devices = Devices()
    for name in ("device", "current_stream", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, getattr(devices, name))

    def timed(run: Callable[[], object]) -> float:
        run()
        return 1.0

    monkeypatch.setattr(benchmarking.benchmarker, "benchmark_gpu", timed)
    make, empty = TensorPlan.make, torch.empty
    monkeypatch.setattr(
        tensors.TensorPlan,
        "make",
        lambda plan: make(TensorPlan("cpu", plan.dtype, plan.sizes, plan.strides)),
    )
    monkeypatch.setattr(
        request.torch, "empty", lambda *sizes, dtype, device: empty(*sizes, dtype=dtype)
    )
    yield devices
    request.forget_problem()


def product(spec: Spec) -> Any:
    """Return the request of a product on the second GPU."""
    meta = SimpleNamespace(
        device=torch.device("cuda", 1), dtype=torch.float32, sizes=(8, 8), strides=(8, 1), offset=0
    )
    return ROCmBenchmarkRequest(spec, [meta, meta], meta, [], None)  # type: ignore[arg-type]


def test_a_kernel_finds_its_own_device_current(devices: Devices) -> None:
    spec = Spec(devices)
    asked = product(spec)
    assert asked.benchmark() == 1.0
    asked.computed([torch.ones(8, 8), torch.ones(8, 8)])
    assert len(spec.calls) == 5 and set(spec.calls) == {(1, 1001)}
    assert devices.index == 0 and set(devices.waited) == {1}


def test_a_program_that_times_with_the_profiler_has_ours_timed_so_elsewhere(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiled: list[bool] = []

    def do_bench(run: Callable[[], object]) -> float:
        run()
        profiled.append(True)
        return 2.5

    monkeypatch.setattr(utils, "do_bench_using_profiling", do_bench)
    with config.patch(profile_bandwidth_with_do_bench_using_profiling=True):
        asked = product(Spec(devices))
    assert pickle.loads(pickle.dumps(asked)).benchmark() == 2.5
    assert product(Spec(devices)).benchmark() == 1.0
    assert profiled == [True]


def test_the_process_loads_nothing_that_compiles_graphs() -> None:
    """What a request needs, with the kernels of ours in it, and no more: half of its start was the
    import of Inductor's lowerings and selector."""
    heavy = ("graph", "kernel.mm", "lowering", "scheduler", "select_algorithm")
    program = "\n".join(
        (
            "import sys, backend.inductor.benchmark.request",
            f"print([name for name in {heavy!r} if 'torch._inductor.' + name in sys.modules])",
        )
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert loaded.stdout == "[]\n", loaded.stderr
