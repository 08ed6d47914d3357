"""What each check of `doctor` says, by what it finds."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.tuning import Pin
from backend.sharing.mega_cache import Artifact, HiddenPin
from backend.wire.jobs import Environment
from rocm_tui.actions import doctor
from rocm_tui.actions.commands import ShellCommands
from rocm_tui.actions.doctor import DoctorCheck
from rocm_tui.errors import RocmTuiError

GPU = Environment(
    torch="2.13.0", hip="7.1", triton="3.6.0", triton_target="hip:gfx942", gpu=True,
    device="AMD Instinct MI300X", arch="gfx942", compute_units=304,
)  # fmt: skip


def test_a_file_that_cannot_be_looked_at_ends_one_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path)
    (layout.fxgraph / "a").mkdir(parents=True)
    (layout.fxgraph / "a" / "graph").write_bytes(b"")
    stock = Path.is_file

    def is_file(path: Path) -> bool:
        if path.name == "graph":
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return stock(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    checks = doctor.examine(layout, "/no/python")
    (bad,) = [check for check in checks if check.value == "cannot be checked"]
    assert (bad.name, bad.verdict) == ("cache dir", "bad") and "Stale file handle" in bad.advice
    assert {"torch", "tunings", "pins", "inotify"} <= {check.name for check in checks}


def of(checks: list[DoctorCheck], name: str) -> DoctorCheck:
    (check,) = [check for check in checks if check.name == name]
    return check


@pytest.mark.parametrize(
    ("change", "name", "verdict", "value", "advice"),
    [
        ({}, "torch", "ok", "2.13.0, HIP 7.1", ""),
        ({"hip": None, "cuda": "12.8"}, "torch", "ok", "2.13.0, CUDA 12.8", ""),
        ({"hip": None}, "torch", "ok", "2.13.0, CPU only", ""),
        ({}, "device", "ok", "AMD Instinct MI300X (gfx942), 304 compute units", ""),
        ({"arch": None, "compute_units": None}, "device", "ok", "AMD Instinct MI300X", ""),
        ({"gpu": False, "device": "cpu"}, "device", "note", "cpu (gfx942)", "no GPU"),
        ({}, "hooks", "ok", "fit", ""),
        ({"hooks_off": "too old"}, "hooks", "note", "off: too old", "without recording"),
        ({}, "templates", "ok", "fit", ""),
        ({"templates_off": "no jinja2"}, "templates", "note", "off: no jinja2", "--templates"),
        ({}, "target triton:hip:gfx942", "ok", "Triton 3.6.0", ""),
        ({"triton_off": "no Triton"}, "target triton", "note", "off", "no Triton"),
    ],
)
def test_what_the_python_with_torch_reports(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    name: str,
    verdict: str,
    value: str,
    advice: str,
) -> None:
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    monkeypatch.setattr(doctor, "find_python", lambda wanted: f"/{wanted}")
    answer = Environment(**{field: getattr(GPU, field) for field in GPU.__slots__} | change)
    asked: list[tuple[object, ...]] = []

    def run_job(job: object, *, python: str, cache_dir: Path, timeout: float) -> Environment:
        asked.append((job, python, cache_dir, timeout))
        return answer

    monkeypatch.setattr(doctor, "run_job", run_job)
    checks = list(doctor._torch(Layout(tmp_path), "python", 7.0))
    assert asked == [(doctor.EnvironmentJob(fit=True), "/python", tmp_path, 7.0)]
    assert of(checks, "python").value == "/python"
    check = of(checks, name)
    assert check.verdict == verdict and value in check.value and advice in check.advice
    assert bool(check.advice) == bool(advice)


def test_hooks_that_torch_may_not_load_are_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    monkeypatch.setattr(doctor, "find_python", lambda wanted: "/python")
    monkeypatch.setattr(doctor, "run_job", lambda *_, **__: GPU)
    check = of(list(doctor._torch(Layout(tmp_path), None, 7.0)), "hooks")
    assert check.verdict == "bad" and "AUTOLOAD" in check.advice


def test_a_worker_that_does_not_start_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Environment:
        raise RocmTuiError("no such interpreter")

    monkeypatch.setattr(doctor, "find_python", lambda wanted: "/python")
    monkeypatch.setattr(doctor, "run_job", refuse)
    *_, last = doctor._torch(Layout(tmp_path), None, 7.0)
    assert (last.name, last.verdict, last.advice) == ("torch", "bad", "no such interpreter")


@pytest.mark.parametrize(
    ("term", "verdict", "value"),
    [("xterm", "ok", "TERM=xterm"), ("dumb", "note", "TERM=dumb"), ("", "note", "TERM=unset")],
)
def test_a_terminal_that_cannot_move_its_cursor_is_noted(
    term: str, verdict: str, value: str
) -> None:
    check = of(list(doctor._terminal({"TERM": term} if term else {})), "terminal")
    assert (check.verdict, check.value) == (verdict, value)
    assert bool(check.advice) == (verdict == "note")


def test_a_driver_that_breaks_when_it_is_asked_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def gpus() -> list[Any]:
        raise RuntimeError("driver\nbroken")

    monkeypatch.setattr(doctor, "gpus", gpus)
    (check,) = doctor.gpu_checks()
    assert (check.name, check.verdict) == ("gpus", "note")
    assert "broken" in check.advice and "\n" not in check.advice


def test_a_gpu_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def __init__(self, gpus: object) -> None:
            self.stopped = False

        def ask(self) -> None:
            return

        def seen(self) -> list[Any]:
            device = doctor_device()
            return [device]

        def stop(self) -> None:
            stopped.append(True)

    def doctor_device() -> Any:
        from backend.measure.devices import LatestReading, MachineDevice, Usage
        from backend.measure.sensors import DeviceState, SensorReading

        read = SensorReading(Usage(), DeviceState())
        return LatestReading(MachineDevice("0", "a GPU", "", lambda: read), None)

    stopped: list[bool] = []
    monkeypatch.setattr(doctor, "gpus", list)
    monkeypatch.setattr(doctor, "Readers", Silent)
    monkeypatch.setattr(doctor, "_DRIVER_PATIENCE", 0.05)
    (check,) = doctor.gpu_checks()
    assert check.name == "gpu 0" and stopped == [True]


def test_the_contents_of_a_cache_dir_are_counted(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for folder, count in ((layout.fxgraph, 2), (layout.aotautograd, 1), (layout.sessions, 3)):
        (folder / "deep").mkdir(parents=True)
        for number in range(count):
            (folder / f"{number}.jsonl").write_text("x")
    (layout.fxgraph / "deep" / "er").write_text("x")
    checks = list(doctor._cache(layout))
    assert of(checks, "cache dir") == DoctorCheck("cache dir", "ok", str(tmp_path))
    assert of(checks, "fxgraph cache").value.startswith("3 ")
    assert of(checks, "aotautograd cache").value.startswith("1 ")
    assert of(checks, "sessions").value.startswith("3 ")
    assert of(checks, "tunings").value == "0 in 0 cache files"


def test_a_folder_of_ours_that_others_can_write_is_bad(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.home.mkdir()
    layout.home.chmod(0o777)
    check = of(list(doctor._cache(layout)), "cache dir")
    assert check.verdict == "bad" and str(layout.home) in check.advice


def test_names_that_lead_out_of_the_cache_dir_are_bad() -> None:
    inside = Artifact("inductor", "f" * 53, 0, 5)
    outside = Artifact("autotune", "../../evil", 0, 5)
    assert list(doctor._dangers([inside])) == []
    (check,) = doctor._dangers([inside, outside, outside])
    assert check.verdict == "bad" and check.value.startswith("2 names")
    assert "../../evil" in check.value


@pytest.mark.parametrize(
    ("states", "verdict", "value"),
    [
        (["new", "same"], "ok", "1 new, 1 as here, 0 would replace"),
        (["other", "other", "new"], "note", "1 new, 0 as here, 2 would replace others"),
        (["other"], "note", "1 would replace another"),
    ],
)
def test_configurations_that_replace_others_are_noted(
    states: list[str], verdict: str, value: str
) -> None:
    overwritten: Any = dict(enumerate(states))
    (check,) = doctor._overwriting(overwritten)
    assert check.verdict == verdict and value in check.value
    assert list(doctor._overwriting({})) == []


def test_a_pin_is_hidden_where_a_graph_surely_calls_another_choice(tmp_path: Path) -> None:
    pin = Pin("mm", "[]", "highest", "mm-1", "mm", "s", {})
    other = Pin("bmm", "[]", "highest", "bmm-1", "bmm", "s", {})
    graphs = [Artifact("inductor", f"{at}" * 20, 0, 5) for at in range(3)]
    hidden = [
        HiddenPin(pin, graphs[0], "other"),
        HiddenPin(pin, graphs[1], "unknown"),
        HiddenPin(other, graphs[2], "unknown"),
        HiddenPin(other, graphs[1], "unknown"),
    ]
    sure, unsure = doctor._hiding(hidden, ShellCommands(Layout(tmp_path)))
    assert (sure.verdict, unsure.verdict) == ("bad", "note")
    assert sure.value == f"{pin.id} (mm) is hidden by 1 graph: {'0' * 12}"
    assert unsure.value == f"{other.id} (bmm) may be hidden by 2 graphs: {'2' * 12}"
    where = f"--cache-dir {tmp_path}`"
    assert f"`rocm-tui pin --reconcile {where}" in sure.advice
    assert f"`rocm-tui verify {where}" in unsure.advice


def test_what_is_no_mega_cache_is_bad(tmp_path: Path) -> None:
    file = tmp_path / "mega"
    file.write_bytes(b"no mega-cache")
    examined = doctor.examine_mega_cache(file, Layout(tmp_path))
    (check,) = examined.checks
    assert (check.name, check.verdict) == ("mega-cache", "bad") and check.advice
    assert examined.path == str(file) and examined.mega is None


def test_targets_without_a_compiler_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    found = SimpleNamespace(
        target="cpu", available=True, compiler="g++", version="12.2", reason=None
    )
    gone = SimpleNamespace(target="gfx942", available=False, reason="no clang++")
    monkeypatch.setattr(doctor.targets, "report", lambda: [found, gone])
    cpu, gfx942 = doctor._kernel_targets()
    assert (cpu.name, cpu.verdict, cpu.value) == ("target cpu", "ok", "g++ 12.2")
    assert (gfx942.name, gfx942.verdict, gfx942.advice) == ("target gfx942", "note", "no clang++")


@pytest.mark.parametrize(("out", "err", "said"), [("one\ntwo", "", "one"), ("", "three", "three")])
def test_a_compiler_says_its_version_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, err: str, said: str
) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text(f"#!/bin/sh\nprintf '{out}'\nprintf '{err}' >&2\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    (check,) = doctor._compilers()
    assert (check.verdict, check.value) == ("ok", said)


def test_a_compiler_that_cannot_be_run_costs_no_other_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("no program")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    (check,) = doctor._compilers()
    assert check.verdict == "note" and "Exec format error" in check.advice
