"""What makes a result right, and what the process that benchmarks does when it is lost."""

from __future__ import annotations

import os
import time

import pytest

torch = pytest.importorskip("torch")

from backend.inductor.benchmark import process as rocm_process  # noqa: E402
from backend.inductor.benchmark.errors import (  # noqa: E402
    ChoiceError,
    ProcessLost,
    TimedOut,
    WrongResult,
)
from backend.inductor.benchmark.tensors import (  # noqa: E402  # noqa: E402
    GemmReference,
    TensorPlan,
    check_untouched,
    make_inputs,
    storage_of,
)
from backend.inductor.hip.other_products import Int8WeightReference  # noqa: E402
from tests.support.rogue_acts import ACTS, MARK, left  # noqa: E402

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def plans(dtype: torch.dtype) -> tuple[list[TensorPlan], TensorPlan]:
    """A padded left factor, a transposed right one and a broadcast bias; and the output."""
    inputs = [
        TensorPlan("cpu", dtype, (2, 30, 300), (30 * 310, 310, 1), 3),
        TensorPlan("cpu", dtype, (2, 300, 20), (6000, 1, 300)),
        TensorPlan("cpu", dtype, (2, 30, 20), (0, 0, 1)),
    ]
    return inputs, TensorPlan("cpu", dtype, (2, 30, 20), (600, 20, 1))


def test_a_long_sum_of_integers_fits_into_fp16() -> None:
    m, n, k = 16, 128, 32768
    x, weight, scale = make_inputs(
        [
            TensorPlan("cpu", torch.float16, (m, k), (k, 1)),
            TensorPlan("cpu", torch.int8, (n, k), (k, 1)),
            TensorPlan("cpu", torch.float16, (n,), (1,)),
        ]
    )
    reference = Int8WeightReference()
    inputs = reference.drawn([x, weight, scale])
    products = [factor.double() for factor in inputs]
    out = TensorPlan("cpu", torch.float16, (m, n), (n, 1)).make()
    out.copy_(products[0] @ products[1].t() * products[2])
    reference.expected(inputs).check(out)
    assert storage_of(inputs[2]).isnan().sum() == storage_of(scale).isnan().sum() > 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu_tanh", "silu"])
def test_right_results_pass(dtype: torch.dtype, activation: str) -> None:
    inputs, output = plans(dtype)
    a, b, bias = made = make_inputs(inputs)
    expected = GemmReference(0.5, 2.0, activation).expected(made)  # type: ignore[arg-type]
    sums = torch.zeros(2, 30, 20)
    for k in range(300):  # as a kernel does, one after the other in fp32
        sums += a.float()[..., k, None] * b.float()[:, None, k]
    value = 0.5 * sums + 2.0 * bias.float()
    functional = torch.nn.functional
    activations = {
        "none": lambda x: x,
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "silu": functional.silu,
    }
    out = output.make()
    out.copy_(activations[activation](value))
    expected.check(out)
    check_untouched(out)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_wrong_results_do_not(dtype: torch.dtype) -> None:
    inputs, output = plans(dtype)
    made = make_inputs(inputs)
    expected = GemmReference().expected(made)
    everything = slice(None)
    values, _ = expected.reference.part(expected.inputs, (everything, everything, everything))
    right = values.to(dtype)

    def fails(change: object, match: str) -> None:
        out = output.make()
        out.copy_(right)
        change(out)  # type: ignore[operator]
        with pytest.raises(WrongResult, match=match):
            expected.check(out)

    fails(lambda out: out[1, 29, 19].add_(1), r"max error .* at \[1, 29, 19\]")
    fails(lambda out: out[0, 3, 4].fill_(torch.nan), r"1 of 1,200 elements is NaN.*\[0, 3, 4\]")
    fails(lambda out: out[1].copy_(right[0]), "max error")
    # One product of 300 too few, as a wrong mask of the edge makes.
    short = (made[0][..., :-1].double() @ made[1][:, :-1].double() + made[2].double()).to(dtype)
    fails(lambda out: out.copy_(short), "max error")


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
def test_writes_outside_are_seen(dtype: torch.dtype) -> None:
    for at in (-1, 1200):
        out = plans(dtype)[1].make()
        storage_of(out)[out.storage_offset() + at] = 1
        with pytest.raises(WrongResult, match="1 element outside of the output was"):
            check_untouched(out)


def test_sums_in_fp64_are_no_sums_in_fp32() -> None:
    inputs, output = plans(torch.float64)
    a, b, bias = made = make_inputs(inputs)
    expected = GemmReference().expected(made)
    sums = torch.zeros(2, 30, 20, dtype=torch.float64)
    for k in range(300):
        sums += a[..., k, None] * b[:, None, k]
    out = output.make()
    out.copy_(sums + bias)
    expected.check(out)
    check_untouched(out)
    out.copy_(a.float() @ b.float() + bias)
    with pytest.raises(WrongResult, match="max error"):
        expected.check(out)


def whole_products() -> tuple[list[torch.Tensor], torch.Tensor]:
    """int8 factors with padding and an offset, and memory for their product."""
    factors = [
        TensorPlan("cpu", torch.int8, (30, 300), (310, 1), 3),
        TensorPlan("cpu", torch.int8, (300, 20), (1, 300)),
    ]
    return make_inputs(factors), TensorPlan("cpu", torch.int32, (30, 20), (20, 1)).make()


def test_whole_numbers_are_exact() -> None:
    (a, b), out = whole_products()
    expected = GemmReference().expected([a, b])
    right = torch._int_mm(a, b)
    out.copy_(right)
    expected.check(out)
    check_untouched(out)
    assert a.unique().numel() > 200
    for wrong in (right + (torch.arange(600).view(30, 20) == 77), torch.full_like(right, -(2**31))):
        out.copy_(wrong)
        with pytest.raises(WrongResult, match="max error"):
            expected.check(out)


def test_one_whole_product_past_the_edge_shows() -> None:
    (a, b), out = whole_products()
    expected = GemmReference().expected([a, b])
    longer = [
        x.as_strided((30 if x is a else 301, 301 if x is a else 20), x.stride()) for x in (a, b)
    ]
    out.copy_(longer[0].int() @ longer[1].int())
    with pytest.raises(WrongResult, match="max error"):
        expected.check(out)


def test_inputs_are_the_same_each_time_and_guarded() -> None:
    specs, _ = plans(torch.bfloat16)
    first, second = make_inputs(specs), make_inputs(specs)
    for plan, one, other in zip(specs, first, second, strict=True):
        assert torch.equal(one, other)
        assert not one.isnan().any()
        assert (one.stride(), one.shape) == (plan.strides, plan.sizes)
        assert one.storage_offset() % 8 == plan.offset % 8  # as aligned as the real one
        distinct = one.expand(plan.sizes).unique().numel()
        assert storage_of(one).isnan().sum() >= 512 and distinct > 10


class Sleeps:
    def benchmark(self) -> float:
        time.sleep(60)
        return 1.0


class Dies:
    def benchmark(self) -> float:
        os.kill(os.getpid(), 11)
        return 1.0


class Leaves:
    """A daemon of its own session whose parent is gone."""

    def benchmark(self) -> float:
        ACTS["leaves_spinners"]()
        return 1.0


class Babbles:
    def benchmark(self) -> float:
        ACTS["babbles"]()
        return 1.0


class Says:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def benchmark(self) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_lost_process_is_replaced() -> None:
    process = rocm_process.BenchmarkProcess()
    try:
        assert process.run(Says(0.5), 60) == 0.5
        with pytest.raises(WrongResult, match="by 3"):
            process.run(Says(WrongResult("by 3")), 60)
        with pytest.raises(ChoiceError, match="ZeroDivisionError: no"):
            process.run(Says(ZeroDivisionError("no")), 60)
        assert process.run(Says(2.0), 60) == 2.0  # the same one still
        with pytest.raises(TimedOut, match="no result within 1 s"):
            process.run(Sleeps(), 1)
        assert not process.alive()
    finally:
        process.close()
    process = rocm_process.BenchmarkProcess()
    try:
        with pytest.raises(ProcessLost, match="died of SIGSEGV"):
            process.run(Dies(), 60)
        assert not process.alive()
    finally:
        process.close()


def test_what_a_kernel_leaves_running_ends_with_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(MARK, "a kernel of ours")
    process = rocm_process.BenchmarkProcess()
    try:
        assert process.run(Leaves(), 60) == 1.0
        assert len(left("a kernel of ours")) > 3
    finally:
        process.close()
    assert left("a kernel of ours") == []


def test_one_that_writes_into_the_pipe_of_its_process_has_crashed() -> None:
    process = rocm_process.BenchmarkProcess()
    try:
        with pytest.raises(ChoiceError):
            process.run(Babbles(), 2)
    finally:
        process.close()


def test_seconds_of_the_environment() -> None:
    seconds = rocm_process.allowed_seconds
    assert seconds({}) == rocm_process.DEFAULT_SECONDS
    assert seconds({rocm_process.SECONDS: "2.5"}) == 2.5
    assert seconds({rocm_process.SECONDS: "0"}) == 0
    assert seconds({rocm_process.SECONDS: "soon"}) == rocm_process.DEFAULT_SECONDS
    assert seconds({rocm_process.SECONDS: "-1"}) == rocm_process.DEFAULT_SECONDS
    assert seconds({rocm_process.SECONDS: "nan"}) == rocm_process.DEFAULT_SECONDS
    for endless in ("inf", "1e300"):  # more than a system call takes
        assert seconds({rocm_process.SECONDS: endless}) == rocm_process.MOST_SECONDS


def test_sums_of_fp8_are_believed_as_far_as_a_program_allows() -> None:
    """Off by 2^-14 of the sum: more than fp32 is, and what 14 bits are."""
    torch.manual_seed(0)
    a, b = (torch.randn(16, 16).abs().to(torch.float8_e4m3fn) for _ in "ab")
    output = (a.float() @ b.float()) * (1 + 2.0**-14)
    GemmReference(fast_sums=True).expected([a, b]).check(output)
    with pytest.raises(WrongResult):
        GemmReference().expected([a, b]).check(output)
