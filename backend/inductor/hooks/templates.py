"""Our templates in Inductor: the choices offered for an op beside Inductor's own, how they are
compiled and checked in benchmarks, and how generated code calls them.

`ROCM_TUI_CHECK=1`: every choice's output is checked before it may win, against the bound of
rounding, or if that is unknown against ATen's output. Choices of our templates are always checked
when benchmarked.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from backend.errors import UnsupportedProblemError
from backend.inductor.benchmark import process
from backend.inductor.benchmark.errors import (
    ChoiceError,
    ErrorFromChoice,
    WrongResult,
    is_own_fault,
)
from backend.inductor.benchmark.tensors import Arrange, OpInputs, unread_results
from backend.inductor.guard import Entrance, Stock, quietly, say_once
from backend.inductor.hip.caller import (
    DataProcessorTemplateWrapper,
    Preprocessor,
    ROCmTemplateCaller,
    activation,
    generated,
    keep_unpacked,
    offerable,
    original_tensors,
    original_weight,
    unpacked_tensors,
    unpacked_weight,
)
from backend.inductor.hip.operands import DTYPES
from backend.inductor.hip.other_products import (
    ROCmConvTemplate,
    ROCmDirectConvTemplate,
    ROCmGroupedTemplate,
    ROCmInt8WeightTemplate,
    ROCmSkinnyInt8WeightTemplate,
    convolution_factors,
)
from backend.inductor.hip.scheduling import with_templates
from backend.inductor.hip.template import ROCmGemmTemplate, ROCmSkinnyGemmTemplate
from backend.inductor.hooks import lookup
from backend.inductor.hooks.backends import no_library, template_target
from backend.inductor.hooks.environment import CHECK, is_on
from backend.inductor.hooks.selector import Selector
from backend.inductor.hooks.tuning_watch import tuning_of_any
from backend.inductor.result_checks import OpSpec, ResultCheck, check_of, op_spec_of
from backend.inductor.torch import choices
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.choices import let_output_be_planned
from backend.inductor.torch.graph import Node
from backend.inductor.torch.tuning import ChoiceCaller, StockNoValidChoicesError
from backend.inductor.triton import template as triton_template
from backend.inductor.triton.template import TritonTarget
from backend.model.ops import OPS, Op
from backend.templates import heuristics
from backend.templates.few_channels import direct_configs
from backend.templates.problem import GemmProblem
from backend.toolchain.target import Target


class NoValidChoicesError(StockNoValidChoicesError):  # type: ignore[misc]
    """No choice is left; the message has the op, its inputs, and the reason for each choice."""

    intended = True

    def __init__(self, op: str, inputs: str, failures: Iterable[tuple[str, str]]) -> None:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failures)
        super().__init__(
            f"no choice for {op}({inputs}) can be used: {reasons or 'none was offered'}. "
            "Add ATEN to TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS to have one that always works"
        )


_here = threading.local()
"""`failures`, and `check`: the tensors of the tuning and the check of results in them."""


def failures() -> list[tuple[str, str]]:
    """Return name and reason of each choice that failed in this thread since the last clear."""
    failed: list[tuple[str, str]] = _here.__dict__.setdefault("failures", [])
    return failed


class CheckingSelector(torch_api.LazySelector):
    """The stock selector, which compares outputs if wanted, and records failures."""

    get_inputs = Entrance("_with_expected")
    benchmark_choice = Entrance("_checked")

    @staticmethod
    def _with_expected(stock: Stock, choices: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = stock(choices, *args, **kwargs)
        aten = next((choice for choice in choices if torch_api.is_extern(choice)), None)
        if is_on(CHECK) and aten is not None:
            inputs, output = tensors.get_benchmark_tensors(True).unpack()
            aten.benchmark(*inputs, out=output)
            spec = spec_of(choices, output.shape)
            _here.check = tensors, check_of(spec, inputs, output.clone())
        return tensors

    @staticmethod
    def _checked(stock: Stock, choice: ChoiceCaller, autotune_args: Any) -> Any:
        try:
            with contextlib.nullcontext() if torch_api.verifies() else unread_results():
                milliseconds = stock(choice, autotune_args)
            tensors, check = getattr(_here, "check", (None, None))
            if check is not None and tensors is autotune_args and not is_ours(choice):
                checked(check, tensors.extern.output_tensor, choice)
        except RuntimeError as error:
            failures().append((str(choice.name), torch_api.describe(error)))
            if is_ours(choice) and not is_own_fault(error):
                lookup.note_blameless_failure(choice)
            raise
        return milliseconds

    log_results = Entrance("_logged")

    @staticmethod
    def _logged(stock: Stock, name: Any, nodes: Any, timings: Any, *rest: Any, **more: Any) -> Any:
        with choices.logging(timings, log_entry):
            return stock(name, nodes, timings, *rest, **more)

    @classmethod
    def benchmark_in_current_process(cls, choices: Any, *args: Any, **kwargs: Any) -> Any:
        with quietly("our choices are not compiled ahead"):
            compile_ahead(choices)
        try:
            return super().benchmark_in_current_process(choices, *args, **kwargs)
        finally:
            _here.__dict__.pop("check", None)
            with quietly("the tensors of a tuning are kept for some seconds"):
                process.forget_tuning()

    @classmethod
    def benchmark_in_sub_process(cls, choices: Any, *args: Any, **kwargs: Any) -> Any:
        """Benchmark in subprocesses; our choices always do, with one process per device."""
        ours = [choice for choice in choices if is_ours(choice)]
        theirs = [choice for choice in choices if not is_ours(choice)]
        timings = super().benchmark_in_sub_process(theirs, *args, **kwargs) if theirs else {}
        if ours:
            timings |= cls.benchmark_in_current_process(ours, *args, **kwargs)
        return {choice: timings[choice] for choice in choices}


def log_entry(choice: ChoiceCaller) -> dict[str, Any] | None:
    """Return the entry of a choice of ours in torch's log of matrix products, beside its time."""
    if not is_ours(choice):
        return None
    info = dict(choice.info_dict())
    return {"type": str(info.pop("backend", "")).lower(), **info}


def compile_ahead(choices: Iterable[ChoiceCaller]) -> None:
    """Compile our choices in parallel, each binary once, which torch skips on some Pythons. A
    failure is reported when its choice is benchmarked, which does not compile again then."""
    binaries = {choice.kernel_hash_key(): choice for choice in choices if is_ours(choice)}
    if not binaries:
        return
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for compiling in [pool.submit(choice.precompile) for choice in binaries.values()]:
            with contextlib.suppress(ChoiceError):
                compiling.result()


def is_ours(choice: ChoiceCaller) -> bool:
    return isinstance(getattr(choice, "_wrapped", choice), ROCmTemplateCaller)


def spec_of(choices: Sequence[ChoiceCaller], sizes: Sequence[int]) -> OpSpec | None:
    """Return the specification of these choices, if the tuning is recorded."""
    tuning = tuning_of_any(choices)
    if tuning is None:
        return None
    return op_spec_of(tuning.key.op, tuning.key.precision, choices, sizes, tuning.given)


def checked(check: ResultCheck, output: torch.Tensor, choice: ChoiceCaller) -> None:
    """Check an output. Raises ErrorFromChoice."""
    try:
        check.check(output, choice)
    except WrongResult as cause:
        raise ErrorFromChoice(cause, choice, f"{tuple(output.shape)} {output.dtype}") from cause


CPU_FLOP = 2e9
"""On the CPU, GPU threads are emulated: a larger product would exceed its time."""

BUDGET = "ROCM_TUI_TEMPLATE_BUDGET"
"""The environment variable for how many configs of each template are tried."""

Factors = Callable[[Mapping[str, Any]], dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class OpRule:
    """How an op's input nodes are mapped to a template's: by the order of the `op`, or by a
    preprocessor.

    `factors` reads the options of ATen's choice beside the inputs as options of a template; None if
    no template has them. `postprocessor` takes the op's nodes and the winner's output.
    """

    op: Op
    factors: Factors | None = None
    preprocessor: Preprocessor | None = None
    postprocessor: Callable[[Sequence[Node], Any], Any] | None = None
    tensors: Arrange | None = None
    """The preprocessor's effect, for tensors."""
    template: Callable[..., Any] | None = None
    """The template of the op; without one it is a product."""
    skinny: Callable[..., Any] | None = None
    """The template for few rows, if there is one."""
    direct: Callable[..., Any] | None = None
    """The template for groups of few channels, if there is one."""

    def arrange(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the op's tensors as those of a template."""
        if self.tensors is not None:
            return self.tensors(tensors)
        return self.ordered(tensors)

    def ordered(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the op's inputs in the order of a template; the last ones may be missing."""
        return [inputs[index] for index in self.op.order if index < len(inputs)]

    @property
    def input_reorder(self) -> list[int] | None:
        """The C entry's order of inputs: the op's, if it differs."""
        if self.preprocessor is not None or self.op.reorder == sorted(self.op.reorder):
            return None
        return self.op.reorder


def _scales(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return alpha and beta; None if they are not numbers."""
    scales = choices.scales_of(kwargs)
    return None if scales is None else dict(zip(("alpha", "beta"), scales, strict=True))


def _fast_sums(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {"fast_sums": kwargs.get("use_fast_accum") is True}


RULES = {
    "mm": OpRule(OPS["mm"]),
    "bmm": OpRule(OPS["bmm"]),
    "int_mm": OpRule(OPS["int_mm"]),
    "scaled_mm": OpRule(OPS["scaled_mm"], _fast_sums),
    "mm_plus_mm": OpRule(OPS["mm_plus_mm"]),
    "addmm": OpRule(OPS["addmm"], _scales),
    "baddbmm": OpRule(OPS["baddbmm"], _scales),
    "_weight_int8pack_mm": OpRule(
        OPS["weight_int8pack_mm"],
        template=ROCmInt8WeightTemplate,
        skinny=ROCmSkinnyInt8WeightTemplate,
    ),
    "grouped_mm": OpRule(OPS["grouped_mm"], template=ROCmGroupedTemplate),
    "convolution": OpRule(
        OPS["convolution"],
        convolution_factors,
        template=ROCmConvTemplate,
        direct=ROCmDirectConvTemplate,
    ),
    "packed_linear": OpRule(
        OPS["packed_linear"],
        preprocessor=original_weight,
        tensors=original_tensors,
    ),
    "linear_unary": OpRule(
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
    """Return our choices for one selection of Inductor's; none if no template fits."""
    rule = RULES.get(op)
    if rule is None or not torch_api.wants_tuning():
        return []
    if why := torch_graph.why_no_calls():
        say_once(f"our templates are not offered: {why} does not call our kernels")
        return []
    if torch_api.pipelined():
        # A program with ATen's choice alone would also end: on a CPU PyTorch itself cannot select
        # among several then (torch 2.13 and 2.14).
        say_once("our templates are not offered: pipelined autotuning does not check their results")
        return []
    layout = torch_graph.fixed_layout(layout)
    factors: dict[str, Any] | None = {}
    if rule.factors is not None:  # Inductor's options for ATen's choice
        kwargs = next((choice.kwargs for choice in choices if torch_api.is_extern(choice)), None)
        factors = None if kwargs is None else rule.factors(kwargs)
    if factors is None or layout.dtype not in DTYPES or any(size == 0 for size in layout.size):
        return []
    make = functools.partial(_template, rule, input_nodes, layout, factors)
    offered = _generated(make, layout.device, rule)
    key = torch_api.tuning_key(op, input_nodes, layout, {})
    for choice in offered:
        choice.set_tuning(key, OpInputs(tuple(input_nodes), rule.arrange))
    return offered


def _template(
    rule: OpRule,
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
        node.freeze_layout()  # the strides become part of the source
    return kind(nodes, layout, **options)


def _generated(make: Callable[..., Any], device: torch.device, rule: OpRule) -> list[ChoiceCaller]:
    choices: list[ChoiceCaller] = []
    if (target := target_of(device)) is not None:
        with _costing_itself():
            choices += _compiled(functools.partial(make, target), target, device, rule)
    if torch_graph.writes_cpp() or rule.template is not None:
        return choices  # our Triton kernels are products, and need Python to be launched
    if (triton := triton_template.target_of(device)) is not None:
        with _costing_itself():
            choices += triton_template.choices(functools.partial(make, triton), triton, budget())
    return choices


@contextlib.contextmanager
def _costing_itself() -> Iterator[None]:
    """A context that limits a template's failure to its own choices."""
    with quietly("a template of ours is not offered"), contextlib.suppress(UnsupportedProblemError):
        yield


def _compiled(
    make: Callable[..., Any],
    target: Target,
    device: torch.device,
    rule: OpRule,
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
    return choices


def budget(env: Mapping[str, str] = os.environ) -> int:
    """Return the maximum number of choices that a template may offer for one tuning."""
    text = env.get(BUDGET, "")
    return int(text) if text.isdecimal() else 8


_targets: dict[torch.device, Target] = {}


def target_of(device: torch.device) -> Target | None:
    """Return the compile target; None, with a message, without such a device or a compiler. None is
    not cached: on a busy machine the compiler may only have failed to start."""
    if device.type not in ("cpu", "cuda"):
        return None
    if device not in _targets:
        target = template_target(device)
        if reason := no_library(target):
            say_once(f"our templates are off for {target}: {reason}")
            return None
        _targets[device] = target
    return _targets[device]


DEVICES = ("cpu", "cuda")
"""ROCm's devices are also called `cuda`."""


def install() -> None:
    """Replace our selector without templates; repeated calls do nothing."""
    current = torch_api.selector()
    if isinstance(current, Selector) and not isinstance(current, TemplateSelector):
        torch_api.set_selector(TemplateSelector(*current.parts))


def install_checks() -> None:
    """Replace our selector without checks."""
    current = torch_api.selector()
    if isinstance(current, Selector) and not isinstance(current, CheckingSelector):
        torch_api.set_selector(CheckedSelector(*current.parts))


class CheckedSelector(Selector, CheckingSelector):
    """The selector that records and honours pins, and compares results if wanted."""


class TemplateSelector(CheckedSelector):
    """The selector that also offers our choices."""

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
    """Return our choices; none, with a message, if creating them fails."""
    with quietly("our templates are not offered"):
        schedule()
        return offerable(offer(name, choices, input_nodes, layout), choices)
    return []


@functools.cache
def schedule() -> None:
    """Add our kernels to each device's scheduling. Not before the first tuning, since it imports
    all of Inductor's backends."""
    for device in DEVICES:
        torch_graph.wrap_scheduling(device, with_templates)
