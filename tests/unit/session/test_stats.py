"""Winner, gain, lead and throughput of one tuning; which tuning and choice a person means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.disk.layout import Layout
from backend.model import ops
from backend.model.choice import Choice, parse_config, sort_choices
from backend.model.origin import provider
from backend.model.tuning import Pin, Tuning
from rocm_tui.errors import NoSuchChoice, NoSuchTuning
from rocm_tui.session import stats
from rocm_tui.session.find import find_choice, find_pins, find_row, system_hash
from rocm_tui.session.model import Row


def tuning(*times: tuple[str, float | None], op: str = "mm") -> Tuning:
    choices = [Choice(name=name, ms=ms, failed=ms is None) for name, ms in times]
    shapes = ((1024, 512), (512, 2048))
    return Tuning(op, shapes, choices=sort_choices(choices), dtypes=("torch.bfloat16",) * 2)


def test_gain_is_against_aten_and_a_failed_choice_never_wins() -> None:
    one = tuning(("mm", 0.5), ("triton_mm_1", 0.4), ("triton_mm_2", None))
    assert stats.gain(one) == pytest.approx(1.25)
    assert stats.lead(one) == pytest.approx(0.25)
    assert stats.saved_ms(one) == pytest.approx(0.1)
    assert stats.winner(one) == one.choices[0]
    assert stats.tied(one) is False
    assert stats.dtype_of(one) == "bf16"


def test_a_choice_of_another_program_has_a_time_and_no_rank() -> None:
    """The cache keeps the times of all programs; this one did not put the fastest up."""
    foreign = Choice("triton_mm_0", "triton_mm-c0", 0.1, offered=False)
    own = tuning(("mm", 0.5), ("triton_mm_1", 0.4), ("triton_mm_2", None))
    mixed = replace(own, choices=(foreign, *own.choices))
    assert [choice.label for choice in stats.ranked(mixed)] == ["triton_mm_1", "mm"]
    assert stats.winner(mixed) == mixed.choices[1]


def test_two_per_cent_are_a_tie() -> None:
    assert stats.tied(tuning(("mm", 1.0), ("triton_mm_1", 1.019))) is True
    assert stats.tied(tuning(("mm", 1.0), ("triton_mm_1", 1.021))) is False
    assert stats.tied(tuning(("mm", 1.0))) is None


def test_a_zero_time_is_no_division() -> None:
    one = tuning(("mm", 0.0), ("triton_mm_1", 0.1))
    assert stats.gain(one) is None and stats.lead(one) is None
    assert stats.tflops(one, 0.0) is None


@pytest.mark.parametrize(
    ("op", "shapes", "flops"),
    [
        ("mm", ((3, 5), (5, 7)), 2 * 3 * 5 * 7),
        ("addmm", ((3, 7), (3, 5), (5, 7)), 2 * 3 * 5 * 7),
        ("bmm", ((2, 3, 5), (2, 5, 7)), 2 * 2 * 3 * 5 * 7),
        ("baddbmm", ((2, 3, 7), (2, 3, 5), (2, 5, 7)), 2 * 2 * 3 * 5 * 7),
        ("packed_linear", ((3, 5), (1459233, 1), (7, 5)), 2 * 3 * 5 * 7),
        ("_scaled_mm", ((3, 5), (5, 7), (1,), ()), 2 * 3 * 5 * 7),
        ("addmm", ((3, 5), (5, 7)), None),
        ("mm", ((3, 5), (6, 7)), None),
        ("convolution", ((1, 3, 8, 8), (4, 3, 3, 3)), None),
        ("mm", (), None),
    ],
)
def test_flops(op: str, shapes: tuple[tuple[int, ...], ...], flops: int | None) -> None:
    assert ops.flops(Tuning(op, shapes)) == flops


@pytest.mark.parametrize(
    ("choice", "backend"),
    [
        (Choice(name="bias_addmm"), "aten"),
        (Choice(hash="_mkl_linear-B=None-batch_size=64-ckf3"), "aten"),
        (Choice(hash="CppMicroGemmFP32Vec-coya"), "cpp"),
        (Choice(name="triton_mm_12"), "triton"),
        (Choice(name="rocm_ck_gemm_template_3"), "ck"),
        (Choice(name="rocm_gemm_3"), "rocm"),
        (Choice(hash="packed_gemm-c75i73"), "cpp"),
        (Choice(name="_linear_pointwise.binary"), "aten"),
        (Choice(hash="_linear_pointwise.binary-attr=add-c2f"), "aten"),
        (Choice(name="qlinear_pointwise.binary"), "aten"),
        (Choice(name="mkldnn::_linear_pointwise"), "aten"),
        (Choice(name="extern_kernels.mm"), "aten"),
        (Choice(name="_mm_plus_mm"), "aten"),
        (Choice(name="linear_new"), None),
        (Choice(name="something_new"), None),
        (Choice(), None),
    ],
)
def test_provider(choice: Choice, backend: str | None) -> None:
    assert provider(choice) == backend


def test_a_choice_is_meant_by_name_hash_prefix_or_place() -> None:
    choices = (
        Choice("mm", "mm-abc", 0.4),
        Choice("triton_mm_1", "triton_mm-xyz", 0.5),
        Choice("triton_mm_2", "triton_mm-xyw", None, failed=True),
    )
    one = Tuning("mm", choices=choices)
    assert find_choice(one, "mm") is choices[0]
    assert find_choice(one, "triton_mm-xyw") is choices[2]
    assert find_choice(one, "triton_mm-xyz") is choices[1]
    assert find_choice(one, "#2") is choices[1]
    for wrong in ("#3", "#0", "#x", "#", "nothing", "triton_mm-xy", "#²"):
        with pytest.raises(NoSuchChoice):
            find_choice(one, wrong)


def test_a_tuning_without_times_has_no_places() -> None:
    """As torch makes them in deterministic mode."""
    untimed = Tuning("mm", choices=(Choice("mm", "mm-x"), Choice("triton_mm_0", "t-x")))
    with pytest.raises(NoSuchChoice, match="no choice of it was timed") as raised:
        find_choice(untimed, "#2")
    assert "#0" not in str(raised.value)
    assert find_choice(untimed, "mm") is untimed.choices[0]


def test_an_id_means_its_latest_occurrence() -> None:
    one = tuning(("mm", 1.0))
    rows = [Row("b", "3fa91c2", 2, one), Row("a", "3fa91c2", 1, one), Row("c", "3fb0000", 1, one)]
    assert find_row(rows, "3fa91c2").key == "b"
    assert find_row(rows, "3FA9").key == "b"
    for wrong in ("3f", "", "zzz"):
        with pytest.raises(NoSuchTuning):
            find_row(rows, wrong)


def test_a_choice_without_a_time_is_near_no_other() -> None:
    tuning = Tuning("mm")
    assert stats.near(tuning, Choice("a", "a-1", 1.0), Choice("b", "b-1", 1.0))
    assert not stats.near(tuning, Choice("a", "a-1"), Choice("b", "b-1", 1.0))
    assert not stats.near(tuning, Choice("a", "a-1", 1.0), Choice("b", "b-1"))


def test_config_text() -> None:
    text = "ACC_TYPE='tl.float32', SHAPE=[1, 2], FLOAT32_PRECISION=\"'ieee'\", num_warps=4"
    assert parse_config(text) == {
        "ACC_TYPE": "'tl.float32'",
        "SHAPE": "[1, 2]",
        "FLOAT32_PRECISION": "'ieee'",
        "num_warps": "4",
    }
    assert parse_config("GemmSpecialization Default, opaque") == {}


@given(st.text(max_size=200))
def test_any_description_has_a_config(text: str) -> None:
    config = parse_config(f"BLOCK_M=32, {text}")
    assert "BLOCK_M" in config and all(key.isidentifier() for key in config)


def test_pins_are_meant_by_the_beginning_of_an_id() -> None:
    here, other = (Pin("mm", f"[{n}]", "highest", "mm-x", "mm", "here", {}) for n in range(2))
    there = replace(here, system_hash="there")
    pins = [here, other, there]
    assert find_pins(pins, [here.id.upper(), other.id[:6], here.id[:6]]) == [here, there, other]
    for text in ("", "x"):
        with pytest.raises(NoSuchTuning, match=f"no pin has the id '{text}'"):
            find_pins(pins, [text])
    many = [replace(here, inputs=f"[{n}]") for n in range(17)]  # two begin with one digit
    digit = next(c for c in "0123456789abcdef" if sum(p.id[0] == c for p in many) > 1)
    with pytest.raises(NoSuchTuning, match=f"'{digit}' begins the ids of several pins"):
        find_pins(many, [digit])


def test_the_cache_file_of_this_cache_dir_goes_before_those_of_others(tmp_path: Path) -> None:
    here, there = Layout(tmp_path / "here"), Layout(tmp_path / "there")
    for layout, names in ((here, ("a" * 64, "b" * 64)), (there, ("a" * 64,))):
        layout.autotune.mkdir(parents=True)
        for name in names:
            layout.cache_file(name).write_text("{}")
    sources = str(there.cache_file("a" * 64)), str(here.cache_file("b" * 64))
    row = Row("r", "r", 1, replace(tuning(("mm", 1.0)), sources=sources))
    assert system_hash(row, {}, here) == "b" * 64
