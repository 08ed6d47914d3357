"""`verify` proves a pin on each GPU that its status lists.

The workers are real processes; `verify_workers.py` says what each does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from backend.wire.jobs import VerifyJob, VerifyResult
from rocm_tui.actions.verify import PinToVerify, of_devices, verify
from rocm_tui.errors import UsageError
from tests.support.device_modules import compiled_on, write_choice
from tests.support.torch_models import child_env
from tests.support.verify_workers import verifying_python

F16 = "'cuda', 'torch.float16'"
INPUTS = f"[({F16}, 64, 64, 64, 1, 0), ({F16}, 64, 32, 32, 1, 0)]"
KEY = TuningKey("mm", INPUTS, "highest")


class Lab:
    """A pin of a problem that `devices` have tuned, and workers of ours."""

    def __init__(self, folder: Path, *devices: int) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.layout = Layout(self.cache)
        self.python = verifying_python(folder)
        self.layout.autotune.mkdir(parents=True)
        pinned = [write_choice(self.cache, index, BLOCK_M=64) for index in devices]
        others = [write_choice(self.cache, index, BLOCK_M=32) for index in devices]
        times = {**dict.fromkeys(pinned, 2.0), **dict.fromkeys(others, 1.0), "mm": 3.0}
        document = {"system": {}, "cache": {"mm": {INPUTS: {"highest": times}}}}
        (self.layout.autotune / "hash").write_text(json.dumps(document, indent=4))
        compiled_on(self.cache, *devices)
        PinStore(self.layout).pin(None, KEY, pinned[0], label="triton_mm_4")

    def verify(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "rocm_tui", "verify", "--python", self.python, *words],
            env=child_env(self.cache),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return (done.stdout or done.stderr).strip()

    def gpus(self) -> list[int]:
        return [int(line) for line in (self.folder / "gpus").read_text().split()]

    def proofs(self) -> list[bool]:
        return [status.proof.ok for status in PinStore(self.layout).status() if status.proof]


def test_a_pin_is_proved_on_each_device_that_tuned_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, 0, 1, 2, 3)
    (line,) = lab.verify().splitlines()
    assert ": called on 0-3: triton_mm_4 (" in line
    assert lab.gpus() == [0, 1, 2, 3]
    assert lab.proofs() == [True]
    assert len((tmp_path / "started").read_text().split()) == 1


def test_a_device_that_calls_another_choice_refutes_the_pin(tmp_path: Path) -> None:
    lab = Lab(tmp_path, 0, 1, 2, 3)
    (tmp_path / "other_on_3").touch()
    line = lab.verify(code=1)
    assert line.endswith(": called on 0-2; not called on 3: the generated code calls triton_mm_9")
    assert lab.proofs() == [False]


def test_one_device_can_be_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path, 0, 1, 2, 3)
    (tmp_path / "other_on_3").touch()
    assert "the generated code calls triton_mm_4" in lab.verify("--device", "2")
    assert lab.gpus() == [2]


def test_a_pin_of_one_device_is_proved_there_as_ever(tmp_path: Path) -> None:
    lab = Lab(tmp_path, 1)
    assert "the generated code calls triton_mm_4" in lab.verify()
    assert lab.gpus() == [1]


def test_json_has_the_result_of_each_device(tmp_path: Path) -> None:
    lab = Lab(tmp_path, 0, 1)
    (tmp_path / "other_on_1").touch()
    (pin,) = json.loads(lab.verify("--json", code=1))["pins"]
    assert not pin["ok"]
    assert {gpu: result["ok"] for gpu, result in pin["devices"].items()} == {"0": True, "1": False}


def test_a_device_of_a_program_is_its_own_matter(tmp_path: Path) -> None:
    said = Lab(tmp_path, 0).verify("--device", "0", "--", "true", code=2)
    assert "--device goes without CMD" in said


def test_devices_that_could_not_be_verified_refute_nothing() -> None:
    called = VerifyResult(True, kernel="triton_mm_4", hash="triton_mm-c4")
    gone = VerifyResult(False, "torch sees 2 GPUs {here}")
    result = of_devices({0: called, 1: called, 2: gone, 3: gone})
    assert result.reason == "called on 0-1; not verified on 2-3: torch sees 2 GPUs {here}"
    assert not result.ok and result.hash is None


def test_a_job_of_the_screen_proves_all_devices_too(tmp_path: Path) -> None:
    lab = Lab(tmp_path, 0, 1)
    (pin,) = PinStore(lab.layout).pins()
    jobs: list[VerifyJob] = []

    def run(job: VerifyJob) -> VerifyResult:
        jobs.append(job)
        return VerifyResult(job.gpu != 1, hash="triton_mm-c9", reason="another")

    result = verify(run, PinToVerify(pin, gpus=(0, 1)))  # type: ignore[arg-type]
    assert [job.gpu for job in jobs] == [0, 1]
    assert result.reason == "called on 0; not called on 1: another" and not result.ok


def test_a_pin_of_the_cpu_stays_there(tmp_path: Path) -> None:
    (pin,) = PinStore(Lab(tmp_path, 0).layout).pins()
    of_cpu = PinToVerify(replace(pin, inputs=INPUTS.replace("cuda", "cpu")))
    assert of_cpu.on("1").gpus == ()
    assert PinToVerify(pin).on("1").gpus == (1,)
    with pytest.raises(UsageError):
        PinToVerify(pin).on("first")
