"""Our templates in Inductor: which choices of ours stand for an op beside Inductor's own, and how
its code calls them.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backend.inductor.benchmark.tensors import Arrange, OpInputs
from backend.inductor.guard import Entrance, Stock, quietly, say_once
from backend.inductor.hip import ck, convolution
from backend.inductor.hip.caller import (
    DataProcessorTemplateWrapper,
    Preprocessor,
    activation,
    generated,
    keep_unpacked,
    original_tensors,
    original_weight,
    sound,
    unpacked_tensors,
    unpacked_weight,
)
from backend.inductor.hip.convolution import ROCmConvTemplate, ROCmDirectConvTemplate
from backend.inductor.hip.grouped import ROCmGroupedTemplate
from backend.inductor.hip.operands import DTYPES
from backend.inductor.hip.scheduling import with_templates
from backend.inductor.hip.template import ROCmGemmTemplate, ROCmSkinnyGemmTemplate
from backend.inductor.hip.weight_only import (
    ROCmInt8WeightTemplate,
    ROCmSkinnyInt8WeightTemplate,
)
from backend.inductor.hooks.checking import CheckingSelector, failures, is_ours
from backend.inductor.hooks.no_choice import NoValidChoicesError
from backend.inductor.hooks.requested import no_library, template_target
from backend.inductor.hooks.selector import Selector
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.graph import Node
from backend.inductor.torch.own_choices import let_output_be_planned
from backend.inductor.torch.tuning import ChoiceCaller
from backend.inductor.triton import template as triton_template
from backend.inductor.triton.template import TritonTarget
from backend.model.ops import OPS, Op
from backend.templates import heuristics
from backend.templates.ck import ck_configs
from backend.templates.errors import UnsupportedProblemError
from backend.templates.few_channels import direct_configs
from backend.templates.problem import GemmProblem
from backend.toolchain.target import Target

CPU_FLOP = 2e9
"""On the CPU, GPU threads are emulated: a larger product would take longer than it may."""

BUDGET = "ROCM_TUI_TEMPLATE_BUDGET"
"""The variable: how many configs of each template are tried, the most promising first."""

Factors = Callable[[Mapping[str, Any]], dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """How an op's input nodes become those of a template: by the order of the `op`, or by a
    preprocessor.

    `factors` reads what ATen's choice was given beside the inputs: options of a template, None if
    no template has them. `postprocessor` takes the op's nodes and the winner's output.
    """

    op: Op
    factors: Factors | None = None
    preprocessor: Preprocessor | None = None
    postprocessor: Callable[[Sequence[Node], Any], Any] | None = None
    tensors: Arrange | None = None
    """What the preprocessor does, done to tensors."""
    template: Callable[..., Any] | None = None
    """The one that computes the op; without, it is a product."""
    skinny: Callable[..., Any] | None = None
    """The same for few rows, where there is one."""
    direct: Callable[..., Any] | None = None
    """The same for groups of few channels, where there is one."""

    def arrange(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The op's tensors as those of a template."""
        if self.tensors is not None:
            return self.tensors(tensors)
        return self.ordered(tensors)

    def ordered(self, inputs: Sequence[Any]) -> list[Any]:
        """The op's inputs in the order of a template; the last ones may be missing."""
        return [inputs[index] for index in self.op.order if index < len(inputs)]

    @property
    def input_reorder(self) -> list[int] | None:
        """The order in which the C entry takes its inputs: that of the op, where it is another."""
        if self.preprocessor is not None or self.op.reorder == sorted(self.op.reorder):
            return None
        return self.op.reorder


def _scales(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """alpha and beta; None where they are no numbers."""
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    if isinstance(alpha, (int, float)) and isinstance(beta, (int, float)):
        return {"alpha": float(alpha), "beta": float(beta)}
    return None


def _fast_sums(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {"fast_sums": kwargs.get("use_fast_accum") is True}


RULES = {
    "mm": Rule(OPS["mm"]),
    "bmm": Rule(OPS["bmm"]),
    "int_mm": Rule(OPS["int_mm"]),
    "scaled_mm": Rule(OPS["scaled_mm"], _fast_sums),
    "mm_plus_mm": Rule(OPS["mm_plus_mm"]),
    "addmm": Rule(OPS["addmm"], _scales),
    "baddbmm": Rule(OPS["baddbmm"], _scales),
    "_weight_int8pack_mm": Rule(
        OPS["weight_int8pack_mm"],
        template=ROCmInt8WeightTemplate,
        skinny=ROCmSkinnyInt8WeightTemplate,
    ),
    "grouped_mm": Rule(OPS["grouped_mm"], template=ROCmGroupedTemplate),
    "convolution": Rule(
        OPS["convolution"],
        convolution.factors,
        template=ROCmConvTemplate,
        direct=ROCmDirectConvTemplate,
    ),
    "packed_linear": Rule(
        OPS["packed_linear"],
        preprocessor=original_weight,
        tensors=original_tensors,
    ),
    "linear_unary": Rule(
        OPS["linear_unary"],
        activation,
        unpacked_weight,
        keep_unpacked,
        unpacked_tensors,
    ),
}


def offer(
    op: str, choices: Sequence[ChoiceCaller], input_nodes: Sequence[Node], layout: Any
) -> list[ChoiceCaller]:
    """Our choices for one question of Inductor's; none where no template fits."""
    rule = RULES.get(op)
    if rule is None or not torch_api.wants_tuning():
        return []
    if why := torch_graph.why_no_calls():
        say_once(f"our templates are not offered: {why} does not call our kernels")
        return []
    layout = torch_graph.fixed_layout(layout)
    factors = {} if rule.factors is None else _of_aten(choices, rule.factors)
    if factors is None or layout.dtype not in DTYPES or any(size == 0 for size in layout.size):
        return []
    make = functools.partial(_template, rule, input_nodes, layout, factors)
    offered = _generated(make, layout.device, rule)
    key = torch_api.tuning_key(op, input_nodes, layout, {})
    for choice in offered:
        choice.set_tuning(key, OpInputs(tuple(input_nodes), rule.arrange))
    return offered


def _template(
    rule: Rule,
    input_nodes: Sequence[Node],
    layout: Any,
    factors: dict[str, Any],
    target: Target | TritonTarget,
    kind: Callable[..., Any],
) -> Any:
    options: dict[str, Any] = {
        **factors,
        "target": target,
        "input_reorder": rule.input_reorder,
        "operands": rule.op.roles,
    }
    if rule.preprocessor is not None:
        after = rule.postprocessor
        return DataProcessorTemplateWrapper(
            kind,
            rule.preprocessor,
            None if after is None else functools.partial(after, input_nodes),
            input_nodes=input_nodes,
            layout=layout,
            **options,
        )
    nodes = rule.ordered(input_nodes)
    for node in nodes:
        node.freeze_layout()  # the strides go into the source
    return kind(nodes, layout, **options)


def _generated(make: Callable[..., Any], device: torch.device, rule: Rule) -> list[ChoiceCaller]:
    choices: list[ChoiceCaller] = []
    if (target := target_of(device)) is not None:
        with _costing_itself():
            choices += _compiled(functools.partial(make, target), target, device, rule)
    if torch_graph.writes_cpp() or rule.template is not None:
        return choices  # a Triton kernel of ours is a product, and needs Python to be launched
    if (triton := triton_template.target_of(device)) is not None:
        with _costing_itself():
            choices += triton_template.choices(functools.partial(make, triton), triton, budget())
    return choices


@contextlib.contextmanager
def _costing_itself() -> Iterator[None]:
    """Whatever is wrong with one template, the others are offered."""
    with quietly("a template of ours is not offered"), contextlib.suppress(UnsupportedProblemError):
        yield


def _compiled(
    make: Callable[..., Any],
    target: Target,
    device: torch.device,
    rule: Rule,
) -> list[ChoiceCaller]:
    gemm = make(rule.template or ROCmGemmTemplate)
    problem: GemmProblem = gemm.problem()
    sizes = problem.sizes(torch_graph.size_hint)
    if target.kind == "cpu" and 2 * sizes.batch * sizes.m * sizes.n * sizes.k > CPU_FLOP:
        say_once(f"our templates are not offered for products above {CPU_FLOP:g} flop on a CPU")
        return []
    units = torch_api.device_facts(device).compute_units
    most = budget()
    choices: list[ChoiceCaller] = []
    skinny = ROCmSkinnyGemmTemplate if rule.template is None else rule.skinny
    if skinny is not None:
        with _costing_itself():
            few = heuristics.skinny_configs(problem, target, sizes, min(most, 6), units)
            choices += generated(make(skinny), few) if few else []
    if rule.direct is not None:
        with _costing_itself():
            direct = make(rule.direct)
            joined: GemmProblem = direct.problem()
            own = joined.sizes(torch_graph.size_hint)
            choices += generated(direct, direct_configs(joined, target, own, most, units))
    with _costing_itself():
        many = heuristics.gemm_configs(problem, target, sizes, most, units)
        choices += generated(gemm, many)
    if rule.template is None and (instances := ck.wanted()) and target.kind != "cuda":
        with _costing_itself():
            found = ck_configs(ck.library().operations, problem, instances)
            choices += generated(make(ck.ROCmCKTemplate), found) if found else []
    return choices


def budget(env: Mapping[str, str] = os.environ) -> int:
    """The most choices that a template may offer for one tuning."""
    given = env.get(BUDGET, "")
    return int(given) if given.isdecimal() else 8


def _of_aten(choices: Sequence[ChoiceCaller], factors: Factors) -> dict[str, Any] | None:
    """The factors that Inductor gave to ATen's choice; None where there is no such choice."""
    given = next((choice.kwargs for choice in choices if torch_api.is_extern(choice)), None)
    return None if given is None else factors(given)


@functools.cache
def target_of(device: torch.device) -> Target | None:
    """What to compile for; None where there is no such device or no compiler, which is said."""
    if device.type not in ("cpu", "cuda"):
        return None
    target = template_target(device)
    if reason := no_library(target):
        say_once(f"our templates are off for {target}: {reason}")
        return None
    return target


DEVICES = ("cpu", "cuda")
"""ROCm's devices are called `cuda` too."""


def install() -> None:
    """Take the place of our selector that knows no templates; again, nothing."""
    current = torch_api.selector()
    if isinstance(current, Selector) and not isinstance(current, TemplateSelector):
        torch_api.set_selector(TemplateSelector(*current.parts))


def install_checks() -> None:
    """Take the place of our selector that believes every result."""
    current = torch_api.selector()
    if isinstance(current, Selector) and not isinstance(current, CheckingSelector):
        torch_api.set_selector(CheckedSelector(*current.parts))


class CheckedSelector(Selector, CheckingSelector):
    """The selector that records and honours pins, and compares results where that is wanted."""


class TemplateSelector(CheckedSelector):
    """The same, asked about our choices too."""

    offers_templates = True

    __call__ = Entrance("_with_ours")

    def _with_ours(
        self,
        stock: Stock,
        name: str,
        choices: Any,
        input_nodes: Any,
        layout: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        offered = [*choices, *_offered(name, choices, input_nodes, layout)]
        failures().clear()
        try:
            result = stock(name, offered, input_nodes, layout, *args, **kwargs)
        except torch_api.StockNoValidChoicesError as error:
            shapes = ", ".join("x".join(map(str, node.get_size())) for node in input_nodes)
            raise NoValidChoicesError(name, shapes, failures()) from error
        with quietly("the output of a choice of ours is not planned"):
            let_output_be_planned(result, is_ours)
        return result


def _offered(name: str, choices: Any, input_nodes: Any, layout: Any) -> list[Any]:
    """Ours; none, and a line that says why, where making them goes wrong."""
    with quietly("our templates are not offered"):
        schedule()
        return sound(offer(name, choices, input_nodes, layout), choices)
    return []


@functools.cache
def schedule() -> None:
    """Let each device's scheduling know our kernels. Not before the first tuning: it imports all
    of Inductor's backends."""
    for device in DEVICES:
        torch_graph.wrap_scheduling(device, with_templates)
