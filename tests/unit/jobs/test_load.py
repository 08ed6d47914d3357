"""A busy machine is named before it is measured on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.model.tuning import Tuning
from rocm_tui.jobs import load
from rocm_tui.jobs.load import Load, busy_warning, read_load

UNCLEAR = "the result will probably be unclear"


@pytest.mark.parametrize(
    ("average", "cores", "waiting", "warning"),
    [
        (20.3, 2, 71.5, f"load 20 on 2 cores: {UNCLEAR}"),
        (2.0, 2, 71.5, f"load 2.0 on 2 cores: {UNCLEAR}"),
        (1.0, 1, None, f"load 1.0 on 1 core: {UNCLEAR}"),
        (1.9, 2, 71.5, ""),
        (20.3, 64, 71.5, ""),
        (20.3, 2, 9.9, ""),  # what kept it busy is over
        (0.0, 2, None, ""),
    ],
)
def test_a_task_a_core_is_a_busy_machine(
    average: float, cores: int, waiting: float | None, warning: str
) -> None:
    assert Load(average, cores, waiting).warning() == warning


@pytest.mark.parametrize(
    ("text", "waiting"),
    [
        ("some avg10=71.57 avg60=68.77 avg300=46.40 total=34415635232\nfull avg10=0.00\n", 71.57),
        ("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", 0.0),
        ("some avg10=1.2.3 avg60\n", None),
        ("avg10=3\n", None),
        ("\xff", None),
    ],
)
def test_the_pressure_is_read_where_the_kernel_reports_it(
    tmp_path: Path, text: str, waiting: float | None
) -> None:
    pressure = tmp_path / "cpu"
    pressure.write_text(text, encoding="latin-1")
    assert read_load(pressure).waiting == waiting


def test_this_machine_has_a_load() -> None:
    now = read_load()
    assert now.average >= 0 and now.cores >= 1
    assert read_load(Path("/dev/null/cpu")).waiting is None


def test_the_cpu_is_what_may_be_too_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "read_load", lambda: Load(20.0, 2, 71.5))
    cpu, gpu = Tuning("mm", device="cpu"), Tuning("mm", device="cuda")
    assert busy_warning([cpu]) == ""  # the tests' own threshold
    monkeypatch.delenv(load.BUSY_LOAD)
    assert busy_warning([gpu, cpu]) == f"load 20 on 2 cores: {UNCLEAR}"
    assert busy_warning([gpu]) == busy_warning([]) == busy_warning([replace(cpu, device="xpu")])
    assert busy_warning([gpu]) == ""
    for threshold, warns in (("10", True), ("10.1", False), ("inf", False), ("no number", True)):
        monkeypatch.setenv(load.BUSY_LOAD, threshold)
        assert bool(busy_warning([cpu])) == warns
