"""Winner, gain, lead and throughput of one tuning; which tuning and choice a person means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.disk.layout import Layout
from backend.model import ops
from backend.model.choice import (
    Choice,
    MeasuredChoice,
    Measurement,
    parse_config,
    sort_choices,
)
from backend.model.origin import provider
from backend.model.tuning import Pin, TableEntry, Tuning
from rocm_tui.errors import NoSuchChoice, NoSuchTuning
from rocm_tui.session import stats
from rocm_tui.session.find import find_choice, find_pins, find_row, system_hash
from rocm_tui.session.model import Row
from tests.support.subgraphs import decompose_k


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
    assert stats.standing(one) == "ahead"
    assert stats.dtype_of(one) == "bf16"


def test_a_choice_of_another_program_has_a_time_and_no_rank() -> None:
    """The cache keeps the times of all programs; this one did not put the fastest up."""
    foreign = Choice("triton_mm_0", "triton_mm-c0", 0.1, offered=False)
    own = tuning(("mm", 0.5), ("triton_mm_1", 0.4), ("triton_mm_2", None))
    mixed = replace(own, choices=(foreign, *own.choices))
    assert [choice.label for choice in stats.ranked(mixed)] == ["triton_mm_1", "mm"]
    assert stats.winner(mixed) == mixed.choices[1]


def test_how_many_choices_there_are_is_what_the_source_says_or_what_it_shows() -> None:
    shown = tuning(("mm", 0.5), ("triton_mm_1", 0.4))
    assert [stats.tried(replace(shown, num_choices=n)) for n in (None, 1, 34)] == [2, 2, 34]
    running = replace(shown, state="running", timed=2)
    assert [stats.total(replace(running, num_choices=n)) for n in (None, 34)] == [None, 34]
    assert stats.total(replace(running, timed=1)) == 2


def test_two_per_cent_are_a_tie() -> None:
    assert stats.standing(tuning(("mm", 1.0), ("triton_mm_1", 1.019))) == "tied"
    assert stats.standing(tuning(("mm", 1.0), ("triton_mm_1", 1.021))) == "ahead"
    assert stats.standing(tuning(("mm", 1.0))) is None


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
        (Choice(name="flydsl_mm_flydsl_0"), "flydsl"),
        (Choice(hash="flydsl_flex_flydsl_forward-c3b"), "flydsl"),
        (Choice(name="cutedsl_flex_gemm_epilogue_3"), "cutedsl"),
        (Choice(name="triton_tlx_amd_addmm_warppipe_1"), "triton"),
        (Choice(name="contiguous_addmm_4"), "subgraph"),
        (Choice(name="my_op_autotuned_1", hash=decompose_k(2)), "subgraph"),
        (Choice(name="_quack_symmetric_mm"), "quack"),
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
    with pytest.raises(NoSuchChoice, match="none of its choices was timed") as raised:
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
    flydsl = "FlyDSL template flydsl_mm_flydsl_7 (TILE_M=128, GROUP=(1, 2), IS_MXFP=False)"
    assert parse_config(flydsl) == {"TILE_M": "128", "GROUP": "(1, 2)", "IS_MXFP": "False"}


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
    with pytest.raises(NoSuchTuning, match=f"'{digit}' begins several ids: "):
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


def timed(*ms: float, device: str = "cuda", **facts: Any) -> Tuning:
    choices = tuple(Choice(f"c{at}", f"h-{at}", each) for at, each in enumerate(ms))
    return Tuning("mm", choices=choices, device=device, **facts)


TICKS = (1.024, 2.048, 3.072, 4.096)
"""In thousandths of a millisecond."""


@pytest.mark.parametrize(
    ("times", "device", "blur"),
    [
        ((), "cuda", 0.0),
        ((0.123456, 0.234567, 0.345678), "cuda", 0.0),
        (tuple(ms * 1e-3 for ms in TICKS), "cuda", 1.5 * 1.024e-3),
        ((0.012, 0.013, 0.015), "cuda", 1.5e-3),
        ((0.0121, 0.0133, 0.0157), "cuda", 1.5e-4),
        ((8.0, 10.0, 12.01), "cpu", 32.0),
        ((8.00071, 10.00012, 12.03001), "cpu", 0.0),
        ((8.0, 10.0, 12.01), "cuda", 1.5e-3),
        ((8.0,), "cpu", 1.5e-4),
        ((0.0, 8.0, 10.0), "cpu", 32.0),
        ((8.0, 10.0, 2e4), "cpu", 32.0),
        ((0.50001, 8.00071, 10.0002), "cpu", 0.0),
    ],
)
def test_below_which_difference_times_say_nothing(
    times: tuple[float, ...], device: str, blur: float
) -> None:
    own = timed(*times, device=device)
    assert stats.blur(own) == pytest.approx(blur)
    odd = Choice("odd", "odd-1", 0.7654321, offered=False), Choice("bad", "bad-1", failed=True)
    more = replace(own, choices=(*own.choices, *odd, Choice("untimed")))
    assert stats.blur(more) == pytest.approx(blur), "of what was timed together"


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (0.012, 0.013, True), (0.013, 0.012, True), (0.012, 0.01351, False), (0.012, 0.014, False),
        (0.6, 0.6013, True), (0.6, 0.602, False), (0.012, 40.0, False),
    ],
)  # fmt: skip
def test_what_the_clock_cannot_tell_apart(left: float, right: float, same: bool) -> None:
    assert stats.indistinct(timed(0.012, 0.013, 0.015), left, right) is same


@pytest.mark.parametrize(
    ("shapes", "strides", "op", "layout"),
    [
        (((4, 8), (8, 2)), ((8, 1), (2, 1)), "mm", "NN"),
        (((4, 8), (8, 2)), ((1, 4), (1, 8)), "mm", "TT"),
        (((4, 8), (8, 2)), ((9, 1), (2, 1)), "mm", "NN+"),
        (((4, 8), (8, 2)), ((8, 1), (1, 9)), "mm", "NT+"),
        (((4, 8), (8, 2)), ((8, 2), (2, 1)), "mm", ""),
        (((4, 8), (8, 2)), ((8, 1),), "mm", ""),
        (((4, 8), (8, 2)), ((8, 1), (2,)), "mm", ""),
        (((4, 8), (8,)), ((8, 1), (1,)), "mm", ""),
        (((1, 8), (8, 2)), ((99, 1), (2, 1)), "mm", "NN"),
        (((4, 1), (1, 2)), ((1, 7), (2, 1)), "mm", "NN"),
        (((1, 8), (8, 2)), ((3, 4), (2, 1)), "mm", "TN+"),
        (((4, 2), (4, 8), (8, 2)), ((2, 1), (8, 1), (1, 8)), "addmm", "NT"),
        (((3, 4, 8), (3, 8, 2)), ((32, 8, 1), (16, 2, 1)), "bmm", "NN"),
        (((3, 4, 8), (3, 8, 2)), ((32, 1, 4), (16, 1, 8)), "bmm", "TT"),
        (((3, 4, 8), (3, 8, 2)), ((33, 8, 1), (16, 2, 1)), "bmm", "NN+"),
        (((1, 4, 8), (1, 8, 2)), ((33, 8, 1), (16, 2, 1)), "bmm", "NN"),
        (((3, 4, 8), (3, 8, 2)), ((32, 8, 2), (16, 2, 1)), "bmm", ""),
        (((4, 8), (1, 1), (2, 8)), ((8, 1), (1, 1), (8, 1)), "packed_linear", "NT"),
        (((4, 8), (1, 1), (2, 8)), ((8, 1), (1, 1), (1, 2)), "packed_linear", "NN"),
        (((4, 8), (8, 2)), ((8, 1), (2, 1)), "new_op", ""),
        (((1, 3, 8, 8), (4, 3, 3, 3)), ((192, 1, 24, 3), ()), "convolution", "NHWC"),
        (((1, 3, 8, 8), (4, 3, 3, 3)), ((192, 64, 8, 1), ()), "convolution", "NCHW"),
        (((1, 3, 8, 8), (4, 3, 3, 3)), ((192, 64, 8, 2), ()), "convolution", ""),
        (((1, 1, 8, 8), (4, 3, 3, 3)), ((64, 1, 8, 1), ()), "convolution", ""),
        (((1, 3, 1, 1), (4, 3, 3, 3)), ((3, 1, 3, 3), ()), "convolution", ""),
        (((3, 8, 8), (4, 3, 3, 3)), ((64, 1, 8, 1), ()), "convolution", ""),
        (((1, 3, 8, 8), (4, 3, 3, 3)), ((1, 24, 3), ()), "convolution", ""),
        (((1, 3, 8, 8),), (), "convolution", ""),
    ],
)
def test_how_the_factors_lie_in_memory(shapes: Any, strides: Any, op: str, layout: str) -> None:
    assert stats.layout_of(Tuning(op, shapes, strides)) == layout


@pytest.mark.parametrize(
    ("asked", "sizes", "dtypes"),
    [
        ("M=64,N=1280,K=8192,dtype=bf16", "64×1280×8192", ("bf16",)),
        ("B=2,M=64,N=1280,K=8192", "2×64×1280×8192", ()),
        ("b=2,m=64,n=1280,k=8192", "2×64×1280×8192", ()),
        ("M=64,E=128,N=352", "M=64 E=128 N=352", ()),
        ("token=64,model_dim=7168,inter_dim=512,expert=384,topk=6,dtype=bf16,q_dtype_a=fp8",
         "M=64 7168×512 E=384 topk=6", ("bf16", "fp8")),
        ("token=64,model_dim=7168", "M=64 7168×? E=? topk=?", ()),
        ("token=64,x=1", "token=64 x=1", ()),
        ("model_dim=64,x=1", "model_dim=64 x=1", ()),
        ("step=5", "5", ()),
        ("block=[1, 2],q_dtype_w=i4", "block=[1, 2]", ("i4",)),
        ("3-224-NCHW", "3-224-NCHW", ()),
    ],
)  # fmt: skip
def test_what_a_table_is_asked_for(asked: str, sizes: str, dtypes: tuple[str, ...]) -> None:
    assert (stats.asked_sizes(asked), stats.asked_dtypes(asked)) == (sizes, dtypes)


def measurement(*measured: tuple[str, float, float, float, str]) -> Measurement:
    """Of choices, by hash: the ratio with its ends, the verdict."""
    found: list[Any] = [
        MeasuredChoice(name, 2 * ratio, 1.0, 3.0, 0.0, 9, ratio, low, high, verdict)  # type: ignore[arg-type]
        for name, ratio, low, high, verdict in measured
    ]
    return Measurement("mm", "x", "highest", 1.0, tuple(found))


BEST = ("h-1", 1.0, 1.0, 1.0, "faster")
SLOW, TIED = ("h-0", 1.2, 1.1, 1.3, "slower"), ("h-0", 1.01, 0.99, 1.015, "tied")
UNCLEAR = ("h-0", 1.05, 0.9, 1.2, "unclear")


@pytest.mark.parametrize(
    ("measured", "own", "of_first", "of_second"),
    [
        ((BEST, SLOW), (1.0, 1.3, 1.9), "slower", "clear"),
        ((BEST, SLOW), (1.0, 1.3), "slower", "clear"),
        ((BEST, SLOW), (1.0, 1.3, 1.301), "slower", "tied"),
        ((BEST, SLOW), (1.0, 1.3, 1.2), "slower", "unclear"),
        (((*BEST[:4], "tied"), TIED), (1.0, 1.3, 1.9), "tied", "tied"),
        (((*BEST[:4], "unclear"), UNCLEAR), (1.0, 1.3, 1.9), "unclear", "unclear"),
        ((BEST,), (1.0, 1.3, 1.9), "ahead", "behind"),
        ((), (1.0, 1.3, 1.9), "ahead", "behind"),
    ],
)
def test_what_was_measured_counts_before_single_times(
    measured: Any, own: tuple[float, ...], of_first: str, of_second: str
) -> None:
    one = replace(timed(*own), measured=measurement(*measured) if measured else None)
    first, second = one.choices[:2]
    assert (stats.standing(one), stats.standing(one, second)) == (of_first, of_second)
    beaten = of_first == "slower"
    assert stats.fastest(one) is (second if beaten else first)
    assert stats.faster(one) == ((2, second) if beaten else None)
    assert stats.faster(one, second) is None
    assert stats.wins_clearly(one) is False
    assert stats.once(one, first) is (len(measured) < 2) and not stats.once(one, None)
    assert stats.once(one, first, second) is (len(measured) < 2)
    known = len(measured) > 1
    assert stats.time_ms(one, first) == (2 * measured[1][1] if known else 1.0)
    assert stats.time_ms(one, None) is None
    over = measured[1][1] / 1.0 if known else 1.0 / 1.3
    assert stats.ratio(one, first, second) == pytest.approx(over)
    assert (stats.rounding(one, first) == 0) is known


@pytest.mark.parametrize(
    ("choice", "rival", "how"),
    [
        ((1.1, 1.2), (1.3, 1.4), "clear"), ((1.3, 1.4), (1.1, 1.2), "slower"),
        ((1.1, 1.2), (1.2, 1.4), "unclear"), ((1.2, 1.4), (1.1, 1.2), "unclear"),
        ((1.1, 1.12), (1.11, 1.115), "tied"), ((1.1, 1.12), (1.11, 1.123), "unclear"),
    ],
)  # fmt: skip
def test_two_that_are_not_the_best_are_judged_by_their_intervals(
    choice: tuple[float, float], rival: tuple[float, float], how: str
) -> None:
    others = [("h-0", 1.2, *choice, "slower"), ("h-2", 1.3, *rival, "slower")]
    one = replace(timed(1.0, 0.9, 1.1), measured=measurement(BEST, *others))
    first, best, second = one.choices
    assert stats.versus(one, first, second) == how
    assert (stats.versus(one, best, first), stats.versus(one, first, best)) == ("clear", "slower")
    new = Choice("new", "new-1", 2.0)
    assert stats.versus(one, first, new) == "ahead" and stats.versus(one, new, first) == "behind"
    for odd in (Choice("odd", "odd-1"), Choice("odd", "odd-1", 2.0, failed=True)):
        assert stats.versus(one, first, odd) is stats.versus(one, odd, first) is None
    zero = Choice("zero", "zero-1", 0.0)
    assert stats.versus(one, first, zero) is None and stats.versus(one, zero, first) == "ahead"


@pytest.mark.parametrize(
    ("quantiles", "near"),
    [
        (((0.9, 1.1), (1.1, 1.3)), True), (((0.9, 1.1), (1.11, 1.3)), False),
        (((1.1, 1.3), (0.9, 1.1)), True), (((1.11, 1.3), (0.9, 1.1)), False),
        ((None, (0.9, 1.3)), False), (((0.9, 1.3), None), False),
    ],
)  # fmt: skip
def test_samples_that_overlap_show_no_difference(quantiles: Any, near: bool) -> None:
    left, right = (
        Choice(f"c{at}", f"h-{at}", ms, quantiles=own)
        for at, (ms, own) in enumerate(zip((1.03457, 1.21111), quantiles, strict=True))
    )
    one = Tuning("mm", choices=(left, right), device="cuda")
    assert stats.near(one, left, right) is stats.near(one, right, left) is near
    assert not stats.near(one, replace(left, ms=-1.0), right)
    assert stats.standing(one) == ("unclear" if near else "ahead")


@pytest.mark.parametrize(
    ("choices", "facts", "chosen", "single"),
    [
        ([Choice("a", "a-1")], {"num_choices": 1}, True, True),
        ([Choice("a", "a-1")], {"selected_by": "only"}, True, True),
        ([Choice("a", "a-1")], {}, True, False),
        ([Choice("a", "a-1")], {"inputs_key": "x", "precision": "highest"}, True, True),
        ([Choice("a", "a-1")], {"num_choices": 2}, True, False),
        ([Choice("a", "a-1", 1.0)], {"num_choices": 1}, False, True),
        ([Choice("a", "a-1", failed=True)], {"num_choices": 1}, False, True),
        ([Choice("a"), Choice("b")], {"num_choices": 1}, False, False),
        ([Choice("a", "a-1")], {"num_choices": 1, "state": "running"}, False, False),
        ([], {"num_choices": 1}, False, False),
    ],
)
def test_what_had_no_rival(
    choices: list[Choice], facts: dict[str, Any], chosen: bool, single: bool
) -> None:
    one = Tuning("mm", choices=tuple(choices), **facts)
    assert stats.chosen(one) is (choices[0] if chosen else None)
    assert stats.single(one) is single


def test_the_nearest_rival_and_how_far_it_is() -> None:
    one = timed(1.0, 1.3, 2.0)
    first, second, third = one.choices
    assert [stats.nearest(one, c) for c in (None, second, third)] == [second, first, first]
    assert stats.lead(one, second) == pytest.approx(1 / 1.3 - 1)
    zero = timed(0.0, 1.0)
    assert stats.nearest(zero) is None and stats.nearest(timed()) is None
    assert stats.nearest(timed(1.0)) is None
    seen = replace(one, measured=measurement(("h-2", 1.0, 1.0, 1.0, "faster"), TIED))
    assert stats.nearest(seen) is third, "as it was measured"
    own = replace(timed(1.0), choices=(Choice("mm", "mm-b", 1.0), *timed(0.5).choices))
    assert stats.saved_ms(own) == 0.0 and stats.saved_ms(timed(1.0)) is None


def test_keys_that_differ() -> None:
    def choices(*texts: str) -> tuple[Choice, ...]:
        return tuple(Choice(description=text) for text in texts)

    assert stats.differing_keys(choices("A=1, B=2", "A=1, B=3", "")) == ["B"]
    assert stats.differing_keys(choices("A=1, B=2", "A=1")) == ["B"]
    assert stats.differing_keys(choices("A=1", "C=1, A=2")) == ["A", "C"]
    assert stats.differing_keys(choices("A=1")) == stats.differing_keys(()) == []


def test_the_operands_in_words() -> None:
    assert stats.sizes_text(Tuning("bmm", ((8, 2, 3), (8, 3, 4)))) == "8×2×4×3"
    assert stats.sizes_text(Tuning("bmm", ((1, 2, 3), (1, 3, 4)))) == "2×4×3"
    assert stats.sizes_text(Tuning("new", ((8, 2), (), (3,)))) == "8×2 · () · 3"
    assert stats.all_sizes(Tuning("mm", ((8, 2), (2, 3)))) == "8×2 · 2×3"
    kernel = Tuning("triton", inputs_key='f_k[4096, "torch.float16"]')
    assert stats.sizes_text(kernel).startswith("f_k 4096")
    types = ("torch.float16", "torch.float8_e4m3fnuz", "torch.float16", "torch.new")
    assert stats.dtype_of(Tuning("mm", dtypes=types)) == "f16·f8e4m3·new"
    assert stats.tried_text(timed(1.0)) == "1 shown"
    assert stats.tried_text(timed(1.0, num_choices=5)) == "5"


def test_an_entry_of_a_table_is_shown_by_its_key() -> None:
    entry = TableEntry("aiter", 1)
    own = Tuning("g", inputs_key="g,M=64,N=8,K=4,dtype=bf16", entry=entry, choices=(Choice("a"),))
    assert stats.sizes_text(own) == stats.all_sizes(own) == "64×8×4"
    assert stats.dtype_of(own) == "bf16" and not stats.single(replace(own, num_choices=1))
    product = replace(own, op="mm", shapes=((2, 3), (3, 4)), dtypes=("torch.float16",))
    assert (stats.sizes_text(product), stats.dtype_of(product)) == ("2×4×3", "f16")
    assert stats.sizes_text(replace(own, inputs_key=None)) == ""
    assert stats.sizes_text(replace(own, entry=None)) == stats.dtype_of(replace(own, entry=None))


def test_what_a_choice_saves_and_how_the_best_compares_as_measured() -> None:
    times = Choice("mm", "h-0", 5.0), Choice("triton_mm_1", "h-1", 4.0)
    unclear = ("h-0", 1.2, 1.1, 1.3, "unclear")
    one = Tuning("mm", choices=times[::-1], measured=measurement(BEST, unclear))
    assert stats.saved_ms(one) == pytest.approx(2.4 - 2.0)
    assert stats.saved_ms(one, times[0]) == 0.0
    assert stats.versus(one, *times) == stats.versus(one, *times[::-1]) == "unclear"
    assert stats.saved_ms(replace(one, measured=None)) == 1.0
    assert stats.lead_over(one, None, times[0]) is stats.lead_over(one, times[0], None) is None
