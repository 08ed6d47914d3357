"""Tunings of Triton kernels as rows: what is known of them, how they are written, what they are not
good for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.cache.configs import described
from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.inductor_kernel import comparable_config
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from rocm_tui.actions.pin import pin_choice, pinnable
from rocm_tui.ingest.records import Seen
from rocm_tui.render.choices import choices_text
from rocm_tui.render.detail import show_text
from rocm_tui.render.tunings import LIST, cells
from rocm_tui.session import refusals, stats
from rocm_tui.session.in_use import in_use
from rocm_tui.session.kernel_source import NoKernelSource, kernel_of
from rocm_tui.session.model import Model, Row
from rocm_tui.session.numbers import shorten

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
