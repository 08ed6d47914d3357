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
from rocm_tui.actions.verify import (
    PinToVerify,
    keep_program,
    keep_result,
    of_devices,
    verify,
    why_not_here,
)
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


OK = VerifyResult(True, kernel="triton_mm_4", hash="triton_mm-c4", torch="2.13.0")
OTHER = VerifyResult(False, "it calls mm", kernel="mm", hash="mm-1", torch="2.13.0")
GONE = VerifyResult(False, "no GPU", rebuilt=False)


@pytest.mark.parametrize(
    ("results", "ok", "hash", "reason", "rebuilt"),
    [
        ({0: OK, 1: OK}, True, "triton_mm-c4", "called on 0-1", True),
        ({0: OK, 1: OTHER}, False, "mm-1", "called on 0; not called on 1: it calls mm", True),
        ({0: GONE, 1: OK}, False, None, "called on 1; not verified on 0: no GPU", False),
        (
            {0: GONE, 1: OTHER, 2: GONE},
            False,
            "mm-1",
            "not verified on 0, 2: no GPU; not called on 1: it calls mm",
            False,
        ),
    ],
)
def test_the_result_of_several_devices(
    results: dict[int | None, VerifyResult], ok: bool, hash: str | None, reason: str, rebuilt: bool
) -> None:
    """What refutes the pin is shown before what could not be verified."""
    result = of_devices(results)
    assert (result.ok, result.hash, result.rebuilt) == (ok, hash, rebuilt)
    assert result.reason.replace("0,2", "0, 2") == reason
    assert list(getattr(result, "devices", {})) == [str(gpu) for gpu in results]
    assert result.torch == ("" if hash is None else "2.13.0")


def test_the_result_of_one_device_is_the_result() -> None:
    assert of_devices({None: GONE}) is GONE


@pytest.mark.parametrize(
    ("result", "proofs"),
    [
        (OK, [(True, "torch 2.13.0")]),
        (OTHER, [(False, "it calls mm")]),
        (GONE, []),
        (VerifyResult(True, "by\x1b[31m" + "x" * 500), [(True, "by␛[31m")]),
    ],
)
def test_what_proves_something_is_kept_with_the_pin(
    tmp_path: Path, result: VerifyResult, proofs: list[tuple[bool, str]]
) -> None:
    layout = Lab(tmp_path, 0).layout
    (pin,) = PinStore(layout).pins()
    keep_result(layout, pin, result)
    found = [status.proof for status in PinStore(layout).status() if status.proof]
    notes = [entry.note for entry in PinStore(layout).history() if entry.what != "pin"]
    assert len(found) == len(notes) == len(proofs)
    for proof, note, (ok, what) in zip(found, notes, proofs, strict=True):
        assert proof.ok is ok and note.startswith(what) and len(note) <= 200
        assert (proof.by, proof.torch) == ("verify", result.torch)


def test_a_proof_that_cannot_be_written_stays_true(tmp_path: Path) -> None:
    layout = Lab(tmp_path, 0).layout
    (pin,) = PinStore(layout).pins()
    keep_program(layout, pin, ok=True, program="python train.py")
    (status,) = PinStore(layout).status()
    assert status.proof is not None
    assert (status.proof.by, status.proof.ok, status.proof.torch) == ("program", True, "")
    assert PinStore(layout).history()[-1].note == "python train.py"
    layout.pins.write_text("no JSON")
    keep_program(layout, pin, ok=True, program="python train.py")


@pytest.mark.parametrize(
    ("op", "why"),
    [("mm", ""), ("triton", "its own program"), ("pointwise", "its own program"),
     ("table:tunableop:x", "another tuner")],
)  # fmt: skip
def test_who_can_prove_a_pin(tmp_path: Path, op: str, why: str) -> None:
    (pin,) = PinStore(Lab(tmp_path, 0).layout).pins()
    its = replace(pin, op=op)
    assert why in why_not_here(its) and bool(why_not_here(its)) == bool(why)
    if why:
        result = verify(lambda job: pytest.fail("it was asked"), PinToVerify(its))  # type: ignore[arg-type]
        assert not result.ok and why in result.reason


def test_the_job_of_a_pin_has_the_threads_and_options_of_its_tuning(tmp_path: Path) -> None:
    (pin,) = PinStore(Lab(tmp_path, 0).layout).pins()
    job = PinToVerify(pin, 3, "beta=2", (1,)).job(2, 1)
    assert (job.op, job.inputs, job.precision, job.hash) == (
        pin.op, pin.inputs, pin.precision, pin.hash,
    )  # fmt: skip
    assert (job.mode, job.threads, job.options, job.gpu) == (2, 3, "beta=2", 1)
    assert PinToVerify(pin).places == (None,) and PinToVerify(pin, gpus=(1, 2)).places == (1, 2)
    assert PinToVerify(pin).job().mode == 0


def test_of_the_modes_the_conclusive_one_counts_else_the_first(tmp_path: Path) -> None:
    (pin,) = PinStore(Lab(tmp_path, 0).layout).pins()

    def verified(*answers: VerifyResult) -> VerifyResult:
        return verify(lambda job: answers[job.mode], PinToVerify(pin))  # type: ignore[arg-type]

    vague = [VerifyResult(False, f"mode {n}", conclusive=False, modes=3) for n in range(3)]
    assert verified(*vague) == vague[0]
    sure = replace(OTHER, modes=3)
    assert verified(vague[0], sure, vague[2]) == sure
