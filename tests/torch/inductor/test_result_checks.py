"""Bounds of rounding, element by element, for each kind of op: nothing is said of honest results
that were summed up in other orders, and a block of terms that was left out is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from backend.inductor.result_checks import Exact, OpSpec, exact_product, true_product
from backend.inductor.true_results import NoReference
from tests.support.planted_sums import families

pytestmark = pytest.mark.torch

BF16, F8 = torch.bfloat16, torch.float8_e4m3fn


@dataclass(frozen=True)
class Case:
    """An op on inputs; `honest` are its results in several orders, `planted` one that leaves out
    some of the terms."""

    name: str
    asked: OpSpec
    inputs: tuple[Tensor, ...]
    honest: tuple[Tensor, ...]
    planted: Tensor


def sum_of(a: Tensor, b: Tensor, skipped: int = 0) -> tuple[Tensor, ...]:
    """In float32, in three orders; without the last `skipped` terms."""
    x, y = a.float(), b.float()
    k = x.shape[-1] - skipped
    x, y, half = x[..., :k], y[..., :k, :], k // 2
    return (
        x @ y,
        x.flip(-1) @ y.flip(-2),
        x[..., :half] @ y[..., :half, :] + x[..., half:] @ y[..., half:, :],
    )


def products() -> Iterator[Case]:
    a, b, c, d = (torch.randn(48, 256).to(BF16) for _ in range(4))
    b, d = b.t(), d.t()
    bias = -(a.float() @ b.float()) + 0.01 * torch.randn(48, 48)
    bias = bias.to(BF16)  # cancels the product, which a library rounds first
    yield Case(
        "addmm",
        OpSpec("addmm", "highest"),
        (bias, a, b),
        tuple(p.to(BF16) + bias for p in sum_of(a, b))
        + tuple((p + bias.float()).to(BF16) for p in sum_of(a, b)),
        (sum_of(a, b, 16)[0] + bias).to(BF16),
    )
    yield Case(
        "addmm, scaled",
        OpSpec("addmm", "highest", scales=(0.5, 3.0)),
        (bias, a, b),
        (
            torch.addmm(bias, a, b, alpha=0.5, beta=3.0),
            *((0.5 * p + 3 * bias.float()).to(BF16) for p in sum_of(a, b)),
        ),
        (0.5 * sum_of(a, b, 16)[0] + 3 * bias.float()).to(BF16),
    )
    unread = torch.full_like(bias, torch.nan)
    yield Case(
        "addmm without its bias",
        OpSpec("addmm", "highest", scales=(2.0, 0.0)),
        (unread, a, b),
        (torch.addmm(unread, a, b, alpha=2.0, beta=0.0), *((2 * p).to(BF16) for p in sum_of(a, b))),
        (2 * sum_of(a, b, 16)[0]).to(BF16),
    )
    both = list(zip(sum_of(a, b), sum_of(c, d), strict=True))
    yield Case(
        "mm_plus_mm",
        OpSpec("mm_plus_mm", "highest"),
        (a, b, c, d),
        tuple(p.to(BF16) + q.to(BF16) for p, q in both) + tuple((p + q).to(BF16) for p, q in both),
        (both[0][0] + sum_of(c, d, 16)[0]).to(BF16),
    )
    ends = torch.tensor([10, 11, 48], dtype=torch.int32)
    weight = torch.randn(3, 256, 40).to(BF16)
    grouped = torch._grouped_mm

    def by_group(skipped: int, order: int) -> Tensor:
        parts = zip((0, 10, 11), (10, 11, 48), weight, strict=True)
        sums = [sum_of(a[first:end], w, skipped)[order] for first, end, w in parts]
        return torch.cat(sums).to(BF16)

    yield Case(
        "grouped_mm",
        OpSpec("grouped_mm", "highest"),
        (a, weight, ends),
        (grouped(a, weight, ends), by_group(0, 1), by_group(0, 2)),
        by_group(16, 0),
    )
    terms = torch.tensor([64, 80, 256], dtype=torch.int32)

    def by_terms(skipped: int) -> Tensor:
        places = zip((0, 64, 80), (64, 80, 256), strict=True)
        return torch.stack([sum_of(a[:, i:j], b[i:j], skipped)[0] for i, j in places]).to(BF16)

    yield Case(
        "grouped_mm of terms",
        OpSpec("grouped_mm", "highest"),
        (a, b, terms),
        (by_terms(0),),
        by_terms(8),
    )


def quantized() -> Iterator[Case]:
    a, b = torch.randn(32, 256).to(F8), torch.randn(48, 256).to(F8).t()
    kinds = {
        "tensor": (torch.tensor(0.5), torch.tensor(2.0)),
        "row": (torch.rand(32, 1) + 0.5, torch.rand(1, 48) + 0.5),
        "1x128": (torch.rand(32, 2) + 0.5, torch.rand(2, 48) + 0.5),
        "128x128": (torch.rand(1, 2) + 0.5, torch.rand(2, 1) + 0.5),
    }
    for kind, (one, other) in kinds.items():
        x, y = a.float(), b.float()
        if one.dim():
            x = x * one.repeat_interleave(32 // one.shape[0], 0).repeat_interleave(
                256 // one.shape[1], 1
            )
            y = y * other.repeat_interleave(256 // other.shape[0], 0).repeat_interleave(
                48 // other.shape[1], 1
            )
        else:
            x = x * one * other
        yield Case(
            f"scaled_mm, {kind}",
            OpSpec("scaled_mm", "highest"),
            (a, b, one, other),
            tuple(p.to(BF16) for p in sum_of(x, y)),
            sum_of(x, y, 8)[0].to(BF16),
        )
    a, weight = torch.randn(32, 256).to(BF16), torch.randint(-128, 128, (48, 256)).to(torch.int8)
    scale = (torch.rand(48) + 0.5).to(BF16)
    yield Case(
        "int8",
        OpSpec("weight_int8pack_mm", "highest"),
        (a, weight, scale),
        (
            torch._weight_int8pack_mm(a, weight, scale),
            torch.mm(a, weight.t().to(BF16)) * scale,
            *((p * scale.float()).to(BF16) for p in sum_of(a, weight.t())),
        ),
        (sum_of(a, weight.t(), 16)[0] * scale).to(BF16),
    )
    packed, group = torch.randint(0, 256, (64, 128), dtype=torch.uint8), torch.tensor(32)
    scales = (torch.rand(8, 64, 2) * 0.1 + 0.05).to(BF16)
    int4 = torch.ops.aten._weight_int4pack_mm_for_cpu
    wide = int4(torch.eye(256), packed, 32, scales.float())
    yield Case(
        "int4",
        OpSpec("_weight_int4pack_mm_for_cpu", "highest"),
        (a, packed, group, scales),
        (
            int4(a, packed, 32, scales),
            *(p.to(BF16) for p in sum_of(a, wide)),
            *(p.to(BF16) for p in sum_of(a, wide.to(BF16))),
        ),
        sum_of(a, wide, 32)[0].to(BF16),
    )


def linear() -> Iterator[Case]:
    functional = torch.nn.functional
    a, weight, bias = (torch.randn(*s).to(BF16) for s in ((32, 256), (48, 256), (48,)))
    other = torch.randn(32, 48).to(BF16)
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "swish": functional.silu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "hardswish": functional.hardswish,
    }
    small = (weight / 16).to(BF16)
    for name, function in functions.items():
        yield Case(
            f"linear_unary, {name}",
            OpSpec("linear_unary", "highest", pointwise=name),
            (a, small, bias),
            (
                function(functional.linear(a, small, bias)),
                *(function(p + bias.float()).to(BF16) for p in sum_of(a, small.t())),
            ),
            function(sum_of(a, small.t(), 64)[0] + bias.float()).to(BF16),
        )
    for name, sign in (("add", 1), ("sub", -1)):
        yield Case(
            f"linear_binary, {name}",
            OpSpec("linear_binary", "highest", pointwise=name),
            (a, other, weight, bias),
            (
                functional.linear(a, weight, bias) + sign * other,
                *(
                    (p + bias.float() + sign * other.float()).to(BF16)
                    for p in sum_of(a, weight.t())
                ),
            ),
            (sum_of(a, weight.t(), 16)[0] + bias + sign * other).to(BF16),
        )


def options(**values: tuple[int, ...]) -> Any:
    usual = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 1), "transposed": (0,)}
    usual |= {"output_padding": (0, 0), "groups": (2,)}
    return tuple(sorted((usual | values).items()))


def convolutions() -> Iterator[Case]:
    """The same in float64, and of the images the other way around."""
    back = torch.ops.aten.convolution_backward
    for dtype in (torch.float32, BF16, torch.float16):
        for transposed in (False, True):
            given = options(transposed=(int(transposed),))
            rest = ((2, 1), (1, 0), (1, 1), transposed, (0, 0), 2)
            x, weight = torch.randn(3, 8, 9, 10).to(dtype), torch.randn(8, 4, 3, 3).to(dtype)
            out = torch.convolution(x, weight, None, *rest)
            go, bias = torch.randn(out.shape).to(dtype), torch.randn(out.shape[1]).to(dtype)
            less = weight.clone()
            less[:, 0, 0, 0] = 0
            wide = [tensor.double() for tensor in (x, weight, bias, go)]
            x64, weight64, bias64, go64 = wide
            forward = torch.convolution
            yield Case(
                f"convolution, {dtype}, {transposed=}",
                OpSpec("convolution", "highest", given, tuple(out.shape)),
                (x, weight, bias),
                (
                    forward(x, weight, bias, *rest),
                    forward(x.flip(0), weight, bias, *rest).flip(0),
                    forward(x, weight, None, *rest) + bias.view(-1, 1, 1),
                    forward(x64, weight64, bias64, *rest).to(dtype),
                ),
                forward(x, less, bias, *rest),
            )
            mask = [True, False, False]
            yield Case(
                f"backward of the input, {dtype}, {transposed=}",
                OpSpec("convolution_bwd_input", "highest", given, tuple(x.shape)),
                (go, weight),
                (
                    back(go, x, weight, None, *rest, mask)[0],
                    back(go64, x64, weight64, None, *rest, mask)[0].to(dtype),
                ),
                back(go, x, less, None, *rest, mask)[0],
            )
            mask, fewer = [False, True, False], torch.cat([x[:2], torch.zeros_like(x[2:])])
            yield Case(
                f"backward of the weight, {dtype}, {transposed=}",
                OpSpec("convolution_bwd_weight", "highest", given, tuple(weight.shape)),
                (x, go),
                (
                    back(go, x, weight, None, *rest, mask)[1],
                    back(go.flip(0), x.flip(0), weight, None, *rest, mask)[1],
                    back(go64, x64, weight64, None, *rest, mask)[1].to(dtype),
                ),
                back(go, fewer, weight, None, *rest, mask)[1],
            )


def convolutions_without_onednn() -> Iterator[Case]:
    """The same by PyTorch's own kernels, which round partial sums. Every CPU without AVX-512 takes
    them for bfloat16."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield from convolutions()


def exact_of(case: Case) -> Exact:
    truth = true_product(case.asked, case.inputs)
    for result in case.honest:
        truth.check(result)
    exact = exact_product(case.asked, case.inputs, truth)
    assert exact is not None, case.name
    return exact


KINDS = [products, quantized, linear, convolutions, convolutions_without_onednn]


@pytest.mark.parametrize("cases", KINDS)
def test_honest_sums_are_within_and_fewer_terms_are_beyond(
    cases: Callable[[], Iterator[Case]],
) -> None:
    torch.manual_seed(0)
    count = 0
    for case in cases():
        count += 1
        exact, worst = exact_of(case).of_library(), 0.0
        assert exact is not None, case.name
        for at, result in enumerate(case.honest):
            found = exact.distance(result)
            assert found.compared and not found.beyond, (case.name, at, found)
            worst = max(worst, found.excess)
        assert worst > 1e-4, (case.name, worst)
        found = exact.distance(case.planted)
        assert found.beyond > 0.05 * found.compared, (case.name, found)
    assert count


def gradient(op: str, images: int) -> tuple[OpSpec, Any, Tensor]:
    """What is asked for a convolution's gradient, its inputs, and the gradient by ATen."""
    rest = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    given = options(stride=(1, 1), padding=(1, 1), groups=(1,))
    x, weight = torch.randn(images, 4, 6, 6).to(BF16), torch.randn(4, 4, 3, 3).to(BF16)
    go, image = torch.randn(images, 4, 6, 6).to(BF16), op == "convolution_bwd_input"
    asked = OpSpec(op, "highest", given, tuple((x if image else weight).shape))
    found = torch.ops.aten.convolution_backward(
        go, x, weight, None, *rest, [image, not image, False]
    )
    return asked, (go, weight) if image else (x, go), found[0 if image else 1]


@pytest.mark.parametrize("op", ["convolution_bwd_input", "convolution_bwd_weight"])
def test_only_pytorchs_own_kernel_may_round_partial_sums(op: str) -> None:
    """Others, which sum in float32, are held to the narrower bound."""
    torch.manual_seed(0)
    with torch.backends.mkldnn.flags(enabled=False):
        asked, inputs, result = gradient(op, 3)
        exact = exact_product(asked, inputs, true_product(asked, inputs))
    assert exact is not None and (library := exact.of_library()) is not None
    assert exact.distance(result).beyond and not library.distance(result).beyond


def test_a_large_output_padding_keeps_onednn_away() -> None:
    torch.manual_seed(0)
    given = options(dilation=(2, 2), output_padding=(1, 1), stride=(1, 1), transposed=(1,))
    x, weight = torch.randn(3, 8, 9, 10).to(BF16), torch.randn(8, 4, 3, 3).to(BF16)
    result = torch.convolution(x, weight, None, (1, 1), (1, 0), (2, 2), True, (1, 1), 2)
    asked = OpSpec("convolution", "highest", given, tuple(result.shape))
    exact = exact_product(asked, (x, weight), true_product(asked, (x, weight)))
    assert exact is not None and (library := exact.of_library()) is not None
    assert exact.distance(result).beyond and not library.distance(result).beyond


def test_a_bound_that_zeros_would_keep_is_none() -> None:
    """Each image of a batch is a rounding of the weight's gradient."""
    torch.manual_seed(0)
    with torch.backends.mkldnn.flags(enabled=False):
        for images, bounded in ((8, True), (64, False)):
            asked, inputs, result = gradient("convolution_bwd_weight", images)
            truth = true_product(asked, inputs)
            truth.check(result)
            exact = exact_product(asked, inputs, truth)
            assert exact is not None and (exact.of_library() is not None) == bounded
        asked, inputs, _ = gradient("convolution_bwd_weight", 300)
        with pytest.raises(NoReference, match="300 partial sums in bfloat16"):
            true_product(asked, inputs)


def test_a_sum_is_stored_before_the_last_summand_cancels_it() -> None:
    """As a linear layer is, before its result is added to another tensor."""
    torch.manual_seed(0)
    a, weight = torch.randn(32, 256).to(BF16), torch.randn(48, 256).to(BF16)
    bias, other = torch.full((48,), 1000.0).to(BF16), torch.full((32, 48), -1000.0).to(BF16)
    asked = OpSpec("linear_binary", "highest", pointwise="add")
    inputs = (a, other, weight, bias)
    exact = exact_product(asked, inputs, true_product(asked, inputs))
    assert exact is not None
    result = torch.nn.functional.linear(a, weight, bias) + other
    assert not exact.distance(result).beyond
    assert exact.distance(result + 16).beyond


def test_what_is_not_known_has_no_bound() -> None:
    a = torch.randn(8, 64)
    for asked, inputs in (
        (OpSpec("scaled_mm", "highest"), (a.to(F8), a.to(F8).t(), torch.ones(64), torch.ones(64))),
        (OpSpec("linear_binary", "highest", pointwise="mul"), (a, a, a, a)),
        (OpSpec("linear_unary", "highest", pointwise="mish"), (a, a)),
        (OpSpec("addmm", "highest", scales=None), (a, a, a.t())),
        (OpSpec("convolution_bwd_input", "highest"), (a, a)),
        (OpSpec("flex_attention", "highest"), (a, a, a)),
    ):
        with pytest.raises(NoReference):
            true_product(asked, inputs)


def test_a_float64_result_is_computed_in_float64_off_the_cpu() -> None:
    a, b = (torch.empty(*s, dtype=torch.float64, device="meta") for s in ((0, 16), (16, 8)))
    assert true_product(OpSpec("mm", "highest"), (a, b)).values.dtype == torch.float64


def test_an_activation_is_applied_once_whatever_its_name_is() -> None:
    """oneDNN's `swish` is our `silu`."""
    asked, inputs = OpSpec("linear_unary", "highest", pointwise="swish"), (torch.randn(8, 8),) * 2
    exact = exact_product(asked, inputs, true_product(asked, inputs))
    assert exact is not None
    assert exact.activated("silu", BF16) is exact
    assert exact.activated("relu", BF16) is not exact


def test_a_sum_that_may_lose_all_of_its_terms_has_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    from backend.inductor import result_checks

    a = torch.randn(4, 64)
    asked = OpSpec("mm", "highest")
    truth = true_product(asked, (a, a.t()))
    assert exact_product(asked, (a, a.t()), truth) is not None
    monkeypatch.setattr(result_checks, "gamma", lambda terms, unit: 1.0)
    assert exact_product(asked, (a, a.t()), truth) is None


def test_kernels_of_each_family_are_told_apart() -> None:
    """Another order has another letter, a part that is left out is beyond, a race is not steady."""
    found = {family.name: family.mistakes() for family in families("cpu")}
    assert len(found) == 21 and not any(found.values()), found
