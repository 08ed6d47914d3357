"""Our templates as Inductor's: from nodes of a graph and a config to a choice, and to a kernel in
the graph being compiled, with its tensors as operands and the wrapper's call.

A C++ wrapper (`cpp_wrapper`, and AOTInductor's models) may run without Python, a compiler or any of
our files, so it contains the compiled library itself, as text: the first call writes it to memory
(`memfd_create`), loads it from there and looks up the entry. The graph, or the package, is then
self-contained, on a machine whose processor or GPU can run the compiled code.
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
    toolchain_for,
)
from backend.inductor.benchmark.tensors import GemmReference, Reference
from backend.inductor.child_python import importing
from backend.inductor.hip.caller import ROCmTemplateBuffer, ROCmTemplateCaller
from backend.inductor.hip.fusion import OUT, ComputedFactor, Fused, fuse
from backend.inductor.hip.operands import (
    address,
    operand_of,
    product_cpp,
    product_text,
    scale_of,
)
from backend.inductor.hip.runtime import log_kernel
from backend.inductor.torch import benchmarks
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch.graph import Node
from backend.templates.expressions import Language, defect
from backend.templates.heuristics import pays, refitted
from backend.templates.operand import ArgInfo, Operand
from backend.templates.problem import SCALES, Activation, GemmProblem, input_order
from backend.templates.rendering import (
    RUNTIME_ARGS,
    CallArg,
    Rendered,
    TemplateKernel,
    render,
)
from backend.toolchain import code_cache
from backend.toolchain.target import parse_target

_LOADER = "rocm_tui_load_kernel"


class GraphKernel(Protocol):
    """The scheduling's view of a kernel."""

    name: str

    def define(self, alias: str, source: str, target: str, origins: str) -> None:
        """Write the definition of `alias` into the wrapper, below `origins` as a comment."""

    def arguments(self) -> list[str]:
        """Return a call's arguments without the workspace. Raises ValueError for too large
        sizes."""

    def call_kernel(self, name: str, node: Any) -> None:
        """Write the call of the kernel `name` of the ROCmTemplateBuffer `node`, with its
        workspace."""

    def estimate_kernel_num_bytes(self) -> int:
        """Return the bytes that a call reads and writes if each element moves once."""


class ROCmTemplateKernel(TemplateKernel):
    """A kernel that maps each operand to its node, by name."""

    imports = importing("backend.inductor.hip.runtime", "load_kernel", _LOADER)

    def __init__(
        self,
        name: str,
        nodes: Mapping[str, Node],
        runtime_arg_info: Sequence[ArgInfo],
        runtime_arg_values: Sequence[int],
    ) -> None:
        super().__init__(name, runtime_arg_info, runtime_arg_values)
        self.named_nodes = dict(nodes)

    @property
    def pointers(self) -> int:
        return sum(arg.kind in ("input", "output") for arg in self.call_args())

    @property
    def integers(self) -> int:
        return len(self.call_args()) - self.pointers

    def extra_args(self) -> list[int]:
        """Return sizes and runtime arguments for a benchmark: guesses if they are dynamic."""
        return [
            torch_graph.size_hint(arg.value)
            for arg in self.call_args()
            if arg.kind in ("size", "runtime")
        ]

    def define(self, alias: str, source: str, target: str, origins: str) -> None:
        wrapper = torch_graph.graph().wrapper_code
        if torch_graph.writes_cpp():
            log_kernel(source)
            text = cpp_definition(alias, self.name, self.call_args(), source, target)
            wrapper.define_kernel(alias, text, origins, gpu=False)
            return
        assert "'''" not in source and not source.endswith("'")
        wrapper.add_import_once(self.imports)
        text = (
            f"{_LOADER}(r'''{source}''', entry={self.name!r}, target={target!r}, "
            f"pointers={self.pointers}, integers={self.integers}, alias={alias!r}, "
            f"toolchain={toolchain_for(source, target)!r})"
        )
        # Else autotuning at compile time runs it, without the import.
        wrapper.define_kernel(alias, text, origins, gpu=False)

    def call_kernel(self, name: str, node: Any) -> None:
        """Write the call with addresses and numbers; the wrapper adds the stream on a GPU."""
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

    def estimate_kernel_num_bytes(self) -> int:
        args = (arg for arg in self.call_args() if arg.kind in ("input", "output"))
        return torch_graph.num_bytes(self.named_nodes[arg.name] for arg in args)

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
    second one; subclasses build the kernel.

    `input_nodes` are `operands`, of which the last ones may be missing; `input_reorder` is the
    order in which the C entry takes them. `layout` is that of the output, `target` what `str` names
    in graphs.
    """

    template: ClassVar[str]
    """Its name, which is part of the names and hashes of its choices."""
    language: ClassVar[Language] = "cpp"
    computes_factors: ClassVar[bool] = False
    """Whether its kernels can compute a factor while loading."""

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
        """Return the choice `name`. Raises TemplateError if the config does not fit."""
        raise NotImplementedError

    def make_kernel_render(
        self,
        buffer: ROCmTemplateBuffer | None,
        *,
        config: Any,
        fused: Fused | None = None,
    ) -> tuple[Any, Callable[[], Any]]:
        """Return a new kernel, and a function that returns its source. `buffer` is the winning
        node, if there is one, and `fused` its fused nodes."""
        raise NotImplementedError

    def named_nodes(self, buffer: ROCmTemplateBuffer | None = None) -> dict[str, Node]:
        """Return the inputs by the names of their operands: the winning node's, if there is one."""
        nodes = self.input_nodes if buffer is None else buffer.inputs
        return dict(zip(self.operands, nodes, strict=False))

    def computable(self, buffer: ROCmTemplateBuffer) -> Sequence[str]:
        """Return the names of the inputs that may be computed while loading: the factors that are
        not also another operand."""
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
        """Return the problem alone, the fused problem, and the tensor of each operand."""
        nodes = self.named_nodes(buffer)
        tensors: dict[str, Any] = nodes | ({OUT: buffer} if fused is None else fused.nodes)
        for factor in computed.values():
            tensors |= factor.nodes
        offered = self.problem(nodes)
        return offered, with_prologues(with_epilogue(offered, fused), computed), tensors

    def problem(self, nodes: Mapping[str, Node] | None = None) -> GemmProblem:
        """Return the problem. Raises UnsupportedProblemError."""
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
        """The result, each element once."""
        return self.problem().out

    def fuse(
        self, buffer: ROCmTemplateBuffer, nodes: Sequence[Any], removed: Iterable[str] = ()
    ) -> Fused:
        """Fuse pointwise nodes behind the kernel into its store. Buffers in `removed` are not
        stored. Raises ExpressionError if that is impossible."""
        fused = fuse(buffer, self.stored(), nodes, self.problem().acc, removed)
        if why := defect(fused.epilogue.steps, self.language):
            raise ExpressionError(why)
        return fused

    def aten_text(self, inputs: Sequence[str]) -> str:
        """Return Python that computes the same from these inputs, with torch's public functions."""
        return product_text(self, dict(zip(self.operands, inputs, strict=False)))

    def aten_cpp(self, out: str, inputs: Sequence[str], device: str) -> list[str]:
        """Return C++ that computes the same into `out`, with torch's C ABI only."""
        return product_cpp(self, out, dict(zip(self.operands, inputs, strict=False)), device)

    def reference(self) -> Reference:
        """Return the reference for checking the output."""
        order = tuple(self.input_reorder.index(index) for index in range(len(self.input_nodes)))
        return GemmReference(
            self.alpha, self.beta, self.activation, order, self.operands, self.fast_sums
        )


class HipTemplate(ROCmTemplate):
    """A product in HIP; subclasses name the template."""

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
            toolchain=toolchain_for(rendered.source, str(self.target)),
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

    def workspace_size(self, rendered: Rendered) -> Any:
        """Return the bytes, or an expression that is never too small."""
        problem, split = rendered.problem, rendered.config.split_k
        shape = (problem.batch, problem.m, problem.n, problem.k)
        if all(isinstance(size, int) for size in shape):
            return rendered.workspace_bytes(problem.sizes())
        if split == 1:
            return 0
        rows, cols = (problem.n, problem.m) if problem.flipped else (problem.m, problem.n)
        return math.prod((problem.acc_bytes * split, problem.batch, rows, cols + 7))

    def make_kernel_render(
        self,
        buffer: ROCmTemplateBuffer | None,
        *,
        config: Any,
        fused: Fused | None = None,
        computed: Mapping[str, ComputedFactor] = NOTHING,
    ) -> tuple[ROCmTemplateKernel, Callable[[], Any]]:
        """Return the kernel, with one name in all graphs, so that one binary serves them all."""
        offered, problem, tensors = self.with_fused(buffer, fused, computed)
        split = (config.split_k,)
        kernel = ROCmTemplateKernel(f"rocm_{self.name}", tensors, RUNTIME_ARGS, split)
        if computed:
            config = refitted(config, problem, offered)
            if not pays(config, problem, torch_graph.size_hint):
                raise ConfigError("a factor that is better computed once")
        reorder = input_order(problem, (self.operands[at] for at in self.input_reorder))
        return kernel, lambda: render(problem, config, kernel.name, kernel, reorder)


class ROCmGemmTemplate(HipTemplate):
    """Tiles through LDS; configs are `GemmConfig`."""

    computes_factors = True
    template = "gemm"


class ROCmSkinnyGemmTemplate(HipTemplate):
    """Few rows, no LDS round trip; configs are `SkinnyConfig`."""

    computes_factors = True
    template = "skinny"


def with_epilogue(problem: GemmProblem, fused: Fused | None) -> GemmProblem:
    return problem if fused is None else replace(problem, epilogue=fused.epilogue)


def with_prologues(problem: GemmProblem, computed: Mapping[str, ComputedFactor]) -> GemmProblem:
    if not computed:
        return problem
    a, b = (computed[side].prologue if side in computed else None for side in ("a", "b"))
    return replace(problem, a_prologue=a, b_prologue=b)


def check_limits(sizes: Sequence[tuple[Any, int]]) -> None:
    """Raise UnsupportedProblemError if a size may exceed a kernel's limit."""
    for size, most in sizes:
        if not torch_graph.is_within(size, most):
            raise UnsupportedProblemError(f"{size}: no kernel of ours takes more than {most}")


def config_dict(config: Any) -> dict[str, Any]:
    """Return a config by the names in its description."""
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
"""The length of a string literal; the compiler joins them."""


def cpp_definition(
    alias: str,
    entry: str,
    args: Sequence[CallArg],
    source: str,
    target: str,
) -> str:
    """Return C++ of the function `alias`, which calls the entry of `source`, compiled for `target`.

    It takes the arguments of the entry except the first of its tail. Raises the toolchain's errors,
    and LoadError if a program cannot load the library.
    """
    library = _library(source, target)
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
    """Return the type in the C ABI; the entry knows the type behind a pointer."""
    return "const void*" if arg.kind == "input" else "void*" if arg.kind == "output" else arg.ty


def _library(source: str, target: str) -> bytes:
    root = cache_dir()
    compiled = code_cache.compile(source, parse_target(target), cache_root=root)
    if not compiled.loadable:
        raise LoadError(f"{compiled.path} is a code object alone, which no program can load")
    return trusted.read_file(root, compiled.path)


def _place(content: bytes) -> str:
    """Return a path component without effect, different for each content. The C library takes two
    files of one path for the same, and file descriptors are reused."""
    number = int(hashlib.sha256(content).hexdigest()[:32], 16)
    bits = f"{number:0128b}"
    return "".join("./" if bit == "1" else "/" for bit in bits)


def _literal(content: bytes) -> str:
    text = base64.b64encode(content).decode()
    lines = (text[at : at + _LINE] for at in range(0, len(text), _LINE))
    return "\n".join(f'"{line}"' for line in lines)


def write_cpp_call(alias: str, arguments: Sequence[str], node: Any) -> None:
    """Write the call of `alias` with `arguments`, inside its workspace."""
    device = node.get_device()
    wrapper = torch_graph.graph().wrapper_code
    with torch_graph.workspace(node.get_workspace_size(), device) as memory:
        workspace = "nullptr" if memory is None else f"{memory.outer_name}.data_ptr()"
        with torch_graph.cpp_stream(device) as stream:
            call = ", ".join([*arguments, workspace, stream])
            wrapper.writeline(f"{alias}({call});")
