"""A pin that changes what a model computes: it is said, and `--bitwise` refuses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.model.choice import Choice, Output
from rocm_tui.cli.entry import main
from tests.support.screen_lab import measured, write_cache

FIRST, OTHER, THIRD = "triton_mm-aa", "mm-bb", "triton_mm-cc"
A, B = Output("A", 10, 10, 512), Output("B", 10, 10, 512)


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
        measured(tmp_path, outputs)
    at = ["--cache-dir", str(tmp_path)]
    main(["ls", "--json", *at])
    (tuning,) = json.loads(capsys.readouterr().out)["tunings"]
    before = cache.read_bytes()
    assert main(["pin", tuning["id"], OTHER, "--bitwise", "--dry-run", *at]) == code
    assert main(["pin", tuning["id"], OTHER, "--bitwise", *at]) == code
    assert says in capsys.readouterr().err
    assert (cache.read_bytes() != before) == (code == 0)
    main(["pin", tuning["id"], OTHER, "--json", *at])
    assert cache.read_bytes() != before
    told = capsys.readouterr()
    warning, change = told.err, json.loads(told.out)["change_of_bits"]
    assert (change["warning"] or "") in warning and bool(change["warning"]) == ("bits" in warning)
    assert change["bits"] == (
        "same" if code == 0 else "unknown" if "not known" in says else "other"
    )
    assert change["in_use"] == (OTHER if code == 0 else FIRST)
    assert "not known" not in warning
    assert says in warning or "not known" in says


def test_the_choice_in_use_stays_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_cache(tmp_path, 8)
    at = ["--cache-dir", str(tmp_path)]
    main(["ls", "--json", *at])
    (tuning,) = json.loads(capsys.readouterr().out)["tunings"]
    assert main(["pin", tuning["id"], FIRST, "--bitwise", *at]) == 0
    assert main(["show", tuning["id"], "--json", *at]) == 0


def test_what_was_found_wrong_is_pinned_on_demand_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = write_cache(tmp_path, 8)
    off, cut = "wrong result: off by 420, where 0.524 is allowed", "RuntimeError: out of memory"
    wrong, other = Choice(None, FIRST, reason=off), Choice(None, THIRD, reason=cut)
    measured(tmp_path, {OTHER: A}, wrong, other)
    at = ["--cache-dir", str(tmp_path)]
    main(["ls", "--json", *at])
    (tuning,) = json.loads(capsys.readouterr().out)["tunings"]
    before = cache.read_bytes()
    for words in ([], ["--dry-run"], ["--bitwise"]):
        assert main(["pin", tuning["id"], FIRST, *words, *at]) == 1
        said = capsys.readouterr().err
        assert "computes a wrong result" in said and off in said and "--wrong" in said
    assert cache.read_bytes() == before
    assert main(["pin", tuning["id"], FIRST, "--wrong", "--json", *at]) == 0
    told = capsys.readouterr()
    assert off in told.err and off in json.loads(told.out)["change_of_bits"]["wrong"]
    assert main(["pin", tuning["id"], OTHER, "--json", *at]) == 0
    assert json.loads(capsys.readouterr().out)["change_of_bits"]["wrong"] is None
