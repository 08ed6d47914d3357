"""Private names of torch that our kernels use: nodes of the graph being compiled, the wrapper's
code, scheduling.

Checked with torch 2.13.0 (`torch/_inductor/ir.py`, `graph.py`, `codegen/common.py`). Importing this
module imports torch._inductor.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch._inductor import config, ir
from torch._inductor import dependencies as _dependencies
from torch._inductor import scheduler as _scheduler
from torch._inductor.codegen import common as _common
from torch._inductor.utils import get_kernel_metadata
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._ordered_set import OrderedSet

KernelTemplate: Any = _common.KernelTemplate
TemplateBuffer: Any = ir.TemplateBuffer
StockChoiceCaller: Any = ir.ChoiceCaller
Node = Any
"""torch._inductor.ir.IRNode: a tensor of the graph being compiled."""


def graph() -> Any:
    """Return torch._inductor.graph.GraphLowering: the graph being compiled."""
    return V.graph


def constant_bytes(graph: Any) -> int:
    """Return the bytes of the tensors frozen into a graph. A packed one, whose size is hidden,
    counts with its unpacked size."""
    constants = getattr(graph, "constants", {}).values()
    return sum(int(constant.numel() * constant.element_size()) for constant in constants)


def writes_cpp() -> bool:
    """Return whether the wrapper is C++, as with `cpp_wrapper` and in AOTInductor."""
    return bool(V.graph.cpp_wrapper)


_CPP_WRAPPERS = ("2.13",)
"""The versions of torch whose C++ wrapper can call our kernels."""


def knows_cpp_wrapper() -> bool:
    """Return whether this torch's C++ wrapper can call our kernels."""
    return ".".join(torch.__version__.split(".")[:2]) in _CPP_WRAPPERS


def why_no_calls() -> str:
    """Return why the wrapper of this graph cannot call our kernels, or an empty string."""
    if getattr(config, "fx_wrapper", False):
        return "a wrapper that is an FX graph"
    if not writes_cpp():
        return ""
    if not knows_cpp_wrapper():
        return f"a C++ wrapper of torch {torch.__version__}"
    if config.aot_inductor.allow_stack_allocation:
        return "a C++ wrapper with tensors on the stack"
    return "graphs of constants" if V.graph.is_const_graph else ""


@contextlib.contextmanager
def cpp_stream(device: torch.device) -> Iterator[str]:
    """A context that yields C++ of a device's stream, for a line of a C++ wrapper written in it."""
    wrapper = V.graph.wrapper_code
    if device.type == "cpu":
        yield "nullptr"
    elif V.graph.aot_mode:
        yield "stream"
    else:
        wrapper.writeline("{")
        wrapper.writeline("void* rocm_tui_stream;")
        call = f"aoti_torch_get_current_cuda_stream({device.index}, &rocm_tui_stream)"
        wrapper.writeline(f"AOTI_TORCH_ERROR_CODE_CHECK({call});")
        yield "rocm_tui_stream"
        wrapper.writeline("}")


def is_view(node: Node) -> bool:
    """Return whether a realized tensor has another layout than its buffer."""
    return isinstance(_unboxed(node), ir.ReinterpretView)


def _unboxed(node: Node) -> Any:
    while isinstance(node, ir.MutableBox):
        node = node.data
    return node


def is_ours_to_align(node: Node) -> bool:
    """Return whether the graph allocates a tensor's memory, or copies it if misaligned."""
    name = node.get_name()
    if name in V.graph.unaligned_buffers:
        return False
    if name in V.graph.graph_inputs or name in V.graph.constants or _is_constant(node):
        return bool(node.get_device().type != "cpu")
    return not isinstance(V.graph.get_buffer(name).layout, ir.NonOwningLayout)


def is_registered(node: Node) -> bool:
    """Return whether a tensor is part of the graph, not a placeholder for a later one."""
    name = node.get_name()
    registries = (V.graph.graph_inputs, V.graph.constants, V.graph.name_to_buffer)
    return any(name in names for names in registries) or _is_constant(node)


def _is_constant(node: Node) -> bool:
    """Return whether a tensor is a constant of the graph, or a placeholder for one."""
    data = _unboxed(node)
    base = _unboxed(data.data) if isinstance(data, ir.ReinterpretView) else data
    return isinstance(base, ir.ConstantBuffer)


def unpacked(node: Node) -> Node:
    """Return a placeholder for the constant that `add_unpacked` creates from a weight (N, K)."""
    layout = ir.FixedLayout(node.get_device(), node.get_dtype(), [*node.get_size()])
    return ir.StorageBox(ir.ConstantBuffer(name=f"{node.get_name()}_unpacked", layout=layout))


def add_unpacked(node: Node) -> Node:
    """Add a weight that is packed for oneDNN, in plain rows, as a new constant of the graph."""
    weight = V.graph.constants[node.get_name()]
    plain = weight.to_dense() if weight.is_mkldnn else weight.contiguous()
    return V.graph.add_tensor_constant(plain, f"{node.get_name()}_unpacked")


def template_buffer(output: Node) -> Any:
    """Return the kernel's node in the box that a choice returned."""
    return _unboxed(output)


def size_hint(expr: Any) -> int:
    """Return a number for a size; a guess if it is dynamic."""
    sizes = V.graph.sizevars
    hint = getattr(sizes, "optimization_hint", None) or sizes.size_hint  # up to torch 2.10
    return int(hint(expr))


def num_bytes(nodes: Iterable[Node]) -> int:
    """Return the bytes of these tensors, without repetitions by a stride of 0; a guess if sizes are
    dynamic."""
    total = 0
    for node in nodes:
        dims = zip(node.get_size(), node.get_stride(), strict=True)
        elements = math.prod(size for size, stride in dims if stride != 0)
        total += size_hint(elements) * node.get_dtype().itemsize
    return total


def is_within(size: Any, most: int) -> bool:
    """Return whether a size is at most `most`, and can be kept so: a dynamic one by a guard, except
    one that is only known when the program runs."""
    if isinstance(size, int) or size.is_Integer:
        return bool(size <= most)
    if V.graph.sizevars.statically_known_leq(size, most):
        return True
    return not free_unbacked_symbols(size) and size_hint(size) <= most


def keep_within(sizes: Iterable[tuple[Any, int]]) -> None:
    """Guard each size by its maximum: if it grows further, the graph is compiled again. Raises
    ValueError for one that cannot be guarded."""
    for size, most in sizes:
        if not is_within(size, most):
            raise ValueError(f"{size} may be more than {most}")
        if not isinstance(size, int) and not size.is_Integer:
            V.graph.sizevars.check_leq(size, most)


def transposed(node: Node) -> Node:
    """Return a matrix with its dimensions exchanged, in the same memory."""
    data = _unboxed(node)
    old = node.get_layout()
    layout = ir.FixedLayout(
        old.device, old.dtype, [*old.size][::-1], [*old.stride][::-1], old.offset
    )
    base = data.data if isinstance(data, ir.ReinterpretView) else ir.StorageBox(data)
    return ir.ReinterpretView(data=base, layout=layout)


def tensor_box(buffer: Any) -> Any:
    return ir.TensorBox.create(buffer)


def fixed_layout(layout: Any) -> Any:
    """Return a layout that no longer changes."""
    return layout.as_fixed() if isinstance(layout, ir.FlexibleLayout) else layout


def output_buffer(name: str, layout: Any) -> Node:
    """Return a placeholder for the output of a choice."""
    return ir.Buffer(name=name, layout=layout)


def real_name(name: str) -> str:
    """Return the buffer that holds a value at this point of the generated code."""
    renamed = V.graph.scheduler.mutation_real_name if V.graph.scheduler else {}
    return str(renamed.get(name, name))


def size_text(expr: Any) -> str:
    """Return a size for the generated code, in Python or C++ as the wrapper."""
    wrapper = V.graph.wrapper_code
    write = wrapper.codegen_cpp_sizevar if writes_cpp() else wrapper.codegen_python_sizevar
    return str(write(expr))


@contextlib.contextmanager
def workspace(bytes_needed: Any, device: torch.device) -> Iterator[Any]:
    """A context with memory for the call written in it, allocated like the graph's buffers; its
    content is undefined. None if no byte is needed."""
    if bytes_needed == 0:
        yield None
        return
    memory = _common.WorkspaceArg(
        count=bytes_needed,
        zero_mode=_common.WorkspaceZeroMode.UNINITIALIZED,
        device=device,
        outer_name=_common.WorkspaceArg.unique_name(),
    )
    wrapper = V.graph.wrapper_code
    wrapper.generate_workspace_allocation(memory)
    yield memory
    wrapper.generate_workspace_deallocation(memory)


def prologue_inputs(names: Sequence[str]) -> Any:
    """Return the set of a template's inputs before which fusion is possible, in Inductor's type.

    Inductor then lets the templates decide whether fusion pays, as when a program requests it.
    """
    forced = getattr(V.graph, "invoke_quant_ops", None)
    for name in names:
        buffer = V.graph.name_to_buffer.get(name)
        if forced is not None and isinstance(buffer, ir.ComputedBuffer):
            forced.add(buffer.get_operation_name())
    return OrderedSet(names)


def in_memory_order(accesses: Any) -> Any:
    """Return the reads and writes of a template, each tensor from its first element to its last,
    like those of the node that computes it, since Inductor compares the two."""
    reads = OrderedSet(
        dep.normalize_with_stride_order("c") if isinstance(dep, _dependencies.MemoryDep) else dep
        for dep in accesses.reads
    )
    return dataclasses.replace(accesses, reads=reads)


def fuse_nodes(node1: Any, node2: Any) -> Any:
    """Return two nodes as one, neither of them changed."""
    return _scheduler.FusedSchedulerNode.fuse(node1, node2)


@contextlib.contextmanager
def freeing_later() -> Iterator[None]:
    """A context in which the last reads of the node being written stay allocated."""
    scheduler = V.graph.scheduler
    held = scheduler.buffer_names_to_free
    scheduler.buffer_names_to_free = OrderedSet()
    try:
        yield
    finally:
        scheduler.buffer_names_to_free.update(held)


def remove_buffers(names: Iterable[str]) -> None:
    """Do not allocate buffers that are no longer read."""
    V.graph.removed_buffers.update(names)


def keep_buffers(names: Iterable[str]) -> None:
    """Allocate removed buffers after all."""
    for name in names:
        V.graph.removed_buffers.discard(name)


def profiles(kernel: str) -> bool:
    """Return whether TORCHINDUCTOR_PROFILE times the calls of a kernel of this graph."""
    if not config.profile_bandwidth or writes_cpp():
        return False
    return re.match(config.profile_bandwidth_regex, kernel) is not None


def write_comment(text: str) -> None:
    """Write a line of the wrapper as a comment in its language."""
    wrapper = V.graph.wrapper_code
    wrapper.writeline(f"{wrapper.comment} {text}")


def kernel_origins(node_schedule: Sequence[Any]) -> str:
    """Return comments with the ops of the model that a kernel computes."""
    return "\n".join(get_kernel_metadata(node_schedule, V.graph.wrapper_code))


def write_origins(scheduling: Any, nodes: Sequence[Any], kernel: str) -> None:
    """Make a scheduling write in the wrapper which ops a call computes. On a CPU this works from
    torch 2.10; earlier versions lack the kernel's name."""
    write = getattr(scheduling, "codegen_comment", None)
    if write is None:
        return
    if "kernel_name" in inspect.signature(write).parameters:
        write(nodes, kernel)
    else:
        write(nodes)


def plain_tensors() -> Any:
    """Return a context in which operations on real tensors run as in a program that compiles
    nothing. While Inductor lowers a graph, they go through Python decompositions, some of which
    recurse forever."""
    return torch._C._DisablePythonDispatcher()


def wrap_scheduling(device: str, wrap: Callable[[type], type]) -> None:
    """Replace the scheduling class of a device type by `wrap(stock)`."""
    _common.init_backend_registration()
    registered = _common.device_codegens[device]
    stock = registered.scheduling
    wrap(type(stock(None)))  # fails early, before anything of ours is offered

    def scheduling(scheduler: Any) -> Any:
        return wrap(type(stock(None)))(scheduler)

    _common.device_codegens[device] = dataclasses.replace(registered, scheduling=scheduling)
