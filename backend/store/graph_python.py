"""The generated Python wrapper: buffers, calls of extern kernels, and the kernels of templates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from backend.store.graph_parts import (
    Call,
    GraphTensor,
    Hints,
    Known,
    TemplateKernel,
    dims,
    lines,
    split_arguments,
)
from backend.store.kernel_source import fragment_nodes, kernel_config

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
_VIEW_TEXT = rf"reinterpret_tensor\((\w{{1,200}}), {_TUPLE}, {_TUPLE}, [^()\n]{{0,400}}\)"
_VIEW = re.compile(_VIEW_TEXT)
_ALIAS = re.compile(
    r"[ \t]{0,200}(\w{1,200}) = (reinterpret_tensor\([^\n]{0,2000}\)|\w{1,200}); del \w"
)
_EXTERN = re.compile(
    r"\b(?:torch\.ops\.\w{1,80}|extern_kernels|aten|mkldnn|mkl|quantized)"
    r"\.(\w{1,80})(?:\.\w{1,80})?\("
)
_KERNEL = re.compile(r"^(\w{1,200}) = async_compile\.(\w{1,80})\(", re.MULTILINE)
_CALL = re.compile(r"[ \t]{1,200}(\w{1,200})(?:\.run)?\(")
_MICRO_GEMM = re.compile(r"micro_gemm|_mm\(X, W, Y")
_GEMM_ONLY = {"cuda", "rocm", "cutlass", "ck", "cutedsl", "nv_universal_gemm"}
"""Compilers that Inductor uses for templates alone."""


def read_python(
    text: str, inputs: Mapping[str, GraphTensor], hints: Hints
) -> tuple[list[Call], set[GraphTensor], list[TemplateKernel]]:
    """The extern calls, the tensors and the template kernels of one generated module."""
    known: Known = {**inputs, **_benchmark_inputs(text, hints)}
    kernels = {kernel.name: kernel for kernel in _templates(text)}
    launches: dict[str, list[tuple[GraphTensor, ...]]] = {name: [] for name in kernels}
    externs: list[Call] = []
    tensors: set[GraphTensor] = set(known.values())
    for line in lines(text):
        learned = _learned(line, known, hints)
        if learned is not None:
            name, operand = learned
            known[name] = operand
            tensors.add(operand)
        call = _extern_call(line, known, hints)
        if call is not None:
            externs.append(call)
            tensors.update(call.operands)
        launch = _CALL.match(line)
        if launch is not None and launch[1] in kernels and line.rstrip().endswith(")"):
            arguments = line.rstrip()[launch.end() : -1]
            launches[launch[1]].append(tuple(_operands(arguments, known, hints)))
    found = [
        TemplateKernel(k.name, k.kind, k.config, k.nodes, tuple(launches[k.name]))
        for k in kernels.values()
    ]
    return externs, tensors, found


def python_hints(text: str) -> dict[str, int]:
    """The value of each symbol, where an input is checked against it and made for a benchmark."""
    made = {m[1]: m[2].split(",") for m in _RAND.finditer(text)}
    hints: dict[str, int] = {}
    for match in _ASSERT.finditer(text):
        for symbol, value in zip(match[2].split(","), made.get(match[1], ()), strict=False):
            symbol, value = symbol.strip(), value.strip()
            if symbol.isidentifier() and value.isascii() and value.isdigit() and len(value) < 20:
                hints[symbol] = int(value)
    return hints


def _benchmark_inputs(text: str, hints: Hints) -> Known:
    known: Known = {}
    for match in _RAND.finditer(text):
        name, sizes, strides, device, dtype = match.groups()
        known[name] = GraphTensor(
            dims(sizes, hints), dims(strides, hints), f"torch.{dtype}", device
        )
    return known


def _learned(line: str, known: Known, hints: Hints) -> tuple[str, GraphTensor] | None:
    """What a line says of a buffer: its making, its check, or that it is another by a new name."""
    if match := _EMPTY.search(line):
        name, device, sizes, strides, dtype = match.groups()
        sized = dims(sizes, hints), dims(strides, hints)
        return name, GraphTensor(*sized, f"torch.{dtype}", device, True)
    if match := _ASSERT.search(line):
        name, sizes, strides = match.groups()
        old = known.get(name)
        dtype, device = (old.dtype, old.device) if old else (None, None)
        return name, GraphTensor(dims(sizes, hints), dims(strides, hints), dtype, device)
    if match := _ALIAS.match(line):
        operand = _operand(match[2], known, hints)
        return None if operand is None else (match[1], operand)
    return None


def _extern_call(line: str, known: Known, hints: Hints) -> Call | None:
    line = line.rstrip()
    match = _EXTERN.search(line) if line.endswith(")") else None
    if match is None:
        return None
    return Call(match[1], tuple(_operands(line[match.end() : -1], known, hints)))


def _operands(arguments: str, known: Known, hints: Hints) -> Iterator[GraphTensor]:
    for argument in split_arguments(arguments):
        if "=" in argument.partition("(")[0]:
            continue
        operand = _operand(argument, known, hints)
        if operand is not None:
            yield operand


def _operand(text: str, known: Known, hints: Hints) -> GraphTensor | None:
    if match := _VIEW.fullmatch(text):
        base = known.get(match[1])
        dtype, device = (base.dtype, base.device) if base else (None, None)
        return GraphTensor(dims(match[2], hints), dims(match[3], hints), dtype, device)
    return known.get(text)


def _templates(text: str) -> Iterator[TemplateKernel]:
    """Each kernel that looks like the template of a GEMM, a convolution or an attention."""
    found = list(_KERNEL.finditer(text))
    starts = [match.start() for match in found]
    last = 0
    for match, end in zip(found, [*starts[1:], len(text)], strict=False):
        before, last = text[last : match.start()], match.start()
        body = text[match.start() : end]
        if "triton_tem" in match[1] or match[2] in _GEMM_ONLY or _MICRO_GEMM.search(body):
            kind = "triton" if match[2] == "triton" else "cpp" if "cpp" in match[2] else match[2]
            yield TemplateKernel(match[1], kind, kernel_config(body, kind), fragment_nodes(before))
