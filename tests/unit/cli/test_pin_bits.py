"""A pin that changes what a model computes: it is said, and `--bitwise` refuses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import MeasuredChoice, Measurement, Output
from backend.model.events import TuningMeasured
from backend.model.session import Session
from rocm_tui.cli.entry import main
from tests.support.screen_lab import SYSTEM, inputs, write_cache

FIRST, OTHER, THIRD = "triton_mm-aa", "mm-bb", "triton_mm-cc"
A, B = Output("A", 10, 10, 512), Output("B", 10, 10, 512)


def _measure(root: Path, outputs: dict[str, Output]) -> None:
    told = [
        MeasuredChoice(hash, 1.0, 0.9, 1.1, 0.0, 9, 1.0, 1.0, 1.0, "tied", None, output)
        for hash, output in outputs.items()
    ]
    found = Measurement("mm", inputs(8), "highest", 1.8e9, tuple(told), system_hash=SYSTEM)
    writer = EventWriter(Layout(root), Session("m", "node", 9, started=1.8e9))
    writer.write(TuningMeasured(found))
    writer.close()


@pytest.mark.parametrize(
    ("outputs", "code", "says"),
    [
        ({}, 1, "not known whether triton_mm-aa and mm-bb give the same bits: rocm-tui measure"),
        ({FIRST: A, OTHER: A}, 0, ""),
        ({FIRST: A, OTHER: B}, 1, "mm-bb gives other bits than triton_mm-aa, which is in use."),
        ({FIRST: A, OTHER: Output("A", 10, 3, 512)}, 1, "7 of 10 runs on the same inputs"),
        ({FIRST: Output("A", 10, 3, 512), OTHER: A}, 1, "mm-bb gives other bits"),
        ({FIRST: A, OTHER: Output("B", 10, 10, 512, 3, 4.5)}, 1, "3 of 512 elements are further"),
        ({FIRST: A, THIRD: A}, 1, "not known"),
    ],
)
def test_bitwise_refuses_what_is_not_proved_to_change_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    outputs: dict[str, Output],
    code: int,
    says: str,
) -> None:
    cache = write_cache(tmp_path, 8)
    if outputs:
        _measure(tmp_path, outputs)
    at = ["--cache-dir", str(tmp_path)]
    main(["ls", "--json", *at])
    (tuning,) = json.loads(capsys.readouterr().out)["tunings"]
    before = cache.read_bytes()
    assert main(["pin", tuning["id"], OTHER, "--bitwise", "--dry-run", *at]) == code
    assert main(["pin", tuning["id"], OTHER, "--bitwise", *at]) == code
    assert says in capsys.readouterr().err
    assert (cache.read_bytes() != before) == (code == 0)
    main(["pin", tuning["id"], OTHER, *at])
    assert cache.read_bytes() != before
    warning = capsys.readouterr().err
    assert "not known" not in warning
    assert says in warning or "not known" in says


def test_the_choice_in_use_stays_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_cache(tmp_path, 8)
    at = ["--cache-dir", str(tmp_path)]
    main(["ls", "--json", *at])
    (tuning,) = json.loads(capsys.readouterr().out)["tunings"]
    assert main(["pin", tuning["id"], FIRST, "--bitwise", *at]) == 0
    assert main(["show", tuning["id"], "--json", *at]) == 0
