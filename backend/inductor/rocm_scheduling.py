"""How the graph calls our kernels. All else is left to the scheduling that had the device.

Our scheduling is a subclass of the one that had it: Inductor asks for classes in some places, and
meets what it knows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from backend.inductor import rocm_instead, torch_graph
from backend.inductor.guard import quietly, told
from backend.inductor.rocm_buffer import ROCmTemplateBuffer
from backend.inductor.rocm_epilogue import activation_of
from backend.inductor.rocm_kernel import ROCmTemplateKernel
from backend.inductor.rocm_triton import TritonKernel
from backend.inductor.saying import say_once
from backend.templates.problem import Activation
from backend.templates.rendering import Rendered
from backend.templates.triton.choice import TritonChoice


class ROCmCPPScheduling:
    """The part that is ours, to be mixed into a scheduling class of Inductor's."""

    @staticmethod
    def is_rocm_cpp_template(node: Any) -> bool:
        return isinstance(getattr(node, "node", None), ROCmTemplateBuffer)

    def _concerns(self, *nodes: Any) -> bool:
        return any(self.is_rocm_cpp_template(part) for node in nodes for part in node.get_nodes())

    def can_fuse_vertical(self, node1: Any, node2: Any) -> bool:
        return self._can_fuse(super().can_fuse_vertical, _fuses, node1, node2)  # type: ignore[misc]

    def can_fuse_horizontal(self, node1: Any, node2: Any) -> bool:
        return self._can_fuse(super().can_fuse_horizontal, _never, node1, node2)  # type: ignore[misc]

    def _can_fuse(
        self, stock: Callable[..., Any], ours: Callable[..., bool], node1: Any, node2: Any
    ) -> bool:
        """`ours` if one of the two is ours; not to fuse is always right."""
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
        assert not prologue_nodes and len(epilogue_nodes) <= 1, "one activation is all we fuse"
        buffer = output = template_node.node
        activation: Activation | None = None
        if epilogue_nodes:
            activation = _epilogue(template_node, epilogue_nodes[0])
            output = epilogue_nodes[0].node
            torch_graph.remove_buffer(buffer.get_name())
        nodes = [template_node, *epilogue_nodes]
        for node in nodes:
            node.mark_run()
        try:
            self._call(buffer, output, activation, nodes)
        except Exception as error:  # the outermost boundary: the user's compile must go on
            say_once(f"a kernel of ours cannot be called, ATen's is: {told(error)}")
            rocm_instead.write(buffer, output, activation)
        self.free_buffers_in_scheduler()  # type: ignore[attr-defined]
        return None

    def _call(
        self,
        buffer: ROCmTemplateBuffer,
        output: Any,
        activation: Activation | None,
        nodes: Sequence[Any],
    ) -> None:
        """Define the kernel of `buffer`, and call it into `output`."""
        kernel, render = buffer.make_kernel_render(buffer, activation=activation)
        rendered = render()
        name = self.define_rocm_kernel(kernel, rendered, buffer, nodes)
        torch_graph.write_origins(self, nodes, name)
        if buffer.choice is not None:
            torch_graph.graph().wrapper_code.writeline(buffer.choice.comment())
        kernel.call_kernel(name, buffer, output)

    def define_rocm_kernel(
        self,
        kernel: ROCmTemplateKernel | TritonKernel,
        rendered: Rendered | TritonChoice,
        buffer: ROCmTemplateBuffer,
        node_schedule: Sequence[Any],
    ) -> str:
        """The name of the kernel in the wrapper, which defines each source once."""
        wrapper = torch_graph.graph().wrapper_code
        target = str(buffer.template.target)
        source = f"// {target}\n{rendered.source}"
        if source in wrapper.src_to_kernel:
            return str(wrapper.src_to_kernel[source])
        name = f"{kernel.name}_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[source] = name
        wrapper.add_import_once(kernel.imports)
        wrapper.define_kernel(
            name,
            kernel.definition(name, rendered.source, target),
            torch_graph.kernel_origins(node_schedule),
        )
        return name


def _fuses(template_node: Any, node: Any) -> bool:
    return (
        ROCmCPPScheduling.is_rocm_cpp_template(template_node)
        and _epilogue(template_node, node) is not None
    )


def _never(node1: Any, node2: Any) -> bool:
    return False


def _epilogue(template_node: Any, node: Any) -> Activation | None:
    """The activation that `node` is, if it is all that becomes of our kernel's output."""
    buffer = template_node.node
    users = [user.node for output in template_node.outputs for user in output.users]
    if users != [node] or not buffer.template.fuses(buffer, node.node):
        return None
    body = torch_graph.pointwise_body(node)
    return None if body is None else activation_of(body, buffer.get_name())


@functools.cache
def with_templates(stock: type) -> type:
    """A subclass of `stock`, a scheduling class of Inductor's, that knows our kernels too."""
    if issubclass(stock, ROCmCPPScheduling):
        return stock
    return type(f"ROCmTui{stock.__name__}", (ROCmCPPScheduling, stock), {})
