"""What the text of one compiled graph says: its wrappers, its printed graphs, its calls.

An entry is a pickle, which is never loaded. In it stand, as plain text,
- the generated wrapper, in Python (`def call(...)`) or in C++ (`cpp_wrapper`), with each extern
  kernel call and its operands, the source of each kernel, and what it is called with,
- the graph that was compiled, whose every value has its dtype, sizes, strides and device,
- above a Triton kernel, a comment that names the nodes of that graph which it computes,
- before each call of a kernel of ours, a comment that says which choice it is, for what.
A template's kernel is called with whatever its packing and fusing left of the operands, so the
graph is what tells the inputs of an op, and the wrapper which kernel serves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from backend.model.options import Options, of_text, text_of
from backend.pins.graphs.parts import (
    HEADER,
    Call,
    GraphTensor,
    Hints,
    Known,
    TemplateKernel,
    graph_calls,
    graph_inputs,
    printed_graphs,
)
from backend.pins.graphs.wrappers import (
    CppWrapper,
    PythonWrapper,
    Wrapper,
    is_cpp,
    printed_hints,
    python_hints,
)


@dataclass(frozen=True, slots=True)
class OwnChoice:
    """A call of a kernel of our templates: the choice that won the tuning of (op, inputs), of a
    convolution with these options."""

    op: str
    inputs: str
    hash: str
    options: Options = ()

    def text(self) -> str:
        """What a comment in the wrapper says of it."""
        given = f" with {text_of(self.options)}" if self.options else ""
        return f"rocm-tui choice {self.hash}{given} for {self.op} {self.inputs}"


_OWN_CHOICE = re.compile(
    r"^[ \t]{0,200}(?:#|//) rocm-tui choice (\S{1,400})(?: with (\S{1,400}))? for (\S{1,200}) "
    r"([^\n]{1,65600})$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class GraphText:
    """One entry. `graphs` has the ops of each printed graph; `externs` the calls of the wrapper.

    `is_compiled` is False for an entry without generated code. `tensors` are the inputs and buffers
    that the wrapper names. `tuned` says whether it was compiled with autotuning on; None
    where the entry does not say. `any_size` is the same text with each symbol left open, where
    its symbols were known by the values for which they were tuned. `devices` are the indices of
    the GPUs that it launches kernels on.
    """

    is_compiled: bool
    graphs: tuple[tuple[Call, ...], ...]
    externs: tuple[Call, ...]
    tensors: frozenset[GraphTensor]
    templates: tuple[TemplateKernel, ...]
    tuned: bool | None
    own: frozenset[OwnChoice] = field(default_factory=frozenset)
    any_size: GraphText | None = None
    devices: frozenset[int] = frozenset()


_DEVICE = re.compile(
    r"\b_DeviceGuard\((\d{1,4})\)|Guard device_guard\((\d{1,4})\)"
    r"|\bDeviceProperties\(type='\w{1,20}', index=(\d{1,4}), "
)
_CALL = re.compile(r"^[ \t]{0,200}def call\(", re.MULTILINE)
_TUNED = re.compile(
    r"(?:inductor_config\[|_inductor\.config\.)max_autotune(?:_gemm)?\]?\s{0,20}[:=] True"
)
_SETTINGS = re.compile(
    r"inductor_config\[max_autotune\]|^import torch\._inductor\.config$", re.MULTILINE
)


def read_graph_text(data: bytes) -> GraphText:
    """What `data`, the content of an entry, says. Never raises: unknown text says nothing."""
    text = data.decode("latin-1")  # every byte is a character; all that we match is ASCII
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
    inputs: Known = {}
    for part in parts:
        for name, operand in graph_inputs(part, hints).items():
            inputs.setdefault(name, operand)  # inner graphs, printed later, use the names again
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
            OwnChoice(op, given, choice, of_text(options))
            for source in (*python, *cpp)
            for choice, options, op, given in _OWN_CHOICE.findall(source)
        ),
        any_size=any_size,
        devices=frozenset(
            int(next(filter(None, found)))
            for source in (*python, *cpp)
            for found in _DEVICE.findall(source)
        ),
    )


def _python_wrappers(text: str) -> Iterator[str]:
    """Each generated Python module, from its imports to its end."""
    starts = [m.start() for m in re.finditer(r"AsyncCompile\(\)\n", text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        part = text[start:end]
        if _CALL.search(part):
            graph = HEADER.search(part)
            part = part[: graph.start()] if graph else part
            yield part.partition("compiled_module_main(")[0]


def _cpp_wrappers(text: str) -> Iterator[str]:
    """Each generated C++ module: in an entry it is a text of Python, alone it is a whole file."""
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
    """What makes the arguments in each reproducer."""
    starts = [m.end() for m in re.finditer(r"^def load_args\(reader\):\n", text, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        yield text[start : min(end, start + 200_000)].partition("\nload_args._version")[0]


def _tuned(text: str) -> bool | None:
    # The reproducer names what differs from the default, and the environment that sets a default.
    if "TORCHINDUCTOR_MAX_AUTOTUNE" in text or _TUNED.search(text):
        return True
    return False if _SETTINGS.search(text) else None
