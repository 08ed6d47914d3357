"""What is compiled ahead, by whom, and what is not; a run with agents of GPUs and of a CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from backend.disk.layout import Layout
from backend.wire.jobs import CompileResult, Gpu
from rocm_tui.actions.fleet import Run, Wanted
from rocm_tui.fleet import lines
from rocm_tui.fleet.ahead import Ahead
from rocm_tui.fleet.messages import Cancel, Compile, Compiled, Facts, Unit
from rocm_tui.fleet.pipe import Pipes
from rocm_tui.fleet.record import Reader
from rocm_tui.fleet.steps import Send
from tests.support.waiting_agent import HASH, waiting_starts, waiting_unit

GPU = Facts("box", "MI300X", "gfx942", 304, compilers={"hip": "a1"})
CPU = Facts("box", "cpu")
OF_CPU = "[('cpu', 'torch.float32', 8, 8, 8, 1, 0), ('cpu', 'torch.float32', 8, 8, 8, 1, 0)]"


def unit(number: int, seconds: float = 1.0, templates: bool = True) -> Unit:
    one = waiting_unit(number, seconds)
    return replace(one, job=replace(one.job, templates=templates))


def of_cpu(number: int) -> Unit:
    one = unit(number)
    return replace(one, job=replace(one.job, inputs=OF_CPU))


def compiled(step: Send, result: CompileResult | None) -> Compiled:
    assert isinstance(step.message, Compile)
    return Compiled(step.agent, step.message.lease, step.message.unit.id, result, "it died")


def test_a_problem_is_compiled_once_the_longest_first_for_a_gpu_that_finds_it() -> None:
    heats = [replace(unit(4), id="0000001.1", part_of="0000001"), unit(1, 2.0)]
    ahead = Ahead([*heats, unit(2, 5.0), unit(3, templates=False), of_cpu(5)])
    ahead.help("cpu", CPU)
    elsewhere = replace(GPU, host="other", store="8")
    assert ahead.steps(came=[elsewhere]) == [] and not ahead.over
    [first] = ahead.steps(came=[elsewhere, GPU])
    assert isinstance(first.message, Compile) and first.message.unit == unit(2, 5.0)
    assert first.message.gpu == Gpu("gfx942", 304, {"hip": "a1"})
    assert ahead.compiled(
        compiled(first, CompileResult(ok=True, compiled=3, off=("HIP: no",)))
    ) == ["cpu compiles ahead, but for HIP: no"]
    [second] = ahead.steps()
    assert isinstance(second.message, Compile) and second.message.unit.id == "0000001"
    assert ahead.compiled(compiled(second, CompileResult(ok=True, found=2, off=("HIP: no",)))) == []
    assert ahead.steps() == [] and ahead.over
    assert ahead.total == lines.Compiled("", 3, 2)


def test_what_a_gpu_begins_with_is_left_to_it_at_once() -> None:
    ahead = Ahead([unit(1, 3.0), unit(2, 2.0), unit(3)])
    ahead.help("cpu", gpu=Gpu("gfx942", 304))
    [first] = ahead.steps()
    assert isinstance(first.message, Compile)
    cancel, third = ahead.steps({unit(1).id, unit(2).id})
    assert cancel == Send("cpu", Cancel(first.message.lease))
    assert isinstance(third.message, Compile) and third.message.unit.id == unit(3).id
    assert ahead.compiled(compiled(first, CompileResult(ok=True, compiled=1))) == []  # too late
    assert ahead.total.compiled == 0


def test_who_can_compile_nothing_gets_nothing_more() -> None:
    ahead = Ahead([unit(1), unit(2), unit(3)])
    for name in "ab":
        ahead.help(name, gpu=Gpu("gfx942", 304))
    one, other = ahead.steps()
    off = CompileResult(ok=False, reason="HIP: no; Triton: no", off=("HIP: no", "Triton: no"))
    assert ahead.compiled(compiled(one, off)) == ["a compiles nothing ahead: HIP: no; Triton: no"]
    assert ahead.compiled(compiled(other, None)) == ["b compiles nothing ahead: it died"]
    assert ahead.steps() == [] and ahead.over and ahead.left == ["mm 3"]


def test_a_run_has_its_cpus_compile_and_leaves_problems_of_a_cpu_out(tmp_path: Path) -> None:
    units = [*(unit(n, 0.3) for n in range(1, 9)), of_cpu(9)]
    starts = waiting_starts(["gpu"]) | waiting_starts(["cpu1", "cpu2"], HASH, "cpu")
    told: list[str] = []
    wanted = Wanted(fleet=("test",))  # the canary is a GPU's problem
    with Run.begin(Layout(tmp_path), wanted, units) as run:
        run.work(Pipes(starts), tell=told.append)
    counts = run.standing.counts()
    assert (counts.units, counts.merged, counts.left, counts.cancelled) == (8, 8, 0, 0)
    assert any(
        text.startswith("1 problem of a CPU is left out: the devices of this run are GPUs")
        for text in told
    )
    news = [line for _, line in Reader(run.path).news()]
    assert {line.done.agent for line in news if isinstance(line, lines.Done)} == {"gpu"}
    helpers = [run.standing.agents[name] for name in ("cpu1", "cpu2")]
    assert all(helper.ahead is not None for helper in helpers)
    many = sum(helper.ahead.compiled for helper in helpers if helper.ahead is not None)
    assert 2 <= many <= 2 * 7  # two choices of each, none of what the GPU began with
