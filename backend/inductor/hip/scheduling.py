"""How the graph calls our kernels. Everything else is left to the device's previous scheduling.

Our scheduling is a subclass of the previous one, since Inductor checks for classes in some places.

Our kernels compute pointwise nodes behind a product in their store: see `fusion.py`. Nodes that
they cannot compute are refused before fusion, and left to Inductor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from backend.errors import ExpressionError, TemplateError
from backend.inductor.child_python import importing
from backend.inductor.guard import failure_text, quietly, say_once
from backend.inductor.hip.caller import ROCmTemplateBuffer
from backend.inductor.hip.fusion import ComputedFactor, Fused, compute
from backend.inductor.hip.operands import write_aten
from backend.inductor.hip.template import GraphKernel
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch import pointwise

_PROFILED = ("ProfiledKernel", "rocm_tui_profiled")


class ROCmCPPScheduling:
    """Our part, mixed into a scheduling class of Inductor's."""

    @staticmethod
    def is_rocm_cpp_template(node: Any) -> bool:
        return isinstance(getattr(node, "node", None), ROCmTemplateBuffer)

    def _concerns(self, *nodes: Any) -> bool:
        return any(self.is_rocm_cpp_template(part) for node in nodes for part in node.get_nodes())

    def can_fuse_vertical(self, node1: Any, node2: Any) -> bool:
        return self._can_fuse(super().can_fuse_vertical, _fuses, node1, node2)  # type: ignore[misc]

    def can_fuse_horizontal(self, node1: Any, node2: Any) -> bool:
        stock = super().can_fuse_horizontal  # type: ignore[misc]
        return self._can_fuse(stock, lambda *nodes: False, node1, node2)

    def fuse(self, node1: Any, node2: Any) -> Any:
        concerned = False
        with quietly("nothing is fused with our kernels"):
            concerned = self._concerns(node1, node2)
        if concerned:
            return torch_graph.fuse_nodes(node1, node2)
        return super().fuse(node1, node2)  # type: ignore[misc]

    def _can_fuse(
        self, stock: Callable[..., Any], ours: Callable[..., bool], node1: Any, node2: Any
    ) -> bool:
        """Call `ours` if one of the two nodes is ours; refusing to fuse is always correct."""
        concerned = False
        with quietly("nothing is fused with our kernels"):
            concerned = self._concerns(node1, node2)
            if concerned:
                return ours(node1, node2)
        return not concerned and bool(stock(node1, node2))

    def codegen_template(
        self, template_node: Any, epilogue_nodes: Sequence[Any], prologue_nodes: Sequence[Any]
    ) -> Any:
        if not self.is_rocm_cpp_template(template_node):
            return super().codegen_template(  # type: ignore[misc]
                template_node, epilogue_nodes, prologue_nodes
            )
        nodes = [*prologue_nodes, template_node, *epilogue_nodes]
        if torch_graph.writes_cpp() and not self._can_be_called(nodes):
            self._call_aten(nodes)
            return None
        try:
            self._call(nodes)
        except Exception as error:  # the outermost boundary: the user's compile must go on
            if torch_graph.writes_cpp():
                raise
            say_once(f"a kernel of ours cannot be called, ATen's is: {failure_text(error)}")
            self._call_aten(nodes)
        else:
            self.free_buffers_in_scheduler()  # type: ignore[attr-defined]
        return None

    def _call(self, nodes: Sequence[Any]) -> None:
        """Define the kernel of a template's node and call it, including its fused nodes."""
        group = FusedGroup.of(nodes)
        buffer = group.buffer
        kernel, source, removed = _rendered(group)
        torch_graph.remove_buffers(removed)
        for node in nodes:
            node.mark_run()
        name = self.define_rocm_kernel(kernel, source, buffer, nodes)
        torch_graph.write_origins(self, nodes, name)
        if buffer.choice is not None:
            torch_graph.write_comment(buffer.choice.text())
        kernel.call_kernel(_profiled(name, kernel, buffer), buffer)

    def _can_be_called(self, nodes: Sequence[Any]) -> bool:
        """Do what may fail before a buffer is allocated: in C++ there is no way back then."""
        try:
            group = FusedGroup.of(nodes)
            kernel, source, _ = _rendered(group)
            self.define_rocm_kernel(kernel, source, group.buffer, nodes)
            kernel.arguments()
        except Exception as error:
            say_once(f"a kernel of ours cannot be called, ATen's is: {failure_text(error)}")
            return False
        return True

    def _call_aten(self, nodes: Sequence[Any]) -> None:
        """Generate the product with ATen, and with Inductor the nodes that were to be fused."""
        group = FusedGroup.of(nodes)
        torch_graph.keep_buffers(name for node in nodes for name in node.get_buffer_names())
        with torch_graph.freeing_later():
            for node in group.before:
                self.codegen_node(node)  # type: ignore[attr-defined]
            self.flush()  # type: ignore[attr-defined]  # ATen's inputs must be written first
        group.template.mark_run()
        write_aten(group.buffer)
        with torch_graph.freeing_later():
            for node in group.behind:
                self.codegen_node(node)  # type: ignore[attr-defined]
            self.flush()  # type: ignore[attr-defined]
        self.free_buffers_in_scheduler()  # type: ignore[attr-defined]

    def define_rocm_kernel(
        self,
        kernel: GraphKernel,
        source: str,
        buffer: ROCmTemplateBuffer,
        node_schedule: Sequence[Any],
    ) -> str:
        """Return the name of the kernel in the wrapper, which defines each source once."""
        wrapper = torch_graph.graph().wrapper_code
        target = str(buffer.template.target)
        marked = f"// {target}\n{source}"
        if marked in wrapper.src_to_kernel:
            return str(wrapper.src_to_kernel[marked])
        name = f"{kernel.name}_{wrapper.next_kernel_suffix()}"
        kernel.define(name, source, target, torch_graph.kernel_origins(node_schedule))
        wrapper.src_to_kernel[marked] = name
        return name


@dataclass(frozen=True, slots=True)
class FusedGroup:
    """A template's node and the nodes computed in its kernel, before and behind the product."""

    before: tuple[Any, ...]
    template: Any
    behind: tuple[Any, ...]

    @staticmethod
    def of(nodes: Sequence[Any]) -> FusedGroup:
        """Build the group. Raises ExpressionError if not exactly one node is a template of ours."""
        templates = [at for at, node in enumerate(nodes) if node.is_template()]
        if len(templates) != 1 or not ROCmCPPScheduling.is_rocm_cpp_template(nodes[templates[0]]):
            raise ExpressionError("one kernel of ours at a time")
        (at,) = templates
        return FusedGroup(tuple(nodes[:at]), nodes[at], tuple(nodes[at + 1 :]))

    @property
    def buffer(self) -> ROCmTemplateBuffer:
        buffer: ROCmTemplateBuffer = self.template.node
        return buffer

    def computed(self) -> dict[str, ComputedFactor]:
        """Return the factors computed by the nodes before the product. Raises TemplateError."""
        factors = self.buffer.template.named_nodes(self.buffer)
        factors_by_side: dict[str, ComputedFactor] = {}
        for node in self.before:
            (name,) = node.get_buffer_names()
            sides = [side for side, factor in factors.items() if factor.get_name() == name]
            if len(sides) != 1 or sides[0] not in ("a", "b"):
                raise ExpressionError(f"{name} is not a factor")
            factors_by_side[sides[0]] = compute(node, factors[sides[0]], sides[0])
        return factors_by_side

    def fused(self) -> Fused | None:
        """Return the fused nodes behind the product, or None. Raises TemplateError."""
        if not self.behind:
            return None
        nodes = [self.template, *self.behind]
        names = [name for node in nodes for name in node.get_buffer_names()]
        removable = pointwise.removable(names, nodes)
        fused: Fused = self.buffer.template.fuse(self.buffer, self.behind, removable)
        return fused


def _profiled(name: str, kernel: GraphKernel, buffer: ROCmTemplateBuffer) -> str:
    """Return the name to call for the kernel `name`: its own, or of an object that also times it if
    Inductor does so."""
    if not torch_graph.profiles(name):
        return name
    wrapper = torch_graph.graph().wrapper_code
    alias = f"{name}_profiled_{wrapper.next_kernel_suffix()}"
    gigabytes = kernel.estimate_kernel_num_bytes() / 1e9
    gpu = buffer.get_device().type != "cpu"
    wrapper.add_import_once(importing("backend.inductor.torch.benchmarks", *_PROFILED))
    text = f"{_PROFILED[1]}({name}, {name=}, {gigabytes=}, {gpu=}, {alias=})"
    wrapper.define_kernel(alias, text, gpu=False)
    return alias


def _fuses(node1: Any, node2: Any) -> bool:
    """Return whether the two can be one kernel of ours, each with its already fused nodes."""
    try:
        group = FusedGroup.of([*node1.get_nodes(), *node2.get_nodes()])
        if group.before:
            _rendered(group)
        else:
            group.fused()
    except TemplateError:
        return False
    return True


def _rendered(group: FusedGroup) -> tuple[GraphKernel, str, frozenset[str]]:
    """Return the kernel of a group, its source, and the buffers that need no memory. Raises
    TemplateError if the nodes do not fit."""
    fused, computed = group.fused(), group.computed()
    removed = {name for node in group.before for name in node.get_buffer_names()}
    if fused is not None:
        removed |= fused.removed
    kernel, render = group.buffer.make_kernel_render(
        group.buffer, fused=fused, **({"computed": computed} if computed else {})
    )
    return kernel, render().source, frozenset(removed)


@functools.cache
def with_templates(stock: type) -> type:
    """Return a subclass of Inductor's scheduling class `stock` that also handles our kernels."""
    if issubclass(stock, ROCmCPPScheduling):
        return stock
    return type(f"ROCmTui{stock.__name__}", (ROCmCPPScheduling, stock), {})
