"""What an op was given beside its tensors, as text and in the hash of ATen's choice."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backend.model.choice import Choice
from backend.model.options import (
    Options,
    options,
    options_of_hash,
    options_of_text,
    options_of_values,
    text_of_options,
)
from backend.model.tuning import Tuning
from rocm_tui.jobs.tune import problem_of

GIVEN: dict[str, dict[str, object]] = {
    "convolution": {"stride": [2, 1], "transposed": False, "groups": 12},
    "linear_unary": {"attr": "hardtanh", "scalars": [-0.5, 1], "algorithm": ""},
    "qlinear_unary": {
        "output_scale": 1.5e-05,
        "output_zero_point": -3,
        "output_dtype": "torch.uint8",
        "post_op_name": "relu",
        "post_op_args": [],
        "post_op_algorithm": "",
    },
    "qlinear_binary": {"binary_post_op": "sum", "binary_alpha": 1.0, "unary_post_op": "none"},
    "scaled_mm": {"out_dtype": "torch.float16", "use_fast_accum": True},
}


@pytest.mark.parametrize("op", GIVEN)
def test_text_tells_all_of_it(op: str) -> None:
    given = options_of_values(op, GIVEN[op])
    assert dict(given).keys() == GIVEN[op].keys()
    assert options_of_text(text_of_options(given)) == given


def test_whole_numbers_stay_whole() -> None:
    """The hash of a choice has them as they were given."""
    [(_, numbers)] = options_of_values("linear_unary", {"scalars": [-0.5, 1]})
    assert [type(number) for number in numbers] == [float, int]


@pytest.mark.parametrize(
    ("op", "hash", "wanted"),
    [
        (
            "linear_unary",
            "_linear_pointwise-algorithm='tanh'-attr='gelu'-scalars=[]-capp6",
            {"algorithm": ("tanh",), "attr": ("gelu",), "scalars": ()},
        ),
        (
            "linear_unary",
            "_linear_pointwise-B=None-algorithm=''-attr='hardtanh'-scalars=[-0.5, 1]-capp6",
            {"algorithm": ("",), "attr": ("hardtanh",), "scalars": (-0.5, 1)},
        ),
        ("linear_binary", "_linear_pointwise.binary-B=None-attr='sub'-c5l", {"attr": ("sub",)}),
        (
            "scaled_mm",
            "_scaled_mm-out_dtype=torch.float16-use_fast_accum=True-cskx",
            {"out_dtype": ("float16",), "use_fast_accum": (1,)},
        ),
        (
            "convolution",
            "convolution-bias=None-dilation=(1, 1)-groups=12-transposed=False-cab",
            {"dilation": (1, 1), "groups": (12,), "transposed": (0,)},
        ),
        ("linear_unary", "CppMicroGemmAMX-c3ern", {}),
        ("linear_unary", "_linear_pointwise.binary-attr='add'-c5l", {}),
    ],
)
def test_atens_hash_tells_it(op: str, hash: str, wanted: dict[str, tuple[object, ...]]) -> None:
    assert dict(options_of_hash(op, hash)) == wanted


def test_what_is_no_number_is_left_out() -> None:
    size = SimpleNamespace()
    assert options_of_values("scaled_mm", {"out_dtype": "a;b", "use_fast_accum": size}) == ()


@pytest.mark.parametrize("text", ["attr=x y", "attr", "=1", "pickle=1", "stride=1x", "groups=1;2"])
def test_foreign_text_tells_nothing(text: str) -> None:
    known: Options = options({})
    assert options_of_text(text) == known


def test_a_problem_is_given_what_the_hash_of_atens_choice_tells() -> None:
    one, two = (
        Choice("convolution", f"convolution-bias=None-groups=1-stride=({at}, {at})-c{at}")
        for at in (1, 2)
    )
    other = Choice("triton_convolution2d_1", "triton_convolution2d-c3")
    shapes, strides = ((2, 16, 8, 8), (16, 16, 3, 3)), ((1024, 1, 128, 16), (144, 1, 48, 16))

    def told(*choices: Choice) -> Options:
        dtypes = ("torch.float16",) * 2
        return problem_of(Tuning("convolution", shapes, strides, dtypes, choices=choices)).options

    assert told(two, other) == options_of_hash("convolution", two.hash or "") != ()
    assert told(one, other) not in ((), told(two, other))
    assert told(one, two) == (), "which of them it was is not known"
