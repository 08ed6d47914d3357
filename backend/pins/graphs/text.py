"""Parses the text of one compiled graph: its wrappers, its printed graphs, its calls.

An entry is a pickle, which is never loaded. It contains, as plain text,
- the generated wrapper, in Python (`def call(...)`) or in C++ (`cpp_wrapper`), with each extern
  kernel call and its operands, the source of each kernel, and its arguments,
- the compiled graph, each value with its dtype, sizes, strides and device,
- above a Triton kernel, a comment that names the nodes of the graph that it computes,
- before each call of a kernel of ours, a comment that names the choice and its problem.
A template's kernel is called with operands changed by packing and fusing, so the printed graph
shows the inputs of an op, and the wrapper the kernel.

A wrapper in Python has

    assert_size_stride(arg0_1, (4, 32, 64), (2048, 64, 1))
    buf0 = empty_strided_cpu((4, 32, 96), (3072, 96, 1), torch.float32)
    extern_kernels.bmm(arg0_1, arg1_1, out=buf0)
    cpp_fused_bmm_0(arg0_1, arg1_1, buf1)

where one in C++ (`cpp_wrapper`, AOTInductor) has

    assert_size_stride(arg0_1, {4L, 32L, 64L}, {2048L, 64L, 1L}, "input");
    static constexpr int64_t int_array_0[] = {4L, 32L, 96L};
    ...aoti_torch_empty_strided(3, int_array_0, int_array_1, cached_torch_dtype_float32, ...
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_bmm_out(buf0, arg0_1, arg1_1));
    cpp_fused_bmm_0((const float*)(arg0_1.data_ptr()), ..., (float*)(buf1.data_ptr()));
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from backend.model.options import Options, options_of_text, text_of_options
from backend.pins.graphs.parts import (
    HEADER,
    NAME,
    Dim,
    GraphCall,
    GraphTensor,
    Hints,
    NamedTensors,
    WrapperKernel,
    code_lines,
    dims,
    fragment_nodes,
    graph_calls,
    graph_inputs,
    kernel_config,
    options_of_call,
    printed_graphs,
    sections,
    split_arguments,
)

Dims = tuple[Dim, ...]


class Wrapper(ABC):
    """A generated module: its extern calls, tensors and template kernels, read line by line.
    `tensors_by_name` are the tensors that the lines read so far have named."""

    call: re.Pattern[str]
    """A line that may call a template's kernel."""
    sized: re.Pattern[str]
    """The check of an input's sizes and strides."""

    def __init__(self, text: str, inputs: Mapping[str, GraphTensor], hints: Hints) -> None:
        self.hints = hints
        self.tensors_by_name: NamedTensors = {**inputs, **self.benchmark_inputs(text)}
        self.externs: list[GraphCall] = []
        self.tensors: set[GraphTensor] = set(self.tensors_by_name.values())
        kernels = {kernel.name: kernel for kernel in self.kernels(text)}
        launches: dict[str, list[tuple[GraphTensor, ...]]] = {name: [] for name in kernels}
        for line in code_lines(text):
            self._learn(line)
            launch = self.call.match(line)
            if launch is not None and launch[1] in kernels:
                launches[launch[1]] += self.launched(line, launch.end())
        self.templates = [
            replace(kernel, calls=tuple(launches[kernel.name])) for kernel in kernels.values()
        ]

    def _learn(self, line: str) -> None:
        learned = self.learned(line)
        if learned is not None:
            name, operand = learned
            self.tensors_by_name[name] = operand
            self.tensors.add(operand)
        call = self.extern_call(line)
        if call is not None:
            self.externs.append(call)
            self.tensors.update(call.operands)

    def benchmark_inputs(self, text: str) -> NamedTensors:
        """Return the inputs that the module's own benchmark creates."""
        return {}

    @abstractmethod
    def kernels(self, text: str) -> Iterable[WrapperKernel]:
        """Return each kernel that looks like a template of a GEMM, convolution or attention."""

    @abstractmethod
    def learned(self, line: str) -> tuple[str, GraphTensor] | None:
        """Return the buffer that a line creates, checks or renames."""

    @abstractmethod
    def extern_call(self, line: str) -> GraphCall | None:
        """Return the call of a library kernel."""

    @abstractmethod
    def launched(self, line: str, at: int) -> list[tuple[GraphTensor, ...]]:
        """Return the operands of a template's kernel whose arguments begin at `at`."""

    def checked(self, line: str) -> tuple[str, GraphTensor] | None:
        """Return the input that a line checks."""
        match = self.sized.search(line)
        return match and (match[1], self.viewed(match[1], self.dims(match[2]), self.dims(match[3])))

    def viewed(self, name: str, sizes: Dims, strides: Dims) -> GraphTensor:
        """Return the tensor `name` with other sizes and strides."""
        base = self.tensors_by_name.get(name)
        dtype, device = (base.dtype, base.device) if base else (None, None)
        return GraphTensor(sizes, strides, dtype, device)

    def dims(self, text: str) -> Dims:
        return dims(text, self.hints)


# Python

_TUPLE = r"\(([^()\n]{0,400})\)"
_ASSERT = re.compile(rf"assert_size_stride\((\w{{1,200}}), {_TUPLE}, {_TUPLE}")
_EMPTY = re.compile(
    rf"\b(\w{{1,200}}) = empty_strided(?:_(\w{{1,40}}))?\({_TUPLE}, {_TUPLE}, "
    rf"(?:dtype=)?torch\.(\w{{1,40}})"
)
_RAND = re.compile(
    rf"\b(\w{{1,200}}) = rand_strided\({_TUPLE}, {_TUPLE}, device='(\w{{1,40}})[^'\n]{{0,40}}', "
    rf"dtype=torch\.(\w{{1,40}})\)"
)
_VIEW = re.compile(rf"reinterpret_tensor\((\w{{1,200}}), {_TUPLE}, {_TUPLE}, [^()\n]{{0,400}}\)")
_ALIAS = re.compile(
    r"[ \t]{0,200}(\w{1,200}) = (reinterpret_tensor\([^\n]{0,2000}\)|\w{1,200}); del \w"
)
_EXTERN = re.compile(
    r"\b(?:torch\.ops\.\w{1,80}|extern_kernels|aten|mkldnn|mkl|quantized)"
    r"\.(\w{1,80})(?:\.\w{1,80})?\("
)
_KERNEL = re.compile(r"^(\w{1,200}) = async_compile\.(\w{1,80})\(", re.MULTILINE)
_MICRO_GEMM = re.compile(r"micro_gemm|_mm\(X, W, Y")
_GEMM_ONLY = {"cuda", "rocm", "cutlass", "ck", "cutedsl", "nv_universal_gemm", "flydsl"}
"""Compilers that Inductor uses only for templates."""


class PythonWrapper(Wrapper):
    call = re.compile(r"[ \t]{1,200}(\w{1,200})(?:\.run)?\(")
    sized = _ASSERT

    def benchmark_inputs(self, text: str) -> NamedTensors:
        return {m[1]: self._empty_tensor(m[2], m[3], m[5], m[4]) for m in _RAND.finditer(text)}

    def _empty_tensor(self, sizes: str, strides: str, dtype: str, device: str) -> GraphTensor:
        return GraphTensor(self.dims(sizes), self.dims(strides), f"torch.{dtype}", device)

    def learned(self, line: str) -> tuple[str, GraphTensor] | None:
        if match := _EMPTY.search(line):
            name, device, sizes, strides, dtype = match.groups()
            return name, replace(self._empty_tensor(sizes, strides, dtype, device), computed=True)
        if checked := self.checked(line):
            return checked
        if match := _ALIAS.match(line):
            operand = self._operand(match[2])
            return None if operand is None else (match[1], operand)
        return None

    def extern_call(self, line: str) -> GraphCall | None:
        line = line.rstrip()
        match = _EXTERN.search(line) if line.endswith(")") else None
        if match is None:
            return None
        arguments = line[match.end() : -1]
        options = options_of_call(match[1], arguments)
        return GraphCall(match[1], tuple(self._operands(arguments)), options=options)

    def launched(self, line: str, at: int) -> list[tuple[GraphTensor, ...]]:
        line = line.rstrip()
        return [tuple(self._operands(line[at:-1]))] if line.endswith(")") else []

    def _operands(self, arguments: str) -> Iterator[GraphTensor]:
        for argument in split_arguments(arguments):
            if "=" in argument.partition("(")[0]:
                continue
            operand = self._operand(argument)
            if operand is not None:
                yield operand

    def _operand(self, text: str) -> GraphTensor | None:
        match = _VIEW.fullmatch(text)
        if match is None:
            return self.tensors_by_name.get(text)
        return self.viewed(match[1], self.dims(match[2]), self.dims(match[3]))

    def kernels(self, text: str) -> Iterator[WrapperKernel]:
        before = 0
        for match, end in sections(_KERNEL, text):
            start, compiler = match.start(), match[2]
            comments, body, before = text[before:start], text[start:end], start
            if "triton_tem" in match[1] or compiler in _GEMM_ONLY or _MICRO_GEMM.search(body):
                kind = "cpp" if "cpp" in compiler else compiler
                config = kernel_config(body, kind)
                yield WrapperKernel(match[1], kind, config, fragment_nodes(comments))


def python_hints(text: str) -> dict[str, int]:
    """Return the value of each symbol whose input is checked and created for a benchmark."""
    inputs = {m[1]: m[2].split(",") for m in _RAND.finditer(text)}
    hints: dict[str, int] = {}
    for match in _ASSERT.finditer(text):
        for symbol, value in zip(match[2].split(","), inputs.get(match[1], ()), strict=False):
            symbol, value = symbol.strip(), value.strip()
            if symbol.isidentifier() and value.isascii() and value.isdigit() and len(value) < 20:
                hints[symbol] = int(value)
    return hints


# C++

ENTRIES = ("inductor_entry_impl(", "AOTInductorModel::run_impl(")
"""The entry functions of C++ wrappers: of `cpp_wrapper`, of AOTInductor."""

_BRACES = r"\{([^{}()\n]{0,400})\}"
_ARRAY = re.compile(rf"\bint64_t (\w{{1,100}})\[\] = {_BRACES};")
_EMPTY_CPP = re.compile(
    r"aoti_torch_empty_strided\(\d{1,3}, (\w{1,100}), (\w{1,100}), "
    r"cached_torch_dtype_(\w{1,40}), cached_torch_device_type_(\w{1,40}), [^\n&]{0,100}"
    r"&(\w{1,200})_handle\)"
)
_VIEW_CPP = re.compile(
    r"reinterpret_tensor_wrapper\((\w{1,200}), \d{1,3}, (\w{1,100}), (\w{1,100}), "
)
_ALIAS_CPP = re.compile(r"[ \t]{0,200}(?:auto|[\w:<>()]{1,80}) (\w{1,200}) = ([^\n]{1,2000});")
_MOVE = re.compile(r"std::move\((\w{1,200})\)")
_SHIM = re.compile(r"\baoti_torch_(?:(?:cpu|cuda|hip|xpu|mps)_)?(\w{1,100})\(")
_BY_NAME = re.compile(r"\bcustom_op_wrapper\(\"(?:torch\.ops\.)?(\w{1,80})(?:::|\.)(\w{1,80})")
_CPP_KERNEL = re.compile(r"\b(cpp_\w{1,180}?)_(?:kernel_)?micro_gemm")
_TRITON_KERNEL = re.compile(r"\b(triton_tem_\w{1,180})\b")
_TRITON_SOURCE = re.compile(r"\bdef (triton_tem_\w{1,180})\(")
_DECORATOR = 4000
"""Characters before a Triton kernel that contain its decorator with the launch parameters."""
_HINT = re.compile(r"reader\.symint\((\d{1,18})(?:, expr='(\w{1,60})')?\)(?:  # (\w{1,200}))?")
_SYMBOL = re.compile(r"\b(s\d{1,10}) = (\w{1,200})\b")
_ALIASES = {
    "_weight_int4pack_mm_cpu_tensor": "int4mm_packed_weight_cpu",
    "_linear_pointwise_binary": "_linear_pointwise",
}
"""The shim's names that differ from the Python wrapper's."""
_LIBRARIES = ("mkldnn_", "mkl_", "quantized_", "onednn_")


def is_cpp(text: str) -> bool:
    """Return whether `text` contains a C++ wrapper."""
    return any(entry in text for entry in ENTRIES)


class CppWrapper(Wrapper):
    call = re.compile(r"[ \t]{1,200}(?:call_)?(\w{1,200})\(")
    sized = re.compile(rf"assert_size_stride\((\w{{1,200}}), {_BRACES}, {_BRACES}")

    def __init__(self, text: str, inputs: Mapping[str, GraphTensor], hints: Hints) -> None:
        self._arrays = {m[1]: dims(m[2], hints) for m in _ARRAY.finditer(text)}
        super().__init__(text, inputs, hints)

    def learned(self, line: str) -> tuple[str, GraphTensor] | None:
        if match := _EMPTY_CPP.search(line):
            sizes, strides, dtype, device, name = match.groups()
            if sizes not in self._arrays or strides not in self._arrays:
                return None
            sized = self._arrays[sizes], self._arrays[strides]
            return name, GraphTensor(*sized, f"torch.{dtype}", device, True)
        if checked := self.checked(line):
            return checked
        if match := _ALIAS_CPP.match(line):
            moved = _MOVE.search(match[2])
            operand = self.tensors_by_name.get(moved[1]) if moved else self._view(match[2])
            return None if operand is None else (match[1], operand)
        return None

    def extern_call(self, line: str) -> GraphCall | None:
        if match := _SHIM.search(line):
            name = match[1]
            operands = list(self._operands(line[match.end() :]))
            if name.endswith("_out"):
                name, operands = name.removesuffix("_out"), operands[1:]
            for library in _LIBRARIES:
                name = name.removeprefix(library)
            return GraphCall(_ALIASES.get(name, name), tuple(operands))
        if match := _BY_NAME.search(line):
            return GraphCall(match[2], tuple(self._operands(line[match.end() :])))
        return None

    def launched(self, line: str, at: int) -> list[tuple[GraphTensor, ...]]:
        operands = tuple(self._operands(line[at:]))
        return [operands] if operands else []

    def _operands(self, arguments: str) -> Iterator[GraphTensor]:
        """Yield the tensors among arguments that extend to the end of a line."""
        for argument in split_arguments(arguments):
            operand = self._view(argument)
            if operand is None:
                names = NAME.findall(argument[:400])
                operand = next(
                    (self.tensors_by_name[name] for name in names if name in self.tensors_by_name),
                    None,
                )
            if operand is not None:
                yield operand

    def _view(self, text: str) -> GraphTensor | None:
        match = _VIEW_CPP.search(text)
        if match is None or match[2] not in self._arrays or match[3] not in self._arrays:
            return None
        return self.viewed(match[1], self._arrays[match[2]], self._arrays[match[3]])

    def kernels(self, text: str) -> Iterator[WrapperKernel]:
        firsts: dict[str, int] = {}
        for match in _CPP_KERNEL.finditer(text):
            firsts.setdefault(match[1], match.start())
        starts = [*firsts.values(), len(text)]
        for name, start, end in zip(firsts, starts, starts[1:], strict=False):
            yield WrapperKernel(name, "cpp", kernel_config(text[start:end], "cpp"))
        # The source of a Triton kernel is where the wrapper compiles it, else in a comment.
        last = 0
        triton: dict[str, WrapperKernel] = {}
        for match, end in sections(_TRITON_SOURCE, text):
            before, last = text[last : match.start()], match.end()
            body = before[-_DECORATOR:] + text[match.start() : end].partition("\ndef call")[0]
            config = kernel_config(body, "triton")
            triton[match[1]] = WrapperKernel(match[1], "triton", config, fragment_nodes(before))
        for name in dict.fromkeys(_TRITON_KERNEL.findall(text)):
            yield triton.get(name) or WrapperKernel(name, "triton", ())


def printed_hints(text: str) -> dict[str, int]:
    """Return the value of each symbol in the entry's reproducer."""
    named: dict[str, int] = {}
    hints: dict[str, int] = {}
    for value, symbol, parameter in _HINT.findall(text):
        if symbol:
            hints[symbol] = int(value)
        if parameter:
            named[parameter] = int(value)
    for symbol, parameter in _SYMBOL.findall(text) if named else ():
        if parameter in named:
            hints.setdefault(symbol, named[parameter])
    return hints


@dataclass(frozen=True, slots=True)
class OwnChoice:
    """A call of a kernel of our templates: the choice that won the tuning of (op, inputs), for a
    convolution with these options."""

    op: str
    inputs: str
    hash: str
    options: Options = ()

    def text(self) -> str:
        """The comment for it in the wrapper."""
        options = f" with {text_of_options(self.options)}" if self.options else ""
        return f"rocm-tui choice {self.hash}{options} for {self.op} {self.inputs}"


_OWN_CHOICE = re.compile(
    r"^[ \t]{0,200}(?:#|//) rocm-tui choice (\S{1,400})(?: with (\S{1,400}))? for (\S{1,200}) "
    r"([^\n]{1,65600})$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class GraphText:
    """One entry. `graphs` has the ops of each printed graph; `externs` the calls of the wrapper.

    `is_compiled` is False for an entry without generated code. `tensors` are the inputs and buffers
    that the wrapper names. `tuned` is whether it was compiled with autotuning on; None if unknown.
    `any_size` is the same text with open symbols, if the tuned values of its symbols were known.
    `devices` are the indices of the GPUs that it launches kernels on.
    """

    is_compiled: bool
    graphs: tuple[tuple[GraphCall, ...], ...]
    externs: tuple[GraphCall, ...]
    tensors: frozenset[GraphTensor]
    templates: tuple[WrapperKernel, ...]
    tuned: bool | None
    own: frozenset[OwnChoice] = field(default_factory=frozenset)
    any_size: GraphText | None = None
    devices: frozenset[int] = frozenset()


_DEVICE = re.compile(
    r"\b_DeviceGuard\((\d{1,4})\)|Guard device_guard\((\d{1,4})\)"
    r"|\bDeviceProperties\(type='\w{1,20}', index=(\d{1,4}), "
)
_PYTHON = re.compile(r"AsyncCompile\(\)\n")
_REPRODUCER = re.compile(r"^def load_args\(reader\):\n", re.MULTILINE)
_CALL = re.compile(r"^[ \t]{0,200}def call\(", re.MULTILINE)
_TUNED = re.compile(
    r"(?:inductor_config\[|_inductor\.config\.)max_autotune(?:_gemm)?\]?\s{0,20}[:=] True"
)
_SETTINGS = re.compile(
    r"inductor_config\[max_autotune\]|^import torch\._inductor\.config$", re.MULTILINE
)


def read_graph_text(data: bytes) -> GraphText:
    """Parse `data`, the content of an entry. Never raises: unknown text is ignored."""
    text = data.decode("latin-1")  # every byte becomes a character; all patterns are ASCII
    python, cpp = list(_python_wrappers(text)), list(_cpp_wrappers(text))
    parts = printed_graphs(text)
    hints = printed_hints("".join([*_reproducers(text), *python, *cpp]))
    for wrapper in python:
        hints = {**python_hints(wrapper), **hints}
    open_text = _read(text, python, cpp, parts, {}, None)
    return _read(text, python, cpp, parts, hints, open_text) if hints else open_text


def _read(
    text: str,
    python: list[str],
    cpp: list[str],
    parts: list[str],
    hints: Hints,
    any_size: GraphText | None,
) -> GraphText:
    inputs: NamedTensors = {}
    for part in parts:
        for name, operand in graph_inputs(part, hints).items():
            inputs.setdefault(name, operand)  # inner graphs, printed later, reuse the names
    wrappers: list[Wrapper] = [PythonWrapper(wrapper, inputs, hints) for wrapper in python]
    wrappers += [CppWrapper(wrapper, inputs, hints) for wrapper in cpp]
    return GraphText(
        is_compiled=bool(wrappers),
        graphs=tuple(tuple(graph_calls(part, hints)) for part in parts),
        externs=tuple(call for wrapper in wrappers for call in wrapper.externs),
        tensors=frozenset(tensor for wrapper in wrappers for tensor in wrapper.tensors),
        templates=tuple(kernel for wrapper in wrappers for kernel in wrapper.templates),
        tuned=_tuned(text),
        own=frozenset(
            OwnChoice(op, inputs_key, choice, options_of_text(options))
            for source in (*python, *cpp)
            for choice, options, op, inputs_key in _OWN_CHOICE.findall(source)
        ),
        any_size=any_size,
        devices=frozenset(
            int(next(filter(None, groups)))
            for source in (*python, *cpp)
            for groups in _DEVICE.findall(source)
        ),
    )


def _python_wrappers(text: str) -> Iterator[str]:
    """Yield each generated Python module, from its imports to its end."""
    for match, end in sections(_PYTHON, text):
        part = text[match.start() : end]
        if _CALL.search(part):
            graph = HEADER.search(part)
            part = part[: graph.start()] if graph else part
            yield part.partition("compiled_module_main(")[0]


def _cpp_wrappers(text: str) -> Iterator[str]:
    """Yield each generated C++ module: Python text in an entry, or a whole file alone."""
    parts = text.split("cpp_wrapper_src = (\n")[1:]
    if not parts and text.lstrip().startswith("#include"):
        parts = [text]
    for part in parts:
        code = part.partition("CppWrapperCodeCache.load")[0]
        graph = HEADER.search(code)
        code = code[: graph.start()] if graph else code
        if is_cpp(code):
            yield code


def _reproducers(text: str) -> Iterator[str]:
    """Yield the code that creates the arguments in each reproducer."""
    for match, end in sections(_REPRODUCER, text):
        start = match.end()
        yield text[start : min(end, start + 200_000)].partition("\nload_args._version")[0]


def _tuned(text: str) -> bool | None:
    # The reproducer has non-default settings, and the environment that sets a default.
    if "TORCHINDUCTOR_MAX_AUTOTUNE" in text or _TUNED.search(text):
        return True
    return False if _SETTINGS.search(text) else None
