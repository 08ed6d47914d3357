"""Each kind of op as parts of its sums, which are added up by kernels of ours: an honest one, one
in another order, one that leaves a part out, one whose parts race.

Imports torch when a function is called.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from backend.inductor.result_checks import OpSpec
    from backend.inductor.sampling import OutputSample

PARTS = 32
KERNELS = ("honest", "reordered", "dropped", "races")


@dataclass(frozen=True)
class Planted:
    """`run` computes an op on inputs by any of `KERNELS`."""

    name: str
    asked: OpSpec
    inputs: tuple[Tensor, ...]
    run: Callable[[str], Tensor]

    def seen(self) -> dict[str, OutputSample]:
        """As a measurement sees the kernels."""
        from backend.inductor.result_checks import exact_product, true_product
        from backend.inductor.sampling import sample_output

        truth = true_product(self.asked, self.inputs)
        truth.check(self.run("honest"))
        exact = exact_product(self.asked, self.inputs, truth)
        return {
            kernel: sample_output(lambda kernel=kernel: self.run(kernel), exact)
            for kernel in KERNELS
        }

    def mistakes(self) -> list[str]:
        """What is not told as it should be, of each kernel."""
        found, told = self.seen(), []
        for kernel, one in found.items():
            far = one.distance is not None and one.distance.beyond > 0
            if one.distance is None or not one.distance.compared:
                told.append(f"{kernel}: no bound")
            elif far != (kernel == "dropped"):
                told.append(f"{kernel}: {one.distance}")
            if (one.same < one.runs) != (kernel == "races"):
                told.append(f"{kernel}: {one.same} of {one.runs} runs gave the same bits")
        if len({found[kernel].digest for kernel in KERNELS[:3]}) < 3:
            told.append("the same letter for different bits")
        return [f"{self.name}, {text}" for text in told]


def _of_parts(
    name: str,
    asked: OpSpec,
    inputs: tuple[Tensor, ...],
    parts: list[Tensor],
    finish: Callable[[Tensor], Tensor] | None = None,
    dropped: int = 1,
) -> Planted:
    """The result is `finish` of the sum of `parts`."""

    def run(kernel: str) -> Tensor:
        known = {"reordered": parts[::-1], "dropped": parts[:-dropped]}
        make = _racing if kernel == "races" else _in_order
        total = make(known.get(kernel, parts))
        return total if finish is None else finish(total)

    return Planted(name, asked, inputs, run)


def _in_order(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def _racing(parts: Sequence[Tensor]) -> Tensor:
    """Each thread adds its parts when it is there."""
    import torch

    total, lock = torch.zeros_like(parts[0]), threading.Lock()

    def add(mine: Sequence[Tensor]) -> None:
        for part in mine:
            time.sleep(random.random() * 2e-4)
            with lock:
                total.add_(part)

    threads = [threading.Thread(target=add, args=(parts[at::4],)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total


def _parts(a: Tensor, b: Tensor) -> list[Tensor]:
    """Of the product, in float32, by terms."""
    pairs = zip(a.float().chunk(PARTS, -1), b.float().chunk(PARTS, -2), strict=True)
    return [left @ right for left, right in pairs]


def families(device: str) -> Iterator[Planted]:
    """Of every op that has a bound, with results in float32."""
    import torch

    from backend.inductor.result_checks import OpSpec

    torch.manual_seed(0)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, device=device)

    def asked(op: str, pointwise: str = "none") -> OpSpec:
        return OpSpec(op, "highest", pointwise=pointwise)

    m, n, k = 48, 40, 1024
    a, b, bias = normal(m, k), normal(k, n), normal(n)
    yield _of_parts("mm", asked("mm"), (a, b), _parts(a, b))
    yield _of_parts("addmm", asked("addmm"), (bias, a, b), _parts(a, b), lambda total: total + bias)
    many, more = normal(3, m, k), normal(3, k, n)
    yield _of_parts("bmm", asked("bmm"), (many, more), _parts(many, more))
    two = (a, b, normal(m, k), normal(k, n))
    both = [*_parts(*two[:2]), *_parts(*two[2:])]
    yield _of_parts("mm_plus_mm", asked("mm_plus_mm"), two, both)
    yield from _grouped(a, more, asked("grouped_mm"))
    yield from _quantized(normal, asked)
    weight = normal(n, k) / 32
    functional = torch.nn.functional
    functions = {"relu": functional.relu, "gelu": functional.gelu, "swish": functional.silu}
    for name, function in functions.items() if device == "cpu" else ():
        yield _of_parts(
            f"linear_unary, {name}",
            asked("linear_unary", name),
            (a, weight, bias),
            _parts(a, weight.t()),
            lambda total, function=function: function(total + bias),
        )
    other = normal(m, n)
    yield _of_parts(
        "linear_binary",
        asked("linear_binary", "add"),
        (a, other, weight, bias),
        _parts(a, weight.t()),
        lambda total: total + bias + other,
    )
    yield from _convolutions(normal, transposed=False)
    yield from _convolutions(normal, transposed=True)


def _grouped(a: Tensor, weights: Tensor, asked: OpSpec) -> Iterator[Planted]:
    import torch

    places = [10, 11, a.shape[0]]
    groups = [
        _parts(a[first:end], weight)
        for first, end, weight in zip((0, *places), places, weights, strict=False)
    ]
    parts = [torch.cat(rows) for rows in zip(*groups, strict=True)]
    ends = torch.tensor(places, dtype=torch.int32, device=a.device)
    yield _of_parts("grouped_mm", asked, (a, weights, ends), parts)


def _quantized(normal: Any, asked: Any) -> Iterator[Planted]:
    import torch

    f8 = torch.float8_e4m3fn
    a, b = normal(48, 1024).to(f8), normal(128, 1024).to(f8).t()
    device, bias = a.device, normal(128)
    for kind, (one, other) in {
        "a tensor": ((), ()),
        "a row": ((48, 1), (1, 128)),
        "1x128": ((48, 8), (8, 128)),
        "128x128": ((48, 8), (8, 1)),
    }.items():
        scales = [torch.rand(sizes, device=device) + 0.5 for sizes in (one, other)]
        wide = [
            factor.float() * _spread(scale, factor.shape)
            for factor, scale in zip((a, b), scales, strict=True)
        ]
        yield _of_parts(
            f"scaled_mm, a scale for {kind}",
            asked("scaled_mm"),
            (a, b, *scales, bias),
            _parts(*wide),
            lambda total: total + bias,
            few_bits(a),
        )
    x, weight = normal(48, 1024), torch.randint(-128, 128, (40, 1024), device=device)
    scale = torch.rand(40, device=device) + 0.5
    yield _of_parts(
        "int8 weights",
        asked("weight_int8pack_mm"),
        (x, weight.to(torch.int8), scale),
        _parts(x, weight.t()),
        lambda total: total * scale,
    )
    if device.type != "cpu":
        return
    packed = torch.randint(0, 256, (64, 512), dtype=torch.uint8)
    groups, four = torch.rand(32, 64, 2) * 0.1 + 0.05, torch.ops.aten._weight_int4pack_mm_for_cpu
    inputs = (x, packed, torch.tensor(32), groups)
    known = four(torch.eye(1024), packed, 32, groups)
    yield _of_parts("int4 weights", asked("_weight_int4pack_mm_for_cpu"), inputs, _parts(x, known))


def few_bits(factor: Tensor) -> int:
    """How many parts have to be left out to be missed: Hopper's sums of fp8 may lose more."""
    return 28 if factor.is_cuda else 1


def _spread(scale: Tensor, sizes: Sequence[int]) -> Tensor:
    if not scale.dim():
        return scale
    for dim, size in enumerate(sizes):
        scale = scale.repeat_interleave(-(-size // scale.shape[dim]), dim)
    return scale


def _convolutions(normal: Any, transposed: bool) -> Iterator[Planted]:
    """Parts by channels of what is summed up, or by images."""
    import torch

    from backend.inductor.result_checks import OpSpec

    back = torch.ops.aten.convolution_backward
    # dilated, since a GPU's library may not transform these
    rest = ((1, 2), (1, 0), (2, 1), transposed, (0, 0), 1)
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    numbers = (*rest[:3], (int(transposed),), rest[4], (1,))
    given = tuple(sorted(zip(names, numbers, strict=True)))
    c, f = 64, 64
    x, weight = normal(PARTS, c, 9, 10), normal(*((c, f) if transposed else (f, c)), 3, 3)
    out = torch.convolution(x, weight, None, *rest)
    go = normal(*out.shape)

    def part(at: int, size: int) -> slice:
        return slice(at * size // PARTS, (at + 1) * size // PARTS)

    into, of = (0, 1) if transposed else (1, 0)

    def forward(at: int) -> Tensor:
        here = part(at, c)
        w = weight[here] if into == 0 else weight[:, here]
        return torch.convolution(x[:, here], w, None, *rest)

    def before(at: int) -> Tensor:
        here = part(at, f)
        w = weight[here] if of == 0 else weight[:, here]
        return back(go[:, here], x, w, None, *rest, [True, False, False])[0]

    def behind(at: int) -> Tensor:
        here = part(at, PARTS)
        return back(go[here], x[here], weight, None, *rest, [False, True, False])[1]

    kind = "transposed convolution" if transposed else "convolution"
    for name, op, inputs, sizes, parts in (
        (kind, "convolution", (x, weight), out.shape, forward),
        (f"{kind}, backward of the input", "convolution_bwd_input", (go, weight), x.shape,
         before),
        (f"{kind}, backward of the weight", "convolution_bwd_weight", (x, go), weight.shape,
         behind),
    ):  # fmt: skip
        yield _of_parts(
            name,
            OpSpec(op, "highest", given, tuple(sizes)),
            inputs,
            [parts(at) for at in range(PARTS)],
        )


def by_triton() -> Iterator[Planted]:
    """Products of every type by kernels on a GPU. Few results in bfloat16 may hide another order of
    the sums: those of bmm and fp8 are stored in float32."""
    import torch

    from backend.inductor.result_checks import OpSpec
    from tests.support.planted_triton import product

    torch.manual_seed(0)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, device="cuda")

    for dtype, k in ((torch.bfloat16, 16384), (torch.float16, 16384), (torch.float32, 4096)):
        a, b = normal(1, 256, k).to(dtype), normal(1, k, 320).to(dtype)
        yield Planted(
            f"Triton mm, {dtype}",
            OpSpec("mm", "highest"),
            (a[0], b[0]),
            lambda kernel, a=a, b=b: product(a, b, kernel, a.dtype)[0],
        )
        more = a.view(4, 64, k), b.view(4, k, 80)
        yield Planted(
            f"Triton bmm, {dtype}",
            OpSpec("bmm", "highest"),
            more,
            lambda kernel, more=more: product(*more, kernel, torch.float32),
        )
    a, b = normal(1, 256, 4096).to(torch.float8_e4m3fn), normal(1, 320, 4096)
    b, one = b.to(torch.float8_e4m3fn).transpose(1, 2), torch.tensor(1.0, device="cuda")
    yield Planted(
        "Triton scaled_mm, fp8",
        OpSpec("scaled_mm", "highest"),
        (a[0], b[0], one, one),
        lambda kernel: product(a, b, kernel, torch.float32, 56)[0],
    )
