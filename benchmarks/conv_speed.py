"""Convolutions beside torch's, for the table of bench_templates.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import template_speed
import torch

from backend.model.options import Options, options
from backend.templates.convolution import ConvProblem, convolution_problem
from backend.templates.few_channels import direct_configs
from backend.templates.heuristics import gemm_configs
from backend.templates.operand import DType, Operand
from backend.templates.problem import Activation, Sizes
from backend.templates.tiles import shape_class
from backend.toolchain.target import Target
from tools.resources_table import Offer


@dataclass(frozen=True, slots=True)
class ConvCase:
    """Images, weights and result with channels last; what is one number is that of rows and
    columns."""

    images: int
    channels: int
    filters: int
    size: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    dilation: int = 1
    groups: int = 1
    kind: str = "conv"

    layout = "channels last"
    activation: Activation = "none"

    @property
    def places(self) -> int:
        """Of a line of the result."""
        seen = self.dilation * (self.kernel - 1) + 1
        return (self.size + 2 * self.padding - seen) // self.stride + 1

    @property
    def sizes(self) -> Sizes:
        """Those of the product that it is."""
        n, each = self.filters // self.groups, self.channels // self.groups
        batch = self.groups if self.groups > 1 else 1
        return Sizes(self.images * self.places**2, n, each * self.kernel**2, batch)

    @property
    def image_shape(self) -> tuple[int, ...]:
        return self.images, self.channels, self.size, self.size

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return self.filters, self.channels // self.groups, self.kernel, self.kernel

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.images, self.filters, self.places, self.places

    @property
    def moved(self) -> int:
        """Elements that are read and written at least."""
        shapes = (self.image_shape, self.weight_shape, self.out_shape)
        return sum(n * c * h * w for n, c, h, w in shapes)

    @property
    def options(self) -> Options:
        given = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        pairs = {name: (number, number) for name, number in given.items()}
        return options({**pairs, "groups": (self.groups,)})

    @property
    def shape(self) -> str:
        others = {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}
        named = "".join(f", {name} {number}" for name, number in others.items() if number > 1)
        image = f"{self.images}x{self.channels}x{self.size}x{self.size}"
        return f"{image} to {self.filters}, {self.kernel}x{self.kernel}{named}"

    def problem(self, dtype: DType, joined: bool = False) -> ConvProblem:
        def last(name: str, shape: tuple[int, ...]) -> Operand:
            _, c, h, w = shape
            return Operand(name, dtype, shape, (c * h * w, 1, c * w, c))

        x, weight = last("X", self.image_shape), last("W", self.weight_shape)
        out = last("Y", self.out_shape)
        return convolution_problem(x, weight, out, None, self.options, joined=joined)

    def offers(self, target: Target, dtype: DType, most: int, units: int | None) -> list[Offer]:
        """The choices that the heuristics offer, at most `most`."""
        found = []
        for joined, configs in ((True, direct_configs), (False, gemm_configs)):
            problem = self.problem(dtype, joined)
            sizes = problem.sizes()
            configs_of = configs(problem, target, sizes, most, units)
            found += [Offer(shape_class(sizes), problem, config) for config in configs_of]
        return found

    def product(self, bench: template_speed.Bench) -> ConvProduct:
        return ConvProduct(bench, self)


CONVOLUTIONS = (
    ConvCase(32, 64, 64, 56),
    ConvCase(32, 128, 128, 28),
    ConvCase(32, 256, 256, 14),
    ConvCase(32, 512, 512, 7),
    ConvCase(32, 128, 256, 56, stride=2),
    ConvCase(32, 3, 64, 224, kernel=7, stride=2, padding=3),
    ConvCase(32, 128, 128, 56, groups=32),
    ConvCase(32, 128, 128, 56, groups=8),
    ConvCase(32, 128, 128, 56, groups=128),
    ConvCase(1, 256, 256, 14),
    ConvCase(32, 128, 128, 28, padding=2, dilation=2),
)
"""Those of a ResNet, and what its relatives have."""
SMOKE = (ConvCase(2, 8, 16, 9, kind="smoke"),)
"""What a test runs on a CPU."""


class ConvProduct(template_speed.Product):
    """Rivals are cuDNN's, the fastest of which torch finds by trying them."""

    def __init__(self, bench: template_speed.Bench, case: ConvCase) -> None:
        self.bench, self.case = bench, case
        kind = getattr(torch, bench.dtype)
        torch.manual_seed(0)
        self.bytes = case.moved * kind.itemsize
        copies = self.copies()

        def drawn(shape: tuple[int, ...]) -> torch.Tensor:
            n, c, h, w = shape
            values = torch.randn(n, h, w, c, device=bench.device).to(kind)
            return values.repeat(copies, 1, 1, 1, 1).permute(0, 1, 4, 2, 3)

        self.a, self.b = drawn(case.image_shape), drawn(case.weight_shape)
        self.out = torch.empty_like(drawn(case.out_shape))
        self.bias = torch.empty(0)
        self.given = {
            "stride": case.stride,
            "padding": case.padding,
            "dilation": case.dilation,
            "groups": case.groups,
        }
        a, b = self.a[0].double(), self.b[0].double()
        with torch.backends.cudnn.flags(enabled=False):
            self.exact = self._conv(a, b)
            self.bound = self.bound_of(self._conv(a.abs(), b.abs()), case.sizes.k)

    def _conv(self, image: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(image, weight, None, **self.given)

    def torch_launches(self, hot: bool) -> list[Callable[[], object]]:
        torch.backends.cudnn.benchmark = True

        def launch(i: int) -> Callable[[], object]:
            a, b = self.a[i], self.b[i]
            return lambda: self._conv(a, b)

        return self.over_copies(launch, hot)
