"""A kernel of ours in the graph being compiled: its tensors as operands, and the wrapper's call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from backend.inductor.alone import importing
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch.graph import Node
from backend.templates.kernel import CallArg, TemplateKernel
from backend.templates.problem import VECTOR_BYTES, ArgInfo, DType, Operand

DTYPES: dict[torch.dtype, DType] = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
}

_LOADER = "rocm_tui_load_kernel"


def operand_of(name: str, node: Node) -> Operand:
    """A tensor of the graph as an operand. Raises KeyError for a dtype that no template has."""
    layout = node.get_layout()
    dtype = DTYPES[node.get_dtype()]
    return Operand(
        name=name,
        dtype=dtype,
        sizes=tuple(_plain(size) for size in node.get_size()),
        strides=tuple(_plain(stride) for stride in node.get_stride()),
        offset=_plain(layout.offset),
        base_bytes=VECTOR_BYTES if _aligned(node) else node.get_dtype().itemsize,
    )


def _plain(expr: Any) -> Any:
    return int(expr) if getattr(expr, "is_Integer", False) else expr


def _aligned(node: Node) -> bool:
    """Whether the storage begins at a multiple of the widest access. What a choice writes does."""
    return not torch_graph.is_registered(node) or torch_graph.is_ours_to_align(node)


class GraphKernel(Protocol):
    """What the scheduling has to know of a kernel. `imports` is what the code of a graph needs
    before `definition`."""

    name: str
    imports: str

    def definition(self, alias: str, source: str, target: str) -> str:
        """The Python expression of the loaded kernel, which the graph calls `alias`."""

    def call_kernel(self, name: str, node: Any, output: Any) -> None:
        """Write the call of the kernel `name` into the wrapper, its workspace around it.

        `node` is the ROCmTemplateBuffer, `output` the buffer to be written: its own, or that of
        the activation behind it.
        """


class ROCmTemplateKernel(TemplateKernel):
    """Knows which node each operand is. `nodes` has the inputs by the names of their operands."""

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
        """Sizes and runtime arguments for a benchmark: guesses where they are dynamic."""
        return [
            torch_graph.size_hint(arg.value)
            for arg in self.call_args()
            if arg.kind in ("size", "runtime")
        ]

    def definition(self, alias: str, source: str, target: str) -> str:
        assert "'''" not in source and not source.endswith("'")
        return (
            f"{_LOADER}(r'''{source}''', entry={self.name!r}, target={target!r}, "
            f"pointers={self.pointers}, integers={self.integers}, alias={alias!r})"
        )

    def call_kernel(self, name: str, node: Any, output: Any) -> None:
        """Arguments are addresses and numbers; the stream is added by the wrapper on a GPU."""
        wrapper = torch_graph.graph().wrapper_code
        device = node.get_device()
        arguments = [self._argument(arg, output) for arg in self.call_args()]
        arguments.append("None")
        with torch_graph.workspace(node.get_workspace_size(), device) as memory:
            arguments.append("None" if memory is None else f"{memory.outer_name}.data_ptr()")
            if device.type == "cpu":
                arguments.append("None")
            wrapper.generate_kernel_call(name, arguments, device=device, triton=False)

    def _argument(self, arg: CallArg, buffer: Any) -> str:
        if arg.kind == "output":
            return address(buffer)
        if arg.kind == "input":
            return address(self.named_nodes[arg.name])
        return torch_graph.size_text(arg.value)


def address(node: Node) -> str:
    """Python of the address of a tensor's first element; a view begins within its buffer."""
    base = f"{torch_graph.real_name(node.get_name())}.data_ptr()"
    offset = node.get_layout().offset if torch_graph.is_view(node) else 0
    if offset == 0:
        return base
    return f"{base} + {node.get_dtype().itemsize} * ({torch_graph.size_text(offset)})"


def tensor_text(node: Node) -> str:
    """Python of a tensor; a view is one of its buffer."""
    text, name = str(node.codegen_reference()), node.get_name()
    return text.replace(name, torch_graph.real_name(name), 1)
