"""What a person can do, without the words of a command or of a screen."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice, Measurement
from backend.model.problem import TuningKey
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from backend.sharing.mega_cache import Artifact
from backend.sharing.share import Machine, PinExport, SharedPin
from backend.wire.jobs import Environment
from rocm_tui.actions import doctor, share
from rocm_tui.actions.measure import (
    NotMeasurable,
    choices_to_measure,
    measure_job,
)
from rocm_tui.actions.pin import pin_choice, pinnable, plan_pin, take_all_back, take_back
from rocm_tui.actions.sources import (
    cache_dir_of,
    load_model,
    load_named,
    pick_row,
    tunings_of_export,
)
from rocm_tui.actions.tune import offers_ours, tune_options
from rocm_tui.environment import device_env
from rocm_tui.errors import NoSuchChoice, NoSuchTuning, NotPinnable, UsageError
from rocm_tui.jobs.limits import check_seconds
from rocm_tui.session.model import Row
from tests.support.log_lab import MM_LOG

SYSTEM = "5" * 64
INPUTS = "[('cpu', 'torch.float32', 4, 8, 8, 1, 0)]"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A cache dir with one tuning."""
    layout = Layout(tmp_path / "inductor")
    layout.autotune.mkdir(parents=True)
    cache = {"mm": {INPUTS: {"highest": {"mm-c1": 1.5, "Cpp-c2": 2.25, "Cpp-c3": 9.0}}}}
    value = {"system": {"hash": SYSTEM}, "cache": cache}
    (layout.autotune / SYSTEM).write_text(json.dumps(value))
    return layout


@pytest.fixture
def row(layout: Layout) -> Row:
    (row,) = load_model(layout).rows()
    return row


def test_a_pin_is_planned_made_and_taken_back(layout: Layout, row: Row) -> None:
    before = (layout.autotune / SYSTEM).read_bytes()
    wanted = pinnable(row, "Cpp-c2", {})
    plan = plan_pin(wanted, layout)
    assert plan.numbers == 2 and not PinStore(layout).pins()
    pinned = pin_choice(wanted, layout, note="why", plan=plan)
    assert (pinned.state, pinned.active, pinned.detail) == ("active", True, "")
    assert [status.pin.note for status in PinStore(layout).status()] == ["why"]
    assert pick_row(load_model(layout), row.id).pin is not None
    take_back(PinStore(layout).pins(), layout)
    assert (layout.autotune / SYSTEM).read_bytes() == before
    assert [entry.what for entry in PinStore(layout).history()] == ["pin", "unpin"]
    pin_choice(wanted, layout)
    assert [status.state for status in PinStore(layout).reconcile()] == ["active"]
    assert [pin.hash for pin in take_all_back(layout)] == ["Cpp-c2"] and not PinStore(
        layout
    ).status()


def test_what_may_not_be_pinned(layout: Layout, row: Row, tmp_path: Path) -> None:
    with pytest.raises(NoSuchChoice, match="no choice 'nothing'"):
        pinnable(row, "nothing", {})
    with pytest.raises(NoSuchChoice, match="the hash of triton_mm_1 is not known"):
        pinnable(row, Choice(name="triton_mm_1", ms=1.0), {})
    (tmp_path / "train.log").write_text(MM_LOG)
    (logged,) = load_model(layout, [str(tmp_path / "train.log")]).rows()
    with pytest.raises(NotPinnable, match="known from a log only"):
        pinnable(logged, "there is no such choice either", {})


def test_a_wrong_choice_is_pinned_on_demand_alone(row: Row) -> None:
    choice = row.tuning.choices[0]
    wrong = replace(choice, reason="wrong result: off by 420, where 0.524 is allowed")
    seen = Measurement("mm", INPUTS, "highest", 7.0, choices=(), failed=(wrong,))
    found = replace(row, tuning=replace(row.tuning, measured=seen))
    with pytest.raises(NotPinnable, match="computes a wrong result"):
        pinnable(found, choice, {})
    assert pinnable(found, choice, {}, wrong=True).choice == choice


def test_nothing_pinned_makes_no_files(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "none")
    assert (
        not take_all_back(layout) and not PinStore(layout).pins() and not PinStore(layout).status()
    )
    assert not layout.root.exists()


def test_a_tuning_that_is_not_there_names_what_was_not_read(layout: Layout) -> None:
    (layout.autotune / ("d" * 64)).write_text('{"system": ')
    model = load_model(layout)
    assert len(model.rows()) == 1
    with pytest.raises(NoSuchTuning, match=r"fffffff.*Not read: .*dddd"):
        pick_row(model, "fffffff")


def test_choices_to_measure(row: Row) -> None:
    assert [choice.hash for choice in choices_to_measure(row)] == ["mm-c1", "Cpp-c2"]
    assert len(choices_to_measure(row, within=10)) == 3
    last = row.tuning.choices[-1]
    assert choices_to_measure(row, [last]) == [last]


@pytest.mark.parametrize("value", [0, -1.0, "", "soon", "nan", "inf", 1e9])
def test_what_is_no_time(value: float | str) -> None:
    with pytest.raises(UsageError, match="the budget is a number of seconds above 0"):
        check_seconds(value, "the budget")


def test_what_a_tuning_may_try() -> None:
    options = tune_options(
        backends="aten, triton", search_space=None, templates=True, budget="90", device="cpu"
    )
    assert (options.backends, options.budget) == (("ATEN", "TRITON"), 90.0)
    for backends, device in (("NOPE", None), (None, "first")):
        with pytest.raises(UsageError):
            tune_options(
                backends=backends, search_space=None, templates=False, budget=None, device=device
            )
    with pytest.raises(UsageError, match="no GPU 2 among those visible: 4,5"):
        device_env({"HIP_VISIBLE_DEVICES": "4, 5"}, "2")


@pytest.mark.parametrize("hash", ["rocm_gemm-c1", "rocm_skinny-c1", "rocm_triton-c1"])
def test_tuning_again_keeps_our_kernels(hash: str) -> None:
    assert offers_ours(Tuning("mm", choices=(Choice(hash="mm-c1"), Choice(hash=hash))))
    assert not offers_ours(Tuning("mm", choices=(Choice(hash="triton-c1"), Choice(name="mm"))))


def test_an_import_that_is_cut_short_says_how_far_it_came(layout: Layout, row: Row) -> None:
    pin_choice(pinnable(row, "Cpp-c2", {}), layout)
    pins = share.pins_to_share(layout, [], [], "/no/such/python")
    assert share.unknown_origins(pins) == {"arch": [row.id], "torch": [row.id]}
    path = layout.root / "pins.json"
    share.write_shared(path, share.export_text(pins))
    take_all_back(layout)
    plan = share.ImportPlan(
        share.read_share(path),
        Machine(system_hash=SYSTEM),
        share.steps_of(pins, Machine(system_hash=SYSTEM), PinStore(layout)),
    )
    assert plan.fits and [step.pin.hash for step in plan.changes] == ["Cpp-c2"]
    layout.pins.write_text("no JSON")
    with pytest.raises(share.ImportCutShort, match="imported 0 of 1 pin;"):
        share.apply_import(plan, layout)


def test_a_python_that_hangs_does_not_hang_doctor(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] && exit 0\nexec sleep 1000\n')
    python.chmod(0o755)
    checks = doctor.examine(Layout(tmp_path / "cache"), str(python), patience=1.0)
    (torch,) = [check for check in checks if check.name == "torch"]
    assert (torch.verdict, torch.value) == ("bad", "does not answer")
    assert str(python) in torch.advice and "\n" not in torch.advice
    assert checks[-1].name.startswith("target")  # the others are told all the same
    (cache,) = [check for check in checks if check.name in ("cache dir", "tunings")]
    assert (cache.verdict, cache.value) == ("note", f"{tmp_path / 'cache'} does not exist yet")


def test_doctor_recommends_settings_with_their_source() -> None:
    line = "TORCHINDUCTOR_FREEZING=1: weights are constants (torch/_inductor/config.py)"
    on_gpu = Environment("2.13.0", hip="7.1", gpu=True, arch="gfx942", recommended=(line,))
    (setting,) = [c for c in doctor.environment_checks(on_gpu) if c.name == "setting"]
    assert (setting.verdict, setting.value) == ("note", "TORCHINDUCTOR_FREEZING=1")
    assert setting.advice == "weights are constants (torch/_inductor/config.py)"
    on_cpu = doctor.environment_checks(Environment("2.13.0"))
    assert "setting" not in [check.name for check in on_cpu]


@pytest.mark.parametrize("broken", [False, True])
def test_each_check_of_doctor_has_a_name_a_verdict_and_advice_where_it_is_bad(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    if broken:
        (layout.autotune / ("e" * 64)).write_text("{")
        layout.pins.parent.mkdir(parents=True)
        layout.pins.write_text("no JSON")
        monkeypatch.setenv("PATH", str(layout.root))
        monkeypatch.setenv("CXX", "no-compiler")
    verdicts = get_args(doctor.Verdict)
    checks = doctor.examine(layout, "/no/python")
    names = {check.name for check in checks}
    assert {"torch", "tunings", "pins", "inotify", "sessions", "fxgraph cache"} <= names
    assert not names.intersection(verdicts)
    for check in checks:
        assert check.verdict in verdicts and check.value.isprintable() and check.value
        assert check.verdict != "bad" or check.advice
    bad = {check.name for check in checks if check.verdict == "bad"}
    assert {"torch", "tunings", "pins"} <= bad if broken else not {"tunings", "pins"} & bad


def test_the_artifacts_of_a_mega_cache_are_counted_by_type() -> None:
    artifacts = [
        Artifact("autotune", "a", 0, 2048),
        Artifact("later kind", "b", 0, 5),
        Artifact("autotune", "c", 0, 7, loaded=False),
    ]
    checks = list(doctor._contents(artifacts))
    assert [(check.name, check.verdict) for check in checks] == [
        ("autotune", "ok"), ("autotune", "note"), ("later kind", "note"),
    ]  # fmt: skip
    values = [check.value for check in checks]
    assert values[0].startswith("1 ") and values[0].endswith(", 2.0 KiB")
    assert values[1:] == [
        "1 more that PyTorch passes over when it loads the file", "1 of an unknown type, 5 B",
    ]  # fmt: skip
    (none,) = doctor._contents([])
    assert (none.name, none.verdict, none.value) == ("artifacts", "note", "none")


def test_a_compiler_that_hangs_does_not_hang_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\nexec sleep 1000\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(doctor, "_COMPILER_PATIENCE", 0.5)
    (check,) = doctor._compilers()
    assert check.verdict == "note" and check.value.endswith("does not answer")


def test_only_an_encoding_that_lacks_letters_is_noted(tmp_path: Path) -> None:
    names = {check.name for check in doctor.examine(Layout(tmp_path), "/no/python")}
    assert ("encoding" in names) == (sys.getfilesystemencoding() != "utf-8")


def test_a_pin_that_does_not_hold_is_noted(layout: Layout) -> None:
    cache = layout.autotune / SYSTEM
    before = cache.read_bytes()
    pin = PinStore(layout).pin(None, TuningKey("mm", INPUTS, "highest"), "Cpp-c2").pin
    cache.write_bytes(before)
    total, drifted = (c for c in doctor.examine(layout, "/no/python") if c.name == "pins")
    assert (total.verdict, total.value) == ("ok", "1")
    assert (drifted.verdict, drifted.value) == ("note", f"{pin.id} is drifted")
    assert drifted.advice == f"`rocm-tui pin --reconcile --cache-dir {layout.root}`"


def test_a_compiler_that_is_missing_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    (check,) = doctor._compilers()
    assert (check.name, check.verdict) == ("C++ compiler", "note")
    assert check.value == "no-such-compiler is missing" and "set CXX" in check.advice


def test_a_tuning_of_an_export_is_as_old_as_its_pin() -> None:
    pin = SharedPin("mm", INPUTS, "highest", "mm-c1", "mm", Machine(), when=5.0)
    shared = PinExport((pin, replace(pin, when=0.0)))
    assert [seen.tuning.when for seen in tunings_of_export(shared, "pins.json")] == [5.0, None]


def test_a_path_that_is_not_there_is_left_to_who_reads_it(layout: Layout, tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing.log")
    model, rows, paths = load_named(layout, [missing])
    assert (rows, paths) == ([], [missing])
    assert [problem.source for problem in model.problems] == [missing]


@pytest.mark.parametrize("place", ["", f"cache/{SYSTEM}", "rocm_tui/sessions/7.jsonl"])
def test_pins_of_a_file_in_a_cache_dir_are_those_of_that_cache_dir(
    layout: Layout, tmp_path: Path, place: str
) -> None:
    ours = Layout(tmp_path / "ours")
    assert cache_dir_of(layout.root / place, ours) == layout
    assert cache_dir_of(tmp_path / "logs" / place / "a.log", ours) is ours


def test_a_choice_that_cannot_be_measured_is_no_such_choice(row: Row) -> None:
    failed = Choice(name="triton_mm_9", failed=True)
    with pytest.raises(NoSuchChoice):
        measure_job(row.tuning, [failed])
    with pytest.raises(NotMeasurable):
        measure_job(row.tuning, [])
