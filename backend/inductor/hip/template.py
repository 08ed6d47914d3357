"""Templates of ours as Inductor's: from nodes of a graph and a config to a choice, and to a kernel
in the graph being compiled, with its tensors as operands and the wrapper's call.

A wrapper of C++ (`cpp_wrapper`, and the models of AOTInductor) may run where there is no Python, no
compiler and none of our files, so it holds the compiled library itself, as text: the first call
writes it into memory (`memfd_create`), loads it from there and finds the entry. The graph, or the
package, is then all that is needed, on a machine whose processor or GPU can run what was compiled.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from backend.disk import trusted
from backend.disk.layout import cache_dir
from backend.errors import ConfigError, ExpressionError, LoadError, UnsupportedProblemError
from backend.inductor.benchmark.request import (
    KernelSpec,
    ROCmBenchmarkRequest,
    load_keywords,
    toolchain_for,
)
from backend.inductor.benchmark.tensors import GemmReference, Reference
from backend.inductor.child_python import importing
from backend.inductor.hip.caller import ROCmTemplateBuffer, ROCmTemplateCaller
from backend.inductor.hip.fusion import OUT, ComputedFactor, Fused, fuse
from backend.inductor.hip.operands import (
    SCALES,
    address,
    operand_of,
    product_cpp,
    product_text,
    scale_of,
)
from backend.inductor.torch import benchmarks
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch.graph import Node
from backend.templates.expressions import Language, defect
from backend.templates.heuristics import pays, refitted
from backend.templates.operand import ArgInfo, Operand
from backend.templates.problem import Activation, GemmProblem
from backend.templates.rendering import (
    RUNTIME_ARGS,
    CallArg,
    Rendered,
    TemplateKernel,
    render_gemm,
    render_skinny,
)
from backend.toolchain import code_cache
from backend.toolchain.target import CompileOptions, parse_target

_LOADER = "rocm_tui_load_kernel"


class GraphKernel(Protocol):
    """What the scheduling has to know of a kernel."""

    name: str

    def define(self, alias: str, source: str, target: str, origins: str) -> None:
        """Write into the wrapper what the graph calls `alias`, `origins` as a comment above it."""

    def arguments(self) -> list[str]:
        """The arguments of a call, but for the workspace. Raises ValueError where the kernel cannot
        take the sizes."""

    def call_kernel(self, name: str, node: Any) -> None:
        """Write the call of the kernel `name` into the wrapper, its workspace around it.

        `node` is the ROCmTemplateBuffer.
        """


class ROCmTemplateKernel(TemplateKernel):
    """Knows which node each operand is, by its name."""

    imports = importing("backend.inductor.hip.runtime", "load_kernel", _LOADER)

    def __init__(
        self,
        name: str,
        nodes: Mapping[str, Node],
        runtime_arg_info: Sequence[ArgInfo],
        runtime_arg_values: Sequence[int],
        options: CompileOptions,
    ) -> None:
        super().__init__(name, runtime_arg_info, runtime_arg_values)
        self.options = options
        self.named_nodes = dict(nodes)

    @property
    def pointers(self) -> int:
        return sum(arg.kind in ("input", "output") for arg in self.call_args())

    @property
    def integers(self) -> int:
        return len(self.call_args()) - self.pointers

    def extra_args(self) -> list[int]:
        """Sizes and runtime arguments for a benchmark: guesses where they are dynamic."""
        return [
            torch_graph.size_hint(arg.value)
            for arg in self.call_args()
            if arg.kind in ("size", "runtime")
        ]

    def define(self, alias: str, source: str, target: str, origins: str) -> None:
        wrapper = torch_graph.graph().wrapper_code
        if torch_graph.writes_cpp():
            text = cpp_definition(alias, self.name, self.call_args(), source, target, self.options)
            wrapper.define_kernel(alias, text, origins, gpu=False)
            return
        assert "'''" not in source and not source.endswith("'")
        wrapper.add_import_once(self.imports)
        given = "".join(
            f", {name}={value!r}" for name, value in load_keywords(self.options).items()
        )
        text = (
            f"{_LOADER}(r'''{source}''', entry={self.name!r}, target={target!r}, "
            f"pointers={self.pointers}, integers={self.integers}, alias={alias!r}, "
            f"toolchain={toolchain_for(source, target, self.options)!r}{given})"
        )
        wrapper.define_kernel(alias, text, origins)

    def call_kernel(self, name: str, node: Any) -> None:
        """Arguments are addresses and numbers; the stream is added by the wrapper on a GPU."""
        arguments = self.arguments()
        if torch_graph.writes_cpp():
            write_cpp_call(name, arguments, node)
            return
        wrapper = torch_graph.graph().wrapper_code
        device = node.get_device()
        arguments.append("None")
        with torch_graph.workspace(node.get_workspace_size(), device) as memory:
            arguments.append("None" if memory is None else f"{memory.outer_name}.data_ptr()")
            if device.type == "cpu":
                arguments.append("None")
            wrapper.generate_kernel_call(name, arguments, device=device, triton=False)

    def arguments(self) -> list[str]:
        torch_graph.keep_within(self.limits())
        return [self._argument(arg) for arg in self.call_args()]

    def _argument(self, arg: CallArg) -> str:
        if arg.kind in ("input", "output"):
            return address(self.named_nodes[arg.name])
        return torch_graph.size_text(arg.value)


NOTHING: Mapping[str, ComputedFactor] = MappingProxyType({})

OPERANDS = ("a", "b", "bias")
"""The inputs of a plain matrix product, in the order of templates."""


class ROCmTemplate(torch_graph.KernelTemplate):  # type: ignore[misc]
    """The base: a product `activation(alpha * a @ b + beta * bias)`, maybe with scales, or with a
    second one; subclasses make the kernel.

    `input_nodes` are `operands`, of which the last ones may be missing; `input_reorder` is the
    order in which the C entry takes them. `layout` is that of the output, `target` what `str` names
    in graphs.
    """

    language: ClassVar[Language] = "cpp"
    computes_factors: ClassVar[bool] = False
    """Whether its kernels can compute a factor where they load it."""

    def __init__(
        self,
        name: str,
        input_nodes: Sequence[Node],
        layout: Any,
        target: object,
        input_reorder: Sequence[int] | None = None,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        activation: Activation = "none",
        fast_sums: bool = False,
        operands: Sequence[str] = OPERANDS,
    ) -> None:
        super().__init__(name)
        self.operands = tuple(operands)
        self.target = target
        self.input_nodes = list(input_nodes)
        self.layout = layout
        self.output_node = torch_graph.output_buffer("buf_out", layout)
        self.input_reorder = list(input_reorder or range(len(self.input_nodes)))
        self.alpha = alpha
        self.beta = beta
        self.activation = activation
        self.fast_sums = fast_sums

    def generate(self, *, name: str, config: Any) -> ROCmTemplateCaller:
        """The choice `name`. Raises TemplateError where the config does not fit."""
        raise NotImplementedError

    def make_kernel_render(
        self,
        buffer: ROCmTemplateBuffer | None,
        *,
        config: Any,
        fused: Fused | None = None,
    ) -> tuple[Any, Callable[[], Any]]:
        """A new kernel, and what gives its source. `buffer` is the node that has won, if one has,
        and `fused` what is fused with it."""
        raise NotImplementedError

    def named_nodes(self, buffer: ROCmTemplateBuffer | None = None) -> dict[str, Node]:
        """The inputs by the names of their operands: those of the node that has won, if one has."""
        nodes = self.input_nodes if buffer is None else buffer.inputs
        return dict(zip(self.operands, nodes, strict=False))

    def computable(self, buffer: ROCmTemplateBuffer) -> Sequence[str]:
        """The names of the inputs that may be computed where they are loaded: of the two factors
        those that are not read as something else too."""
        if not self.computes_factors or self.problem().acc != "float32":
            return ()
        names = [node.get_name() for node in buffer.inputs]
        return [name for name in names[:2] if names.count(name) == 1]

    def with_fused(
        self,
        buffer: ROCmTemplateBuffer | None,
        fused: Fused | None,
        computed: Mapping[str, ComputedFactor],
    ) -> tuple[GemmProblem, GemmProblem, dict[str, Any]]:
        """The problem alone, the problem with what is fused, and the tensor of each operand."""
        nodes = self.named_nodes(buffer)
        tensors: dict[str, Any] = nodes | ({OUT: buffer} if fused is None else fused.nodes)
        for factor in computed.values():
            tensors |= factor.nodes
        offered = self.problem(nodes)
        return offered, with_prologues(with_epilogue(offered, fused), computed), tensors

    def problem(self, nodes: Mapping[str, Node] | None = None) -> GemmProblem:
        """Raises UnsupportedProblemError."""
        nodes = self.named_nodes() if nodes is None else nodes
        operands: dict[str, Operand] = {name: operand_of(name, n) for name, n in nodes.items()}
        scales = tuple(scale_of(operands, name) for name in SCALES if name in operands)
        return GemmProblem(
            a=operands["a"],
            b=operands["b"],
            out=operand_of(OUT, self.output_node),
            bias=operands.get("bias"),
            activation=self.activation,
            alpha=self.alpha,
            beta=self.beta,
            scales=scales,
            second=(operands["c"], operands["d"]) if "c" in operands else None,
            fast_sums=self.fast_sums,
        )

    def stored(self) -> Operand:
        """The result, each element of it once."""
        return self.problem().out

    def fuse(
        self, buffer: ROCmTemplateBuffer, nodes: Sequence[Any], removed: Iterable[str] = ()
    ) -> Fused:
        """Pointwise nodes behind the kernel, to be computed in its store. What is in `removed` is
        not stored. Raises ExpressionError where that cannot be."""
        fused = fuse(buffer, self.stored(), nodes, self.problem().acc, removed)
        if why := defect(fused.epilogue.steps, self.language):
            raise ExpressionError(why)
        return fused

    def aten_text(self, inputs: Sequence[str]) -> str:
        """Python that computes the same of such inputs, by public functions of torch alone."""
        return product_text(self, dict(zip(self.operands, inputs, strict=False)))

    def aten_cpp(self, out: str, inputs: Sequence[str], device: str) -> list[str]:
        """C++ that does it into `out`, by the C ABI of torch alone."""
        return product_cpp(self, out, dict(zip(self.operands, inputs, strict=False)), device)

    def reference(self) -> Reference:
        """What the output is checked against."""
        order = tuple(self.input_reorder.index(index) for index in range(len(self.input_nodes)))
        return GemmReference(
            self.alpha, self.beta, self.activation, order, self.operands, self.fast_sums
        )


class HipTemplate(ROCmTemplate):
    """A product in HIP; subclasses name the template and what renders it."""

    template: ClassVar[str]
    renders: ClassVar[Callable[..., Any]]
    options = CompileOptions()
    """How its kernels are compiled."""

    def __init__(self, input_nodes: Sequence[Node], layout: Any, **options: Any) -> None:
        super().__init__(self.template, input_nodes, layout, **options)

    def generate(self, *, name: str, config: Any) -> ROCmTemplateCaller:
        kernel, render = self.make_kernel_render(None, config=config)
        rendered = render()
        check_limits(kernel.limits())
        spec = KernelSpec(
            source=rendered.source,
            entry=kernel.name,
            target=str(self.target),
            pointers=kernel.pointers,
            integers=kernel.integers,
            toolchain=toolchain_for(rendered.source, str(self.target), self.options),
            options=self.options,
        )
        request = ROCmBenchmarkRequest(
            spec,
            benchmarks.tensor_metas([self.input_nodes[index] for index in self.input_reorder]),
            benchmarks.tensor_metas([self.output_node])[0],
            kernel.extra_args(),
            self.reference(),
        )
        return ROCmTemplateCaller(
            name,
            self.name,
            self.input_nodes,
            self.layout,
            functools.partial(self.make_kernel_render, config=config),
            request,
            self,
            config_dict(config),
            self.workspace_size(rendered),
        )

    def workspace_size(self, rendered: Any) -> Any:
        """Bytes, or an expression that is never too small."""
        return workspace_size(rendered)

    def make_kernel_render(
        self,
        buffer: ROCmTemplateBuffer | None,
        *,
        config: Any,
        fused: Fused | None = None,
        computed: Mapping[str, ComputedFactor] = NOTHING,
    ) -> tuple[ROCmTemplateKernel, Callable[[], Any]]:
        """The kernel has the same name in every graph, so that one binary serves them all."""
        offered, problem, tensors = self.with_fused(buffer, fused, computed)
        split = (config.split_k,)
        kernel = ROCmTemplateKernel(f"rocm_{self.name}", tensors, RUNTIME_ARGS, split, self.options)
        if computed:
            config = refitted(config, problem, offered)
            if not pays(config, problem, torch_graph.size_hint):
                raise ConfigError("a factor that is better computed once")
        reorder = _reorder(self, problem)
        return kernel, lambda: self.renders(problem, config, kernel.name, kernel, reorder)


class ROCmGemmTemplate(HipTemplate):
    """Tiles through LDS; configs are `GemmConfig`."""

    computes_factors = True
    template = "gemm"
    renders = staticmethod(render_gemm)


class ROCmSkinnyGemmTemplate(HipTemplate):
    """Few rows, no LDS round trip; configs are `SkinnyConfig`."""

    computes_factors = True
    template = "skinny"
    renders = staticmethod(render_skinny)


def with_epilogue(problem: GemmProblem, fused: Fused | None) -> GemmProblem:
    return problem if fused is None else replace(problem, epilogue=fused.epilogue)


def with_prologues(problem: GemmProblem, computed: Mapping[str, ComputedFactor]) -> GemmProblem:
    if not computed:
        return problem
    a, b = (computed[side].prologue if side in computed else None for side in ("a", "b"))
    return replace(problem, a_prologue=a, b_prologue=b)


def check_limits(sizes: Sequence[tuple[Any, int]]) -> None:
    """Raises UnsupportedProblemError for a size that a kernel cannot be sure to stay below."""
    for size, most in sizes:
        if not torch_graph.is_within(size, most):
            raise UnsupportedProblemError(f"{size}: no kernel of ours takes more than {most}")


def workspace_size(rendered: Rendered) -> Any:
    """Bytes, or an expression that is never too small."""
    problem, split = rendered.problem, rendered.config.split_k
    shape = (problem.batch, problem.m, problem.n, problem.k)
    if all(isinstance(size, int) for size in shape):
        return rendered.workspace_bytes(problem.sizes())
    if split == 1:
        return 0
    rows, cols = (problem.n, problem.m) if problem.flipped else (problem.m, problem.n)
    return math.prod((problem.acc_bytes * split, problem.batch, rows, cols + 7))


def _reorder(template: ROCmTemplate, problem: GemmProblem) -> list[int]:
    """The problem's inputs in the order of the template's, then those that are absent or fused."""
    inputs = problem.inputs()
    places = {operand.name: at for at, operand in enumerate(inputs) if operand is not None}
    names = (template.operands[at] for at in template.input_reorder)
    order = [places[name] for name in names if name in places]
    return [*order, *(at for at in range(len(inputs)) if at not in order)]


def config_dict(config: Any) -> dict[str, Any]:
    """A config by the names that its description has."""
    pairs = (pair.split("=", 1) for pair in config.description.split(", "))
    return {name: int(value) if value.isdecimal() else value for name, value in pairs}


_RUNTIME = """\
#ifndef ROCM_TUI_KERNEL
#define ROCM_TUI_KERNEL
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdint>
#include <stdexcept>
#include <string>
namespace rocm_tui {
inline std::string decoded(const char* base64) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char* at = base64; *at != 0 && *at != '='; ++at) {
    const char c = *at;
    const uint32_t six = c >= 'a' ? c - 'a' + 26 : c >= 'A' ? c - 'A'
        : c >= '0' ? c - '0' + 52 : c == '+' ? 62 : 63;
    bits = bits << 6 | six;
    if ((count += 6) >= 8) bytes.push_back(static_cast<char>(bits >> (count -= 8) & 255));
  }
  return bytes;
}
[[noreturn]] inline void fail(const char* name, const std::string& why) {
  throw std::runtime_error(std::string("rocm-tui kernel ") + name + ": " + why);
}
// A library that is loaded from memory and stays until the process ends.
struct Kernel {
  const char* name;
  void* library;
  void* entry;
  Kernel(const char* name, const char* entry_name, const std::string& place, const char* base64)
      : name(name) {
    const std::string bytes = decoded(base64);
    const int file = memfd_create(name, MFD_CLOEXEC);
    if (file < 0) fail(name, "memory cannot be had for its library");
    for (size_t done = 0; done < bytes.size();) {
      const auto written = write(file, bytes.data() + done, bytes.size() - done);
      if (written <= 0) fail(name, "its library cannot be written into memory");
      done += static_cast<size_t>(written);
    }
    library = dlopen(("/proc/self/fd/" + place + std::to_string(file)).c_str(), RTLD_NOW);
    const char* why = library == nullptr ? dlerror() : "its entry is missing";
    close(file);
    entry = library == nullptr ? nullptr : dlsym(library, entry_name);
    if (entry == nullptr) fail(name, why);
  }
  void check(int code) const {
    if (code == 0) return;
    const auto text = reinterpret_cast<const char* (*)(int)>(dlsym(library, "rocm_tui_error_text"));
    const char* why = text == nullptr ? nullptr : text(code);
    fail(name, "error " + std::to_string(code) + (why == nullptr ? "" : std::string(", ") + why));
  }
};
}  // namespace rocm_tui
#endif
"""

_LINE = 4096
"""Characters of a string literal; the compiler joins them."""


def cpp_definition(
    alias: str,
    entry: str,
    args: Sequence[CallArg],
    source: str,
    target: str,
    options: CompileOptions,
) -> str:
    """C++ of the function `alias`, which calls the entry of `source`, compiled for `target`.

    It takes the arguments of the entry but for the first of its tail. Raises what the toolchain
    raises, and LoadError where a library cannot be loaded by a program.
    """
    library = _library(source, target, options)
    parameters = ", ".join(f"{_type(arg)} {arg.name}" for arg in args)
    types = ", ".join(_type(arg) for arg in args)
    names = ", ".join(arg.name for arg in args)
    return (
        f"{_RUNTIME}"
        f"static void {alias}({parameters}, void* workspace, void* stream) {{\n"
        f'  static const rocm_tui::Kernel kernel("{alias}", "{entry}", "{_place(library)}",\n'
        f"{_literal(library)});\n"
        f"  using Entry = int (*)({types}, size_t*, void*, void*);\n"
        f"  kernel.check(reinterpret_cast<Entry>(kernel.entry)(\n"
        f"      {names}, nullptr, workspace, stream));\n"
        f"}}\n"
    )


def _type(arg: CallArg) -> str:
    """As the C ABI passes it; the entry knows what a pointer points to."""
    return "const void*" if arg.kind == "input" else "void*" if arg.kind == "output" else arg.ty


def _library(source: str, target: str, options: CompileOptions) -> bytes:
    root = cache_dir()
    compiled = code_cache.compile(source, parse_target(target), options, cache_root=root)
    if not compiled.loadable:
        raise LoadError(f"{compiled.path} is a code object alone, which no program can load")
    return trusted.read_file(root, compiled.path)


def _place(content: bytes) -> str:
    """A piece of path that leads nowhere, other for each content. The C library takes two files of
    one path for the same, and numbers of open files are used again."""
    number = int(hashlib.sha256(content).hexdigest()[:32], 16)
    bits = f"{number:0128b}"
    return "".join("./" if bit == "1" else "/" for bit in bits)


def _literal(content: bytes) -> str:
    text = base64.b64encode(content).decode()
    lines = (text[at : at + _LINE] for at in range(0, len(text), _LINE))
    return "\n".join(f'"{line}"' for line in lines)


def write_cpp_call(alias: str, arguments: Sequence[str], node: Any) -> None:
    """The call of `alias` with `arguments`, its workspace around it."""
    device = node.get_device()
    wrapper = torch_graph.graph().wrapper_code
    with torch_graph.workspace(node.get_workspace_size(), device) as memory:
        workspace = "nullptr" if memory is None else f"{memory.outer_name}.data_ptr()"
        with torch_graph.cpp_stream(device) as stream:
            call = ", ".join([*arguments, workspace, stream])
            wrapper.writeline(f"{alias}({call});")
