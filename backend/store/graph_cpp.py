"""The generated C++ wrapper (`cpp_wrapper`, AOTInductor): what `graph_python` reads, in C++.

assert_size_stride(arg0_1, {4L, 32L, 64L}, {2048L, 64L, 1L}, "input");
static constexpr int64_t int_array_0[] = {4L, 32L, 96L};
...aoti_torch_empty_strided(3, int_array_0, int_array_1, cached_torch_dtype_float32, ...
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_bmm_out(buf0, arg0_1, arg1_1));
cpp_fused_bmm_0((const float*)(arg0_1.data_ptr()), ..., (float*)(buf1.data_ptr()));
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from backend.store.graph_parts import (
    Call,
    Dim,
    GraphTensor,
    Hints,
    Known,
    TemplateKernel,
    dims,
    lines,
    split_arguments,
)
from backend.store.kernel_source import fragment_nodes, kernel_config

ENTRIES = ("inductor_entry_impl(", "AOTInductorModel::run_impl(")
"""The function that a C++ wrapper is for: of `cpp_wrapper`, of AOTInductor."""

_BRACES = r"\{([^{}()\n]{0,400})\}"
_ASSERT = re.compile(rf"assert_size_stride\((\w{{1,200}}), {_BRACES}, {_BRACES}")
_ARRAY = re.compile(rf"\bint64_t (\w{{1,100}})\[\] = {_BRACES};")
_EMPTY = re.compile(
    r"aoti_torch_empty_strided\(\d{1,3}, (\w{1,100}), (\w{1,100}), "
    r"cached_torch_dtype_(\w{1,40}), cached_torch_device_type_(\w{1,40}), [^\n&]{0,100}"
    r"&(\w{1,200})_handle\)"
)
_VIEW = re.compile(r"reinterpret_tensor_wrapper\((\w{1,200}), \d{1,3}, (\w{1,100}), (\w{1,100}), ")
_ALIAS = re.compile(r"[ \t]{0,200}(?:auto|[\w:<>()]{1,80}) (\w{1,200}) = ([^\n]{1,2000});")
_MOVE = re.compile(r"std::move\((\w{1,200})\)")
_SHIM = re.compile(r"\baoti_torch_(?:(?:cpu|cuda|hip|xpu|mps)_)?(\w{1,100})\(")
_BY_NAME = re.compile(r"\bcustom_op_wrapper\(\"(?:torch\.ops\.)?(\w{1,80})(?:::|\.)(\w{1,80})")
_KERNEL_CALL = re.compile(r"[ \t]{1,200}(?:call_)?(\w{1,200})\(")
_CPP_KERNEL = re.compile(r"\b(cpp_\w{1,180}?)_(?:kernel_)?micro_gemm")
_TRITON_KERNEL = re.compile(r"\b(triton_tem_\w{1,180})\b")
_TRITON_SOURCE = re.compile(r"\bdef (triton_tem_\w{1,180})\(")
_DECORATOR = 4000
"""Characters before a Triton kernel in which its decorator says how it is launched."""
_NAME = re.compile(r"\b[A-Za-z_]\w{0,200}\b")
_HINT = re.compile(r"reader\.symint\((\d{1,18})(?:, expr='(\w{1,60})')?\)(?:  # (\w{1,200}))?")
_SYMBOL = re.compile(r"\b(s\d{1,10}) = (\w{1,200})\b")
_ALIASES = {
    "_weight_int4pack_mm_cpu_tensor": "int4mm_packed_weight_cpu",
    "_linear_pointwise_binary": "_linear_pointwise",
}
"""What the shim calls otherwise than the Python wrapper."""
_LIBRARIES = ("mkldnn_", "mkl_", "quantized_", "onednn_")


def is_cpp(text: str) -> bool:
    """Whether there is a C++ wrapper in `text`."""
    return any(entry in text for entry in ENTRIES)


def read_cpp(
    text: str, inputs: Mapping[str, GraphTensor], hints: Hints
) -> tuple[list[Call], set[GraphTensor], list[TemplateKernel]]:
    """The extern calls, the tensors and the template kernels of one generated module."""
    known: Known = dict(inputs)
    arrays = {m[1]: dims(m[2], hints) for m in _ARRAY.finditer(text)}
    kernels = {kernel.name: kernel for kernel in _templates(text)}
    launches: dict[str, list[tuple[GraphTensor, ...]]] = {name: [] for name in kernels}
    externs: list[Call] = []
    tensors: set[GraphTensor] = set(inputs.values())
    for line in lines(text):
        learned = _learned(line, known, arrays, hints)
        if learned is not None:
            known[learned[0]] = learned[1]
            tensors.add(learned[1])
        call = _extern_call(line, known, arrays)
        if call is not None:
            externs.append(call)
            tensors.update(call.operands)
        launch = _KERNEL_CALL.match(line)
        if launch is not None and launch[1] in kernels:
            operands = tuple(_operands(line[launch.end() :], known, arrays))
            if operands:
                launches[launch[1]].append(operands)
    found = [
        TemplateKernel(k.name, k.kind, k.config, k.nodes, tuple(launches[k.name]))
        for k in kernels.values()
    ]
    return externs, tensors, found


def printed_hints(text: str) -> dict[str, int]:
    """The value of each symbol, as the reproducer that an entry holds makes it."""
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


_Arrays = Mapping[str, tuple[Dim, ...]]


def _learned(
    line: str, known: Known, arrays: _Arrays, hints: Hints
) -> tuple[str, GraphTensor] | None:
    if match := _EMPTY.search(line):
        sizes, strides, dtype, device, name = match.groups()
        if sizes in arrays and strides in arrays:
            return name, GraphTensor(arrays[sizes], arrays[strides], f"torch.{dtype}", device, True)
        return None
    if match := _ASSERT.search(line):
        old = known.get(match[1])
        dtype, device = (old.dtype, old.device) if old else (None, None)
        return match[1], GraphTensor(dims(match[2], hints), dims(match[3], hints), dtype, device)
    if match := _ALIAS.match(line):
        moved = _MOVE.search(match[2])
        operand = known.get(moved[1]) if moved else _view(match[2], known, arrays)
        return None if operand is None else (match[1], operand)
    return None


def _extern_call(line: str, known: Known, arrays: _Arrays) -> Call | None:
    if match := _SHIM.search(line):
        name = match[1]
        operands = list(_operands(line[match.end() :], known, arrays))
        if name.endswith("_out"):
            name, operands = name.removesuffix("_out"), operands[1:]
        for library in _LIBRARIES:
            name = name.removeprefix(library)
        return Call(_ALIASES.get(name, name), tuple(operands))
    if match := _BY_NAME.search(line):
        return Call(match[2], tuple(_operands(line[match.end() :], known, arrays)))
    return None


def _operands(arguments: str, known: Known, arrays: _Arrays) -> Iterator[GraphTensor]:
    """The tensors among arguments that stand up to the end of a line."""
    for argument in split_arguments(arguments):
        operand = _view(argument, known, arrays)
        if operand is None:
            name = next((n for n in _NAME.findall(argument[:400]) if n in known), None)
            operand = known[name] if name else None
        if operand is not None:
            yield operand


def _view(text: str, known: Known, arrays: _Arrays) -> GraphTensor | None:
    match = _VIEW.search(text)
    if match is None or match[2] not in arrays or match[3] not in arrays:
        return None
    base = known.get(match[1])
    dtype, device = (base.dtype, base.device) if base else (None, None)
    return GraphTensor(arrays[match[2]], arrays[match[3]], dtype, device)


def _templates(text: str) -> Iterator[TemplateKernel]:
    found: dict[str, int] = {}
    for match in _CPP_KERNEL.finditer(text):
        found.setdefault(match[1], match.start())
    starts = [*found.values(), len(text)]
    for name, start, end in zip(found, starts, starts[1:], strict=False):
        yield TemplateKernel(name, "cpp", kernel_config(text[start:end], "cpp"))
    # The source of a Triton kernel stands there where the wrapper compiles it, else as a comment.
    made = list(_TRITON_SOURCE.finditer(text))
    last = 0
    triton: dict[str, TemplateKernel] = {}
    for match, end in zip(made, [*(m.start() for m in made[1:]), len(text)], strict=False):
        before, last = text[last : match.start()], match.end()
        body = before[-_DECORATOR:] + text[match.start() : end].partition("\ndef call")[0]
        config = kernel_config(body, "triton")
        triton[match[1]] = TemplateKernel(match[1], "triton", config, fragment_nodes(before))
    for name in dict.fromkeys(_TRITON_KERNEL.findall(text)):
        yield triton.get(name) or TemplateKernel(name, "triton", ())
