"""`python -m tests.amd`: a report without personal data, whatever fails, crashes or hangs."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from backend.toolchain.target import amdgpu
from tests.amd.__main__ import attempt, limit, main, where_to_send
from tests.amd.commands import Commands, Failed
from tests.amd.privacy import Privacy, of_this_machine
from tests.amd.steps import STEPS, Part, Step
from tests.support.gpu_lab import Gpu
from tests.support.places import ROOT

PRIVACY = Privacy({"/home/jane": "~", "/home/jane/work": "WORK"}, {"jane", "Jane Doe"}, {"box7"})


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ('File "/home/jane/x.py", line 3', 'File "~/x.py", line 3'),
        ("/home/jane/work/cache/4413", "WORK/cache/4413"),
        ("/home/janet/x.py", "PATH/x.py"),
        ("-I/mnt/acme/include -L/mnt/acme", "-IPATH -LPATH"),
        ("PATH=/mnt/acme/b:/mnt/acme", "PATH=PATH:PATH"),
        ("error:/mnt/acme/a.hip:3:1", "error:PATH/a.hip:3:1"),
        ("/usr/lib/a.so,/mnt/acme/b.so", "/usr/lib/a.so,PATH/b.so"),
        ("'/mnt/Acme Corp/x.py'", "'PATH/x.py'"),
        ("2>/mnt/acme/log", "2>PATH"),
        ("/usr/local/acme/bin/hipcc", "PATH"),
        ("/opt/rocm-7.0/lib/libamdhip64.so", "/opt/rocm-7.0/lib/libamdhip64.so"),
        ("https://github.com/x/y and/or 1/2", "https://github.com/x/y and/or 1/2"),
        ("preempted 44×/s, `./x/y`, ../x/y", "preempted 44×/s, `./x/y`, ../x/y"),
        ("by jane@BOX7.acme.corp:", "by EMAIL:"),
        ("root@box7, box7.acme.corp, box70", "root@HOST, HOST, box70"),
        ("torchinductor_jane of Jane Doe", "torchinductor_USER of USER"),
        ("10.1.2.3 127.0.0.1 6.16.6 fe80::1:2:3:4", "ADDRESS 127.0.0.1 6.16.6 ADDRESS"),
        ("aa:bb:cc:dd:ee:ff 0000:c1:00.0 12:13:14", "ADDRESS 0000:c1:00.0 12:13:14"),
        ("GPU-12345678-9abc-def0", "GPU-ID"),
    ],
)
def test_personal_data_of_a_text(text: str, clean: str) -> None:
    assert PRIVACY.text(text) == clean
    assert PRIVACY.value({text: [text, 1, None]}) == {clean: [clean, 1, None]}


def test_personal_data_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "jane"
    home.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(home)
    monkeypatch.setenv("HOME", str(link))
    monkeypatch.setenv("USER", "jdoe")
    privacy = of_this_machine(tmp_path / "work", ROOT)
    text = f"{home}/a {link}/b {tmp_path}/work/c {ROOT}/d {sys.prefix}/e jdoe {platform.node()}."
    assert privacy.text(text) == "~/a ~/b WORK/c CHECKOUT/d PYTHON/e USER HOST."


@pytest.mark.parametrize("home", ["/", ""])
def test_a_user_without_a_home(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.chdir(tmp_path)
    assert of_this_machine(Path("/tmp/w"), ROOT).text(f"/tmp/w/a /dev/kfd {tmp_path}") == (
        "WORK/a /dev/kfd PATH"
    )


PLANTED = """
import os, platform
raise RuntimeError(
    f"cannot open {os.environ['HOME']}/models/llama.bin or /mnt/planted-corp/planted-data for "
    f"{os.environ['USER']} on {platform.node()}, at {os.path.realpath(__file__)}, 10.20.30.40"
)
"""


def test_what_fails_everywhere_is_a_report_without_personal_data(tmp_path: Path) -> None:
    """Each command of each part meets a torch that cannot be loaded and says so in full."""
    home = tmp_path / "planted-home" / "planted-jane"
    package = tmp_path / "planted-packages" / "torch"
    for folder in (home, package):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text(PLANTED)
    report = tmp_path / "report.json"
    env = {"HOME": str(home), "USER": "planted-user", "PYTHONPATH": str(package.parent)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.amd", "--output", str(report), "--minutes", "10"],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    text = report.read_text()
    document = json.loads(text)
    outcomes = {part["part"]: part["outcome"] for part in document["parts"]}
    assert list(outcomes) == [step.name for step in STEPS]
    assert set(outcomes.values()) == {"failed", "not run"}
    errors = [part for part in document["parts"] if "cannot open" in part.get("error", "")]
    assert len(errors) > 4
    assert "~/models/llama.bin or PATH for USER on HOST, at PATH/__init__.py, ADDRESS" in text
    for planted in ("planted", "llama-", str(tmp_path), str(ROOT), "10.20.30.40"):
        assert planted not in text.replace("llama.bin", ""), planted
        assert planted not in done.stdout.replace(str(report), ""), planted
    assert f" {platform.node()}" not in text
    assert done.stdout.splitlines()[-1].endswith(where_to_send())
    assert document["send"] == where_to_send()


def attempted(work: Any, folder: Path, seconds: float = 60.0) -> dict[str, Any]:
    commands = Commands(sys.executable, folder, "cpu", time.monotonic() + seconds)
    return attempt(Step("it", "it", 1, work), commands, {})


def python(part: Part, code: str) -> str:
    return part.commands.run([sys.executable, "-c", code]).stdout


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_is_a_result(number: signal.Signals, tmp_path: Path) -> None:
    code = f"import os; os.write(2, b'last'); os.kill(os.getpid(), {int(number)})"
    result = attempted(lambda part: python(part, code), tmp_path)
    assert result["outcome"] == "crashed" and number.name in result["says"]
    assert result["error"] == "last" and result["commands"][0]["ended"] == number.name


def test_a_part_that_hangs_ends_with_all_that_it_started(tmp_path: Path) -> None:
    inner = "import time; time.sleep(600)"
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {inner!r}], start_new_session=True)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "print('began', file=sys.stderr, flush=True)\n"
        "child.wait()"
    )
    begin = time.monotonic()
    result = attempted(lambda part: python(part, code), tmp_path, 6)
    assert result["outcome"] == "time limit" and "did not end within" in result["says"]
    assert result["error"] == "began" and time.monotonic() - begin < 30
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_numerics_go_on_behind_a_kernel_that_crashes(tmp_path: Path) -> None:
    """In place of Python a program that crashes at the first two kernels."""
    program = tmp_path / "python"
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '*"after gemm b"*) printf "2 of 4 kernels\\nMI300X\\ncalls\\n0 wrong\\n"; exit;;\n'
        '*"after gemm a"*) echo "trying gemm b, seed 1" >&2;;\n'
        '*) echo "trying gemm a, seed 1" >&2;;\n'
        "esac\n"
        "echo Memory access fault >&2; kill -ABRT $$\n"
    )
    program.chmod(0o755)
    (step,) = [step for step in STEPS if step.name == "numerics"]
    commands = Commands(str(program), tmp_path, "cuda", time.monotonic() + 300)
    result = attempt(step, commands, {})
    assert result["outcome"] == "crashed" and len(result["commands"]) == 3
    assert re.fullmatch(
        r"gemm a: .*SIGABRT; gemm b: .*SIGABRT; the others: 0 wrong; calls", result["says"]
    )
    assert all("Memory access fault" in crash for crash in result["data"]["printed"])
    assert "0 wrong" in result["data"]["counts"]


@pytest.mark.parametrize(("given", "outcome"), [(None, "failed"), ("cpu", "ok")])
def test_a_gpu_that_torch_does_not_see_is_a_failure(
    given: str | None, outcome: str, tmp_path: Path
) -> None:
    """In place of Python a program that prints the facts of a torch for ROCm."""
    facts: dict[str, Any] = {
        "torch": "2.13",
        "hip": "7.0",
        "cuda": None,
        "available": False,
        "gpus": [],
    }
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho '{json.dumps({**facts, 'kfd': 'no permission'})}'\n")
    program.chmod(0o755)
    commands = Commands(str(program), tmp_path, "cpu", time.monotonic() + 60)
    result = attempt(STEPS[0], commands, {"device given": given})
    assert result["outcome"] == outcome and "HIP 7.0" in result["says"]
    assert ("/dev/kfd: no permission" in result["says"]) == (given is None)


def test_a_report_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--output", str(tmp_path / "gone" / "report.json")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "gone/report.json" in line and "--output" in line


def test_a_failure_of_any_kind_is_a_result(tmp_path: Path) -> None:
    failures: tuple[tuple[Exception, str], ...] = (
        (KeyError("pins"), "KeyError: 'pins'"),
        (Failed("no choice"), "no choice"),
    )
    for error, says in failures:

        def work(part: Part, error: Exception = error) -> str:
            part.data["seen"] = 1
            raise error

        result = attempted(work, tmp_path)
        assert (result["outcome"], result["says"]) == ("failed", says)
        assert result["data"] == {"seen": 1}


def test_a_part_without_time_or_devices_is_not_run(tmp_path: Path) -> None:
    assert attempted(lambda part: "ran", tmp_path, 2)["outcome"] == "not run"
    for name in ("devices", "ranks"):
        (step,) = [step for step in STEPS if step.name == name]
        assert step.why_not({"gpus": 1}) and not step.why_not({"gpus": 8})


@pytest.mark.parametrize("minutes", [1, 10, 60])
@pytest.mark.parametrize("gpus", [1, 8])
def test_each_part_has_time_and_no_part_takes_that_of_later_ones(minutes: int, gpus: int) -> None:
    seconds = 60.0 * minutes
    ends = [limit(STEPS, number, {"gpus": gpus}, seconds) for number in range(len(STEPS))]
    assert ends == sorted(ends) and ends[-1] == seconds
    share = min(1.0, seconds / 540)
    for step, begin, end in zip(STEPS, [0.0, *ends], ends, strict=False):
        if not step.why_not({"gpus": gpus}):
            assert end - begin >= 0.999 * step.needs * share


def test_numerics_compile_for_the_architecture_of_an_amd_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Made up: the GPU, which no test machine has."""
    facts = type("Facts", (), {"gcnArchName": "gfx942:sramecc+:xnack-", "name": "MI300X"})
    facts.multi_processor_count = facts.major = facts.minor = 9  # type: ignore[attr-defined]
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    assert Gpu().target == amdgpu("gfx942")


@pytest.mark.torch
def test_a_rehearsal_on_a_cpu(tmp_path: Path) -> None:
    """Tune, watch, pin and prove through the real commands."""
    report = tmp_path / "report.json"
    words = ["--device", "cpu", "--minutes", "20", "--only", "torch", "watch", "pin"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.amd", *words, "--output", str(report)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1300,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(report.read_text())
    parts = {part["part"]: part for part in document["parts"]}
    for part in parts.values():
        assert part["outcome"] == "ok", part
    assert parts["torch"]["data"]["torch"] == str(torch.__version__)
    assert [row["ok"] for row in parts["pin"]["data"]["verify"]] == [True]
    assert len(document["summary"]) == 3 and len(document["not run"]) == len(STEPS) - 3
