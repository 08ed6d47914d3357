"""Which torch the hooks know is what the smoke suite tries and what the document's table has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from backend.inductor.torch import versions
from tests.matrix import features
from tests.matrix.environments import OURS, VERSIONS, Places, TooSlow
from tests.matrix.lab import Lab, No, Ran
from tests.matrix.table import BEGIN, END, columns, put, table
from tests.support.places import ROOT

BMM, CPP = "bmm-cd5psz4hpk4z", "CppMicroGemmFP32Vec-c6zwguix5etk"
DOCUMENT = (ROOT / "docs" / "limits.md").read_text()


def minor(version: str) -> tuple[int, int]:
    major, second, _ = version.split(".")
    return int(major), int(second)


def test_what_is_known_is_what_was_tried() -> None:
    tried = [minor(version) for version in VERSIONS]
    assert tried == [(2, second) for second in range(8, 16)]
    assert tried[0] == versions.OLDEST and tried[-1] == versions.NEWEST
    for version in VERSIONS:
        assert versions.is_supported(version) and versions.is_supported(f"{version}+rocm6.4")
    for version in ("2.7.1", "2.5.1+cpu", "2.16.0", "3.1.0", "1.13.1", "", "a.b"):
        assert not versions.is_supported(version)
    assert versions.range_text() == "2.8 to 2.15"


def test_the_document_has_the_answers_of_all_that_is_known() -> None:
    assert columns(DOCUMENT) == list(VERSIONS)
    rows = DOCUMENT.partition(BEGIN)[2].partition(END)[0]
    for feature in features.FEATURES:
        assert f"| {feature.name} |" in rows


def test_a_table_tells_yes_no_and_why() -> None:
    found = {
        "2.8.0": {"reading": "", "verify": "it says | <b>no"},
        "2.9.1": {"reading": "", "verify": ""},
        "2.10.0": {"reading": "", "verify": "it says | <b>no", "tune": "late"},
    }
    assert table(found).splitlines() == [
        "|  | 2.8.0 | 2.9.1 | 2.10.0 |",
        "| --- | --- | --- | --- |",
        "| reading | yes | yes | yes |",
        "| verify | **no** (1) | yes | **no** (2) |",
        "| tune | - | - | **no** (3) |",
        "",
        "1. 2.8.0: it says \\| &lt;b>no",
        "2. 2.10.0: it says \\| &lt;b>no",
        "3. 2.10.0: late",
    ]


def test_a_table_takes_the_place_of_the_old_one() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert put(document, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    with pytest.raises(ValueError, match="has no"):
        put("no marks", "new")


def test_which_choice_the_code_calls() -> None:
    def ran(code: str) -> Ran:
        return Ran({"bmm": code}, "", 0)

    assert ran("extern_kernels.bmm(a, b)").calls("bmm", [BMM, CPP]) == BMM
    assert ran("kernel_micro_gemm<8>(").calls("bmm", [BMM, CPP]) == CPP
    for code in ("", "nothing", "extern_kernels.bmm( micro_gemm"):
        with pytest.raises(No):
            ran(code).calls("bmm", [BMM, CPP])


def test_a_given_environment_is_used_and_a_missing_one_has_a_limit(tmp_path: Path) -> None:
    given = tmp_path / "2.8.0" / "bin" / "python"
    given.parent.mkdir(parents=True)
    given.touch()
    assert Places(tmp_path).python("2.8.0") == str(given)
    with pytest.raises(TooSlow, match="takes longer than it may"):
        Places(tmp_path, within=0.01).python("0.0.1")
    assert not (OURS / "0.0.1").exists()


def test_a_python_without_torch_has_a_no_for_everything(tmp_path: Path) -> None:
    """Each answer can be no, with a reason of one line."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True
    )
    lab = Lab(str(tmp_path / "bare" / "bin" / "python"), tmp_path)
    answers = dict(features.tried(lab))
    assert len(answers) == len(features.FEATURES) + 1
    for name, reason in answers.items():
        assert reason and "\n" not in reason, name
    assert "torch" in answers["log and cache read"]
