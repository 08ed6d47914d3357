"""The worker's side of `tune --tunableop`: a build for the CPU refuses in a real worker; and what
PyTorch's own Python code does with a line, as far as it goes without a GPU.

There PyTorch's reader of untuned lists, its checks and its warnings are real. What lies below them
in a build for a GPU (the functions in C++, the matrices on a device) is a stand-in that counts, so
nothing is said here of a product that is tuned: that is tests/gpu/test_tunableop.py.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from backend.processes.shared import ChoiceMark
from backend.wire.jobs import JobInvalid, TunableOpJob, TunableOpResult, TunedProduct
from backend.worker.jobs import tunableop
from rocm_tui.cli.entry import main
from tests.support.documents import document

pytestmark = pytest.mark.torch

LINE = "GemmTunableOp_float_NN,nn_64_8_32_ld_64_32_64"
HEAD = "Validator,PT_VERSION,1.0.0\n"


def tuned(folder: Path, line: str = LINE) -> TunableOpResult:
    return tunableop.run(TunableOpJob(str(folder), line), lambda what, **fields: None, ChoiceMark())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this PyTorch can tune")
def test_a_worker_that_cannot_tune_says_so_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_TUNABLEOP_ENABLED", "1")
    untuned, table = tmp_path / "u.csv", tmp_path / "r.csv"
    untuned.write_text(f"{LINE}\n")
    words = ["tune", str(untuned), "--tunableop", "-o", str(table), "--json"]
    assert main([*words, "--cache-dir", str(tmp_path / "cache")]) == 1
    out, err = capsys.readouterr()
    done, error = out.splitlines()  # what was done, and why it went no further
    assert document(done, "tune-tunableop")["rows"] == []
    assert "not tuned" in document(error, "error")["error"]["message"]
    (line,) = err.strip().splitlines()
    why = "is built without TunableOp" if "+cpu" in torch.__version__ else "sees no GPU"
    assert f"1 product not tuned: PyTorch {torch.__version__} {why}" in line
    assert "PYTORCH_TUNABLEOP_ENABLED=1 python3 -c" in line
    assert not table.exists()


def test_a_job_is_one_line_and_a_folder(tmp_path: Path) -> None:
    for job in (TunableOpJob(str(tmp_path), "a\nb"), TunableOpJob(str(tmp_path / "no"), LINE)):
        with pytest.raises(JobInvalid):
            tunableop.run(job, lambda what, **fields: None, ChoiceMark())


class Below:
    """What a build for a GPU has below `torch.cuda.tunable`: switches, and rows of what was
    called."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.on = {"enable": False, "tuning": False, "record": False}
        self.filename = ""
        self.rows: list[tuple[str, str, str, float]] = []
        self.line = LINE
        functions = {
            "_cuda_tunableop_enable": lambda value: self.on.update(enable=value),
            "_cuda_tunableop_is_enabled": lambda: self.on["enable"],
            "_cuda_tunableop_tuning_enable": lambda value: self.on.update(tuning=value),
            "_cuda_tunableop_tuning_is_enabled": lambda: self.on["tuning"],
            "_cuda_record_untuned_enable": lambda value: self.on.update(record=value),
            "_cuda_tunableop_set_filename": self.named,
            "_cuda_tunableop_get_results": lambda: tuple(self.rows),
            "_cuda_tunableop_get_validators": lambda: (("PT_VERSION", torch.__version__),),
        }
        for name, function in functions.items():
            patch.setattr(torch._C, name, function, raising=False)
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "current_device", lambda: 0)
        patch.setattr(torch.cuda, "synchronize", lambda: None)
        patch.setattr(torch.cuda.tunable, "_create_matrices", self.built)

    def named(self, name: str, ordinal: bool) -> None:
        self.filename = name

    def built(self, m: int, n: int, k: int, *args: Any, **_: Any) -> tuple[torch.Tensor, ...]:
        """On the CPU; as if the product behind it were tuned, which happens once."""
        assert self.on == {"enable": True, "tuning": True, "record": False}
        op, params = self.line.split(",")
        if (op, params) not in [row[:2] for row in self.rows]:
            self.rows.append((op, params, "Default", 0.5))
        return torch.rand(m, k), torch.rand(k, n)


@pytest.fixture
def below(monkeypatch: pytest.MonkeyPatch) -> Below:
    for name in ("ENABLED", "TUNING", "RECORD_UNTUNED", "FILENAME", "VERBOSE"):
        monkeypatch.setenv(f"PYTORCH_TUNABLEOP_{name}", "0")
    return Below(monkeypatch)


def test_pytorchs_own_reader_takes_the_line(tmp_path: Path, below: Below) -> None:
    assert tuned(tmp_path) == TunableOpResult(
        True,
        validators={"PT_VERSION": torch.__version__},
        rows=(TunedProduct(*LINE.split(","), "Default", 0.5),),
    )
    assert Path(below.filename).parent == tmp_path
    assert below.on == {"enable": False, "tuning": False, "record": False}
    assert [name for name in os.environ if name.startswith("PYTORCH_TUNABLEOP_")] == [
        "PYTORCH_TUNABLEOP_VERBOSE"
    ]
    below.line = LINE.replace("64_8", "64_9")  # the first product is not told again
    assert [row.params for row in tuned(tmp_path, below.line).rows] == ["nn_64_9_32_ld_64_32_64"]
    below.line = LINE  # unless it is asked for again
    assert [row.params for row in tuned(tmp_path).rows] == ["nn_64_8_32_ld_64_32_64"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("GemmTunableOp_float_TN,tn_64_1_32_ld_32_32_64", "Offline tuning is not supported"),
        ("GemmTunableOp_float_NN,nn_64_8_32", "IndexError"),
        ("OtherTunableOp_float_NN,nn_64_8_32_ld_64_32_64", None),
        ("GemmTunableOp_Other_NN,nn_64_8_32_ld_64_32_64", "must be a torch.dtype"),
        ("not a product", "does not say why"),
    ],
)
def test_what_pytorch_says_against_a_line_is_told(
    line: str, why: str | None, tmp_path: Path, below: Below
) -> None:
    job = TunableOpJob(str(tmp_path), line)
    result = tunableop.run(job, lambda what, **fields: None, ChoiceMark())
    assert result.able and not result.rows
    assert (why or "does not say why") in result.reason
    assert below.on == {"enable": False, "tuning": False, "record": False}
