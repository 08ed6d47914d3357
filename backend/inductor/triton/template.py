"""Our Triton GEMM as Inductor's choice: on which devices, what is offered there, how it is
compiled, timed and called.
"""

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
"""The interpreter takes milliseconds a block: a larger product would take longer than it may."""

_LOADER = "rocm_tui_load_triton"


@dataclass(frozen=True, slots=True)
class TritonTarget:
    """`arch` decides configs and launch options; the interpreter takes those of a GPU's too."""

    arch: str
    interpreted: bool = False

    def __str__(self) -> str:
        return INTERPRETER if self.interpreted else self.arch


@dataclass(frozen=True, slots=True)
class Off:
    """Why a device gets none, in a line. `quiet` where nobody there would expect one."""

    reason: str
    quiet: bool = False


def target_of(device: torch.device) -> TritonTarget | None:
    """None where there is nothing to make; a reason is said where one could help it."""
    target = _target(device)
    if isinstance(target, TritonTarget) and (reason := missing()):
        target = Off(f"our Triton template is off for {target}: {reason}")
    if isinstance(target, TritonTarget):
        return target
    if not target.quiet:
        say_once(target.reason)
    return None


def examine(device: torch.device) -> TritonTarget | Off:
    """The same for a person who asks: Triton comes first, whatever the device is."""
    reason = missing()
    return Off(reason) if reason else _target(device)


def missing() -> str:
    """Why Triton cannot be used by this Python, in a line; nothing if it can."""
    if importlib.util.find_spec("triton") is not None:
        return ""
    return "Triton cannot be imported: install the package triton, or pytorch-triton-rocm"


@functools.cache
def _target(device: torch.device) -> TritonTarget | Off:
    known = ", ".join(ARCHES)
    if device.type == "cpu":
        if interpreter_on():
            return TritonTarget("gfx942", interpreted=True)
        return Off(f"on a CPU it runs only with {INTERPRET}=1, for tests", quiet=True)
    if device.type != "cuda" or not torch.version.hip:
        return Off(f"it is made for AMD's {known}", quiet=True)
    arch = torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0]
    if interpreter_on():
        return Off(f"our Triton template is off for {arch}: {INTERPRET} is set")
    if arch not in ARCHES:
        return Off(f"our Triton template is off for {arch}: it knows {known}")
    return TritonTarget(arch)


def choices(make: Callable[..., Any], target: TritonTarget, budget: int) -> list[ChoiceCaller]:
    """A choice a config.

    `make(TritonGemmTemplate)` gives the template. Raises UnsupportedProblemError.
    """
    template = make(TritonGemmTemplate)
    problem = template.problem()
    if target.interpreted:
        sizes = problem.sizes(torch_graph.size_hint)
        flop = 2 * sizes.batch * sizes.m * sizes.n * sizes.k
        if flop > INTERPRETER_FLOP:
            say_once(f"Triton's interpreter is not used for more than {INTERPRETER_FLOP:g} flop")
            return []
        if problem.a.dtype == "bfloat16":
            return []  # it multiplies their bits as integers (triton#11584)
    configs = heuristics.configs(
        from_gemm(problem), target.arch, budget=budget, hint=torch_graph.size_hint
    )
    return generated(template, configs)


class TritonGemmCaller(ROCmTemplateCaller):
    """A choice whose `bmreq` holds the module that was generated for it."""

    def info_dict(self) -> dict[str, Any]:
        """What Inductor writes into its log of matrix products, under its own keys."""
        return {"name": self.name, **self.bmreq.choice.info}

    def __str__(self) -> str:
        return f"TritonGemmCaller({self.name}, {self.description})"


class TritonGemmTemplate(ROCmTemplate):
    """Configs are `TritonGemmConfig`. `launch` takes a, b and bias in the template's order, so
    there is no `input_reorder`."""

    language = "triton"
    computes_factors = True
    target: TritonTarget

    def __init__(
        self,
        input_nodes: Sequence[Node],
        layout: Any,
        input_reorder: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__("triton", input_nodes, layout, **options)

    def generate(self, *, name: str, config: TritonGemmConfig) -> TritonGemmCaller:
        """The choice `name`. Raises TemplateError where the config does not fit."""
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
        """The kernel's call, and what gives its module. Raises TemplateError."""
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
    """Knows which node each operand is, by its name."""

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
        wrapper.define_kernel(alias, text, origins)

    def arguments(self) -> list[str]:
        choice = self.choice
        names = (*choice.inputs, *choice.extras, *choice.outputs)
        return [tensor_text(self._nodes[name]) for name in names]

    def call_kernel(self, name: str, node: Any) -> None:
        """Triton finds the device and the stream itself: the wrapper has made them current."""
        torch_graph.keep_within(self.choice.limits)
        wrapper = torch_graph.graph().wrapper_code
        arguments = self.arguments()
        with torch_graph.workspace(node.get_workspace_size(), node.get_device()) as memory:
            if memory is not None:
                arguments.append(f"{memory.outer_name}.view(torch.{self.choice.sums})")
            arguments += [torch_graph.size_text(size) for size in self.choice.sizes]
            wrapper.writeline(f"{name}({', '.join(arguments)})")
