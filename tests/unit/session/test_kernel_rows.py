"""Tunings of Triton kernels as rows: what is known of them, how they are written, what they are not
good for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.cache.configs import described
from backend.disk.layout import Layout
from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.inductor_kernel import comparable_config
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from rocm_tui.actions.pin import pin_choice, pinnable
from rocm_tui.compare.comparison import compare
from rocm_tui.ingest.records import Seen
from rocm_tui.render.choices import choice_slots, choices_text
from rocm_tui.render.detail import show_text, verdict
from rocm_tui.render.pins import pin_effect
from rocm_tui.render.tuning_json import TuningJson
from rocm_tui.render.tunings import LIST, cells
from rocm_tui.session import refusals, stats
from rocm_tui.session.history import history
from rocm_tui.session.in_use import in_use, time_ms
from rocm_tui.session.kernel_source import NoKernelSource, kernel_of
from rocm_tui.session.model import Model, Row
from rocm_tui.session.numbers import shorten
from tests.support.compare_lab import only, part

KEY = 'triton_poi_fused_add[4096, "torch.float32"]:ABCDEFGH'
FILE = Tuning(
    op="pointwise",
    inputs_key=KEY,
    precision="",
    choices=(Choice("XBLOCK=64 w4 s1", "triton_config-1", None, "XBLOCK=64, num_warps=4"),),
    selected="triton_config-1",
    selected_by="timing",
    when=2.0,
    sources=("/cache/ab/1.best_config",),
)
LIVE = Tuning(
    op="pointwise",
    inputs_key=KEY,
    precision="",
    choices=(
        Choice(
            "XBLOCK=32 w4 s1",
            "triton_config-2",
            1.0,
            origin="triton_config-1",
            moved="XBLOCK 64 to 32",
        ),
        Choice("XBLOCK=64 w4 s1", "triton_config-1", 2.0),
    ),
    num_choices=2,
    selected="triton_config-2",
    selected_by="timing",
    session="s",
    when=1.0,
    sources=("/log",),
)


MEASURED = Measurement(
    "pointwise",
    KEY,
    "",
    5.0,
    (
        MeasuredChoice("triton_config-2", 0.002, 0.0019, 0.0021, 0.02, 40, 1.0, 1.0, 1.0, "faster"),
        MeasuredChoice("triton_config-1", 0.003, 0.0029, 0.0031, 0.02, 40, 1.5, 1.4, 1.6, "slower"),
    ),
    rounds=40,
)


def rows(*tunings: Tuning) -> list[Row]:
    model = Model()
    model.apply([Seen(f"{tuning.sources[0]}#0", tuning) for tuning in tunings])
    return list(model.rows())


@pytest.mark.parametrize("order", [(FILE, LIVE), (LIVE, FILE)])
def test_a_session_and_a_file_are_one_row_and_the_file_tells_what_is_taken(
    order: tuple[Tuning, ...],
) -> None:
    (row,) = rows(*order)
    assert [choice.ms for choice in row.tuning.choices] == [1.0, 2.0]
    assert row.tuning.key is not None and len(row.tuning.sources) == 2
    used = in_use(row)
    assert used is not None and used.hash == "triton_config-1"  # tuned again since, elsewhere
    assert "which its file names" in show_text(row)


def test_a_file_alone_claims_no_win(tmp_path: Path) -> None:
    (row,) = rows(FILE)
    text = show_text(row)
    assert "fastest" not in text and "its time and its rivals are unknown" in text
    assert stats.winner(row.tuning) is None and not stats.single(row.tuning)


def test_a_benchmark_of_inductor_ranks_configs_and_is_no_time() -> None:
    """It mostly shows the cost of a launch: 112 µs for 6,400 elements."""
    model = Model()
    model.apply([Seen("/log#0", replace(LIVE, selected="triton_config-2"))])
    (row,) = model.rows()
    assert time_ms(row) is None
    cell = {field.key: field.text(row) for field in LIST}
    assert (cell["winner"], cell["time"], cell["lead"]) == ("XBLOCK=32 w4 s1", "–", "~100 %")
    slots = choice_slots(row, 200)
    assert "ms" not in {slot.column.key for slot in slots}
    shown, listed = show_text(row), choices_text(row)
    assert "1.000 ms in Inductor's benchmark" in shown and "~1.000 ms" not in shown
    assert "1.000 ms" not in listed and "~+100 %" in listed
    said = "".join(text for text, _ in verdict(row.tuning))
    assert "1.000 ms in Inductor's benchmark, mostly the cost of a launch" in said
    (effect,) = pin_effect(row, row.tuning.choices[1])
    assert "its time is not known" in effect
    ours, theirs = TuningJson.of(row).choices
    assert (ours.ms, theirs.ms) == (None, None)
    assert ours.reason and ours.reason.startswith("1.000 ms in Inductor's benchmark")
    (event,) = history(model, row).events
    assert event.ms is None and event.label == "XBLOCK=32 w4 s1"


def test_times_of_a_kernel_that_was_measured_in_its_program_count() -> None:
    (row,) = rows(replace(LIVE, selected="triton_config-2", measured=MEASURED))
    cell = {field.key: field.text(row) for field in LIST}
    assert (cell["time"], cell["lead"]) == ("2.0 µs", "50.0 %")
    assert "Inductor's benchmark" not in show_text(row)
    ours, _ = TuningJson.of(row).choices
    assert ours.ms is None and ours.measured and ours.measured.ms == 0.002


def test_single_benchmarks_of_a_kernel_are_not_compared() -> None:
    slow = tuple(replace(choice, ms=(choice.ms or 0) * 3) for choice in LIVE.choices)
    a, b = part(LIVE), part(replace(LIVE, choices=slow))
    said = compare(a, b)
    assert not said.common and len(said.untimed) == 1 and not said.totals.b_ms
    other = compare(a, part(replace(LIVE, inputs_key="other[1]:ABCDEFGH")))
    assert not other.only_a and not other.only_b and len(other.untimed) == 2
    later = replace(MEASURED, when=9.0)
    sets = part(LIVE, measured=[MEASURED]), part(replace(LIVE, choices=slow), measured=[later])
    assert only(compare(*sets)).a.ms == 0.002


def test_the_path_of_coordinate_descent_is_told() -> None:
    (row,) = rows(LIVE)
    assert "#2, XBLOCK 64 to 32" in choices_text(row)


@pytest.mark.parametrize("op", ["pointwise", "triton"])
def test_what_needs_the_program_is_refused(op: str) -> None:
    tuning = replace(LIVE, op=op)
    for why in (
        refusals.why_not_tuned(tuning),
        refusals.why_not_measured(tuning, tuning.choices),
        refusals.why_not_tried(tuning),
    ):
        assert why and "needs its own program to run" in why
    new = {"pointwise": "--cache-dir NEW -- CMD`", "triton": "`TRITON_CACHE_DIR=NEW rocm-tui"}[op]
    why = refusals.why_not_measured(tuning, ()) or ""
    assert "run --measure-kernels" in why and new in why


def test_its_source_is_read_below_the_cache_dir_and_nowhere_else(tmp_path: Path) -> None:
    code = tmp_path / "ab" / "cabc.py"
    code.parent.mkdir()
    code.write_text("def k(): ...\n")
    choice = LIVE.choices[0]
    told = replace(LIVE, kernel="k", code=str(code))
    assert refusals.why_not_read(choice, told) is None
    assert refusals.why_not_read(choice, LIVE) is not None
    assert kernel_of(told, choice, None, Layout(tmp_path)).source.text == "def k(): ...\n"
    away = replace(told, code="/etc/passwd")
    with pytest.raises(NoKernelSource, match="is not below"):
        kernel_of(away, choice, None, Layout(tmp_path))


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (60, "BLOCK_M=128 BLOCK_N=256 R0_BLOCK=64 GROUP_SIZE_M=8 w8 s3"),
        (30, "M128 N256 R0=64 GM8 w8 s3"),
        (18, "M128 N256 R0=64…"),
        (3, "M1…"),
    ],
)
def test_a_long_config_keeps_its_words(width: int, text: str) -> None:
    whole = "BLOCK_M=128 BLOCK_N=256 R0_BLOCK=64 GROUP_SIZE_M=8 w8 s3"
    assert shorten(whole, width) == text


def test_names_that_would_be_the_same_stay_whole() -> None:
    assert shorten("BLOCK_M=16 M=3 w4 s1 kpack=2", 27) == "BLOCK_M=16 M=3 w4 s1…"


def test_a_text_that_is_no_config_is_cut_in_the_middle() -> None:
    assert shorten("BLOCK_M=128, num_warps=4 and more", 20) == "BLOCK_M=12… and more"


@pytest.mark.parametrize(
    ("name", "op", "shown"),
    [
        ("triton_poi_fused_add_relu", "pointwise", ("pointwise", "add_relu 4096")),
        ("triton_per_fused__softmax", "persistent_reduction", ("persistent", "softmax 4096")),
        ("triton_", "pointwise", ("pointwise", "triton_ 4096")),
        ("triton_poi_fused", "pointwise", ("pointwise", "triton_poi_fused 4096")),
        ("my_kernel", "user_autotune", ("autotune", "my_kernel 4096")),
    ],
)
def test_cells_leave_out_what_the_op_says(name: str, op: str, shown: tuple[str, str]) -> None:
    """`ls` tells all of it. `triton_` is what Inductor calls a kernel that it times to see whether
    ops are to be fused."""
    model = Model()
    model.apply([Seen("1", replace(LIVE, op=op, inputs_key=f"{name}[4096]:ABCDEFGH"))])
    (row,) = model.rows()
    told = cells(row, 0.0, keys=("op", "shape"))
    assert (told["op"][0], told["shape"][0]) == shown
    listed = {field.key: field.text(row) for field in LIST}
    assert (listed["op"], listed["shape"]) == (op, f"{name} 4096")


@pytest.mark.parametrize(("x", "y", "warps"), [(256, 2, 4), (32, 128, 8), (16, 16, 4), (256, 0, 4)])
def test_a_config_is_pinned_as_its_session_tells_it(
    tmp_path: Path, x: int, y: int, warps: int
) -> None:
    """Those that an H200 was refused, when nothing but their hash was given."""
    blocks = {"XBLOCK": x, "YBLOCK": y} if y else {"XBLOCK": x}
    hash_, name, text = described(comparable_config(blocks, warps, 1))
    second = Choice(name, hash_, 1.5, text)
    (row,) = rows(replace(LIVE, sources=("/s.jsonl",), choices=(LIVE.choices[0], second)))
    assert pin_choice(pinnable(row, "#2", {}), Layout(tmp_path)).report.status.state == "unproven"
    (pin,) = PinStore(Layout(tmp_path)).pins()
    assert (pin.hash, pin.label) == (hash_, name)
