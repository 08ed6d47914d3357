"""Our Triton GEMM as Inductor's choice: on which devices, what is offered there, how it is
compiled, timed and called; and what travels to the process that times it.
"""

from __future__ import annotations

import functools
import importlib.util
import pickle
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backend.errors import ConfigError, TritonCompileError, TritonError
from backend.inductor import child_python
from backend.inductor.benchmark.errors import NotCompiled
from backend.inductor.benchmark.request import (
    ROCmBenchmarkRequest,
    not_compiled,
    raise_known_failure,
)
from backend.inductor.benchmark.tensors import Reference, unused
from backend.inductor.child_python import importing
from backend.inductor.guard import say_once
from backend.inductor.hip.caller import ROCmTemplateBuffer, ROCmTemplateCaller, generated
from backend.inductor.hip.fusion import OUT, ComputedFactor, Fused
from backend.inductor.hip.operands import tensor_text
from backend.inductor.hip.template import (
    NOTHING,
    ROCmTemplate,
    check_limits,
    plain_factors,
    with_epilogue,
    with_prologues,
)
from backend.inductor.torch import benchmarks
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch.graph import Node
from backend.inductor.torch.tuning import ChoiceCaller
from backend.inductor.triton.runtime import load_triton, store
from backend.model.origin import kernel_hash
from backend.templates.heuristics import pays
from backend.templates.triton import choice as compile_child
from backend.templates.triton import heuristics
from backend.templates.triton.choice import TritonChoice, TritonGemmConfig
from backend.templates.triton.gemm import from_gemm, generate
from backend.templates.triton.heuristics import ARCHES
from backend.templates.triton.module_file import (
    ENTRY,
    INTERPRET,
    INTERPRETER,
    interpreter_on,
    toolchain,
)

COMPILE_SECONDS = 300.0
"""Of these kernels the slowest take a few seconds each."""

_COMPILE = f"from {compile_child.__name__} import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class TritonSpec:
    """A module and what it is compiled for; `name` is that of its file."""

    source: str
    name: str
    target: str

    @property
    def entry(self) -> str:
        return ENTRY

    @property
    def toolchain(self) -> str:
        """Triton brings its compiler along."""
        return toolchain()

    @property
    def hash_key(self) -> str:
        """The same wherever the same source is compiled for the same target."""
        return kernel_hash(self.source, self.entry, self.target)

    def load(self) -> Callable[..., None]:
        """Raises ChoiceError."""
        raise_known_failure(self)
        try:
            return load_triton(self.source, name=self.name, target=self.target)
        except (TritonError, SyntaxError) as error:
            raise not_compiled(self, error) from error


_compiled: set[TritonSpec] = set()


class TritonBenchmarkRequest(ROCmBenchmarkRequest):
    """As for a kernel in HIP, but `launch` takes tensors: a, b, extras, output, workspace, sizes.

    `workspace_size` is in bytes. Triton finds what `precompile` made in its own cache, if a launch
    asks for the same.
    """

    spec: TritonSpec

    def __init__(
        self,
        spec: TritonSpec,
        choice: TritonChoice,
        input_tensor_meta: Sequence[Any],
        output_tensor_meta: Any,
        sizes: Sequence[int],
        workspace_size: int,
        reference: Reference | None,
    ) -> None:
        super().__init__(spec, input_tensor_meta, output_tensor_meta, sizes, reference)
        self.choice = choice
        self.workspace_size = workspace_size

    def precompile(self) -> None:
        """For a GPU, in a process of its own; the interpreter compiles nothing. Raises
        ChoiceError."""
        if self.spec.target == INTERPRETER:
            return
        if self.spec not in _compiled:
            self.compile_ahead()

    def compile_ahead(self) -> bool:
        """Compile it, whether it is here to be launched or not; whether Triton's cache had all of
        it. Raises ChoiceError."""
        raise_known_failure(self.spec)
        try:
            found = _compile_apart(self.choice)
        except TritonCompileError as error:
            raise not_compiled(self.spec, error) from error
        _compiled.add(self.spec)
        return found

    def update_workspace_size(self) -> int:
        return self.workspace_size

    def make_run_fn(self, *input_tensors: Tensor, out: Tensor) -> Callable[[], None]:
        """A function that starts the kernels once."""
        launch = self.spec.load()
        factors = len(self.choice.inputs)
        extras = input_tensors[factors:] if self.choice.extras else ()
        tensors = [*input_tensors[:factors], *extras, out]
        if size := self.update_workspace_size():
            dtype = getattr(torch, self.choice.sums)
            count = size // dtype.itemsize
            tensors.append(torch.full((count,), unused(dtype), dtype=dtype, device=out.device))
        return functools.partial(launch, *tensors, *self.extra_args)


def _compile_apart(choice: TritonChoice) -> bool:
    """Whether Triton's cache had all of it; else it has now. Raises TritonCompileError, and
    NotCompiled where it had no time, or was ended."""
    try:
        done = subprocess.run(
            child_python.command(_COMPILE),
            input=pickle.dumps((choice, store())),
            capture_output=True,
            env=child_python.environment(),
            timeout=COMPILE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        reason = f"Triton did not compile it within {COMPILE_SECONDS:g} s"
        raise NotCompiled(reason) from None
    if done.returncode < 0:
        raise NotCompiled(f"Triton's process died of signal {-done.returncode}")
    said = done.stdout.decode(errors="replace").strip()
    if not done.returncode:
        return said == compile_child.FOUND
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else "it said nothing"
    raise TritonCompileError(
        said or f"Triton's process ended with status {done.returncode}: {last}"
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
        nodes = self.named_nodes(buffer)
        tensors = nodes | ({OUT: buffer} if fused is None else fused.nodes)
        for factor in computed.values():
            tensors = tensors | dict(factor.nodes)
        problem = with_prologues(with_epilogue(self.problem(nodes), fused), computed)
        if computed and not pays(config, problem, torch_graph.size_hint):
            raise ConfigError("a factor that is better computed once")
        choice = generate(from_gemm(problem), config, self.target.arch)
        return TritonKernel(choice, tensors), lambda: choice

    def computable(self, buffer: ROCmTemplateBuffer) -> Sequence[str]:
        return plain_factors(self, buffer)

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
