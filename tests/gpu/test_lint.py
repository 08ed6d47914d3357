"""What `lint` says of a table of TunableOp, against PyTorch's own reader in C++.

Skipped where torch sees no GPU. It has passed on an NVIDIA H200 with torch 2.11; never yet on AMD.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rocm_tui.cli.entry import main

pytestmark = pytest.mark.torch

OP, PARAMS = "GemmTunableOp_Half_NN", "nn_256_64_512_ld_256_512_256"
VALIDATORS = """
import json, torch
import torch.cuda.tunable as tunable
torch.zeros(1, device="cuda")
tunable.enable()
print("\\n" + json.dumps(tunable.get_validators()))
"""
READ = """
import json, sys
import torch
import torch.cuda.tunable as tunable
torch.zeros(1, device="cuda")
tunable.enable()
tunable.tuning_enable(False)
taken = [bool(tunable.read_file(path)) and tunable.get_results() for path in sys.argv[1:]]
print("\\n" + json.dumps(taken))
"""


def told(code: str, folder: Path, *words: str) -> list[list[str]]:
    """What it prints last, run in a folder where PyTorch may leave files."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder, text=True, timeout=300, check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    lines: list[list[str]] = json.loads(done.stdout.strip().splitlines()[-1])
    return lines


@pytest.fixture(scope="module")
def validators(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Lines as this PyTorch writes them."""
    facts = told(VALIDATORS, tmp_path_factory.mktemp("torch"))
    return [f"Validator,{name},{value}\n" for name, value in facts]


def changed(case: str, validators: list[str]) -> bytes:
    lines = list(validators)
    at = next(at for at, line in enumerate(lines) if line.startswith("Validator,PT_VERSION,"))
    first = lines.pop(at)
    other = "Validator,PT_VERSION,1.0.0\n"
    if case != "validator-missing":
        lines = [other if case == "validator-version" else first, *lines]
    if case == "validator-twice":
        lines.append(other)
    text = "".join((*lines, f"{OP},{PARAMS},Default,0.25\n")).encode()
    if case == "line-ends":
        return text.replace(b"\n", b"\r\n")
    return b"\xef\xbb\xbf" + text if case == "mark" else text


@pytest.mark.parametrize(
    "case",
    ["", "validator-version", "validator-missing", "validator-twice", "line-ends", "mark"],
)
def test_what_is_said_to_be_ignored_is_ignored(
    case: str, validators: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tunableop_results0.csv"
    path.write_bytes(changed(case, validators))
    version = dict(line.strip().split(",", 2)[1:] for line in validators)["PT_VERSION"]
    code = main(["lint", str(path), "--torch", version, "--json"])
    rules = {found["rule"] for found in json.loads(capsys.readouterr().out)["findings"]}
    (taken,) = told(READ, tmp_path, str(path))
    assert bool(taken) is (case == "")
    assert code == (0 if case == "" else 1)
    assert case == "" or {"mark": "line-ends"}.get(case, case) in rules


def test_of_two_rows_the_first_is_kept(
    validators: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tunableop_results0.csv"
    rows = "".join(f"{OP},{PARAMS},Default,{ms}\n" for ms in (0.5, 0.25))
    path.write_text("".join(validators) + rows)
    main(["lint", str(path), "--rule", "duplicate", "--json"])
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert found["level"] == "note"
    (taken,) = told(READ, tmp_path, str(path))
    assert taken == [[OP, PARAMS, "Default", 0.5]]
