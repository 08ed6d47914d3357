"""Our Triton GEMM as Inductor's choice: devices, configs, compiling, timing and calling."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backend.errors import ConfigError
from backend.inductor.benchmark.request import TritonBenchmarkRequest, TritonSpec
from backend.inductor.child_python import importing
from backend.inductor.guard import say_once
from backend.inductor.hip.caller import ROCmTemplateBuffer, ROCmTemplateCaller, generated
from backend.inductor.hip.fusion import ComputedFactor, Fused
from backend.inductor.hip.operands import tensor_text
from backend.inductor.hip.template import (
    NOTHING,
    ROCmTemplate,
    check_limits,
    with_epilogue,
)
from backend.inductor.torch import benchmarks
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch.graph import Node
from backend.inductor.torch.tuning import ChoiceCaller
from backend.templates.heuristics import pays
from backend.templates.triton import heuristics
from backend.templates.triton.choice import TritonChoice, TritonGemmConfig
from backend.templates.triton.gemm import from_gemm, generate
from backend.templates.triton.heuristics import ARCHES
from backend.templates.triton.module_file import (
    INTERPRET,
    INTERPRETER,
    interpreter_on,
)

INTERPRETER_FLOP = 1e8
"""The interpreter takes milliseconds per block, so a larger product would exceed its time."""

_LOADER = "rocm_tui_load_triton"


@dataclass(frozen=True, slots=True)
class TritonTarget:
    """A target: `arch` determines configs and launch options; the interpreter also uses a GPU's."""

    arch: str
    interpreted: bool = False

    def __str__(self) -> str:
        return INTERPRETER if self.interpreted else self.arch


@dataclass(frozen=True, slots=True)
class TritonUnavailable:
    """Why a device gets no choices, in a line. `quiet` if nobody would expect any there."""

    reason: str
    quiet: bool = False


def target_of(device: torch.device) -> TritonTarget | None:
    """Return the target, or None if there is nothing to offer; a fixable reason is printed."""
    target = _target(device)
    if isinstance(target, TritonTarget) and (reason := why_no_triton()):
        target = TritonUnavailable(f"our Triton template is off for {target}: {reason}")
    if isinstance(target, TritonTarget):
        return target
    if not target.quiet:
        say_once(target.reason)
    return None


def examine_triton(device: torch.device) -> TritonTarget | TritonUnavailable:
    """Return the target or the reason for `doctor`, which checks Triton first."""
    reason = why_no_triton()
    return TritonUnavailable(reason) if reason else _target(device)


def why_no_triton() -> str:
    """Return why this Python cannot use Triton, in a line; empty if it can."""
    if importlib.util.find_spec("triton") is not None:
        return ""
    return "Triton cannot be imported: install the package triton, or pytorch-triton-rocm"


@functools.cache
def _target(device: torch.device) -> TritonTarget | TritonUnavailable:
    arches = ", ".join(ARCHES)
    if device.type == "cpu":
        if interpreter_on():
            return TritonTarget("gfx942", interpreted=True)
        return TritonUnavailable(f"on a CPU it runs only with {INTERPRET}=1, for tests", quiet=True)
    if device.type != "cuda" or not torch.version.hip:
        return TritonUnavailable(f"it is made for AMD's {arches}", quiet=True)
    arch = torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0]
    if interpreter_on():
        return TritonUnavailable(f"our Triton template is off for {arch}: {INTERPRET} is set")
    if arch not in ARCHES:
        return TritonUnavailable(f"our Triton template is off for {arch}: it knows {arches}")
    return TritonTarget(arch)


def choices(make: Callable[..., Any], target: TritonTarget, budget: int) -> list[ChoiceCaller]:
    """Return choices of the template from `make`, by config. Raises UnsupportedProblemError."""
    template = make(TritonGemmTemplate)
    problem = template.problem()
    if target.interpreted:
        sizes = problem.sizes(torch_graph.size_hint)
        flop = 2 * sizes.batch * sizes.m * sizes.n * sizes.k
        if flop > INTERPRETER_FLOP:
            say_once(f"Triton's interpreter is not used for more than {INTERPRETER_FLOP:g} flop")
            return []
        if problem.a.dtype == "bfloat16":
            return []  # Triton multiplies their bits as integers (triton#11584)
    configs = heuristics.configs(
        from_gemm(problem), target.arch, budget=budget, hint=torch_graph.size_hint
    )
    return generated(template, configs)


class TritonGemmCaller(ROCmTemplateCaller):
    """A choice whose `bmreq` contains the module generated for it."""

    def info_dict(self) -> dict[str, Any]:
        """Return the entry for Inductor's log of matrix products, under its own keys."""
        return {"name": self.name, **self.bmreq.choice.info}

    def __str__(self) -> str:
        return f"TritonGemmCaller({self.name}, {self.description})"


class TritonGemmTemplate(ROCmTemplate):
    """A template; configs are `TritonGemmConfig`. `launch` takes a, b and bias in the template's
    order, so there is no `input_reorder`."""

    template = language = "triton"
    computes_factors = True
    target: TritonTarget

    def __init__(
        self,
        input_nodes: Sequence[Node],
        layout: Any,
        input_reorder: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(self.template, input_nodes, layout, **options)

    def generate(self, *, name: str, config: TritonGemmConfig) -> TritonGemmCaller:
        """Return the choice `name`. Raises TemplateError if the config does not fit."""
        _, render = self.make_kernel_render(None, config=config)
        choice = render()
        check_limits(choice.limits)
        return TritonGemmCaller(
            name,
            self.name,
            self.input_nodes,
            self.layout,
            functools.partial(self.make_kernel_render, config=config),
            TritonBenchmarkRequest(
                TritonSpec(choice.source, choice.hash, str(self.target)),
                choice,
                benchmarks.tensor_metas(self.input_nodes),
                benchmarks.tensor_metas([self.output_node])[0],
                [torch_graph.size_hint(size) for size in choice.sizes],
                torch_graph.size_hint(choice.workspace_bytes),
                self.reference(),
            ),
            self,
            dict(choice.meta),
            choice.workspace_bytes,
        )

    def make_kernel_render(
        self,
        buffer: ROCmTemplateBuffer | None,
        *,
        config: TritonGemmConfig,
        fused: Fused | None = None,
        computed: Mapping[str, ComputedFactor] = NOTHING,
    ) -> tuple[TritonKernel, Callable[[], TritonChoice]]:
        """Return the kernel's call, and a function returning its module. Raises TemplateError."""
        _, problem, tensors = self.with_fused(buffer, fused, computed)
        if computed and not pays(config, problem, torch_graph.size_hint):
            raise ConfigError("a factor that is better computed once")
        choice = generate(from_gemm(problem), config, self.target.arch)
        return TritonKernel(choice, tensors), lambda: choice

    def fuse(
        self, buffer: ROCmTemplateBuffer, nodes: Sequence[Any], removed: Iterable[str] = ()
    ) -> Fused:
        fused = super().fuse(buffer, nodes, removed)
        from_gemm(with_epilogue(self.problem(), fused))
        return fused


class TritonKernel:
    """A kernel that maps each operand to its node, by name."""

    imports = importing("backend.inductor.triton.runtime", "load_triton", _LOADER)

    def __init__(self, choice: TritonChoice, nodes: Mapping[str, Node]) -> None:
        self.choice = choice
        self.name = choice.name
        self._nodes = dict(nodes)

    def define(self, alias: str, source: str, target: str, origins: str) -> None:
        assert "'''" not in source
        wrapper = torch_graph.graph().wrapper_code
        wrapper.add_import_once(self.imports)
        text = f"{_LOADER}(r'''{source}''', name={self.choice.hash!r}, target={target!r})"
        wrapper.define_kernel(alias, text, origins, gpu=False)

    def _tensors(self) -> list[Node]:
        choice = self.choice
        names = (*choice.inputs, *choice.extras, *choice.outputs)
        return [self._nodes[name] for name in names]

    def arguments(self) -> list[str]:
        return [tensor_text(node) for node in self._tensors()]

    def estimate_kernel_num_bytes(self) -> int:
        return torch_graph.num_bytes(self._tensors())

    def call_kernel(self, name: str, node: Any) -> None:
        """Write the call; Triton uses the current device and stream, set by the wrapper."""
        torch_graph.keep_within(self.choice.limits)
        wrapper = torch_graph.graph().wrapper_code
        arguments = self.arguments()
        with torch_graph.workspace(node.get_workspace_size(), node.get_device()) as memory:
            if memory is not None:
                arguments.append(f"{memory.outer_name}.view(torch.{self.choice.sums})")
            arguments += [torch_graph.size_text(size) for size in self.choice.sizes]
            wrapper.writeline(f"{name}({', '.join(arguments)})")
