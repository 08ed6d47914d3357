"""How the graph calls our kernels. All else is left to the scheduling that had the device.

Our scheduling is a subclass of the one that had it: Inductor asks for classes in some places, and
meets what it knows.

An activation behind a product, our kernels do in their store. Inductor prints the body of a
pointwise op as one assignment a line; it is read back as an expression of x, the product, and
compared with those of the activations, as Inductor decomposes them. Whatever is not known to the
letter is left to Inductor.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from backend.inductor.guard import failure_text, quietly, say_once
from backend.inductor.hip import cpp_wrapper
from backend.inductor.hip.caller import ROCmTemplateBuffer
from backend.inductor.hip.template import GraphKernel, tensor_text
from backend.inductor.torch import graph as torch_graph
from backend.templates.problem import Activation


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
        buffer = template_node.node
        nodes = [template_node, *epilogue_nodes]
        output = nodes[-1].node
        activation = _epilogue(template_node, epilogue_nodes[0]) if epilogue_nodes else None
        if torch_graph.writes_cpp() and not self._can_be_called(buffer, activation, nodes):
            self._write_apart(template_node, epilogue_nodes)
            return None
        if epilogue_nodes:
            torch_graph.remove_buffer(buffer.get_name())
        for node in nodes:
            node.mark_run()
        try:
            kernel, name = self._defined(buffer, activation, nodes)
            torch_graph.write_origins(self, nodes, name)
            if buffer.choice is not None:
                torch_graph.write_comment(buffer.choice.text())
            kernel.call_kernel(name, buffer, output)
        except Exception as error:  # the outermost boundary: the user's compile must go on
            if torch_graph.writes_cpp():
                raise
            say_once(f"a kernel of ours cannot be called, ATen's is: {failure_text(error)}")
            write_aten(buffer, output, activation)
        self.free_buffers_in_scheduler()  # type: ignore[attr-defined]
        return None

    def _can_be_called(
        self, buffer: ROCmTemplateBuffer, activation: Activation | None, nodes: Sequence[Any]
    ) -> bool:
        """Do all that may fail, before a buffer is allocated: in C++ there is no way back then."""
        try:
            kernel, _ = self._defined(buffer, activation, nodes)
            kernel.arguments(nodes[-1].node)
        except Exception as error:
            say_once(f"a kernel of ours cannot be called, ATen's is: {failure_text(error)}")
            return False
        return True

    def _write_apart(self, template_node: Any, epilogue_nodes: Sequence[Any]) -> None:
        """Have ATen do the product, and Inductor what would have been fused with it."""
        template_node.mark_run()
        cpp_wrapper.write_aten(template_node.node)
        for node in epilogue_nodes:
            self.codegen_node(node)  # type: ignore[attr-defined]
        self.free_buffers_in_scheduler()  # type: ignore[attr-defined]

    def _defined(
        self, buffer: ROCmTemplateBuffer, activation: Activation | None, nodes: Sequence[Any]
    ) -> tuple[GraphKernel, str]:
        """The kernel of `buffer`, and its name in the wrapper."""
        kernel, render = buffer.make_kernel_render(buffer, activation=activation)
        return kernel, self.define_rocm_kernel(kernel, render().source, buffer, nodes)

    def define_rocm_kernel(
        self,
        kernel: GraphKernel,
        source: str,
        buffer: ROCmTemplateBuffer,
        node_schedule: Sequence[Any],
    ) -> str:
        """The name of the kernel in the wrapper, which defines each source once."""
        wrapper = torch_graph.graph().wrapper_code
        target = str(buffer.template.target)
        marked = f"// {target}\n{source}"
        if marked in wrapper.src_to_kernel:
            return str(wrapper.src_to_kernel[marked])
        name = f"{kernel.name}_{wrapper.next_kernel_suffix()}"
        kernel.define(name, source, target, torch_graph.kernel_origins(node_schedule))
        wrapper.src_to_kernel[marked] = name
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


_HALF, _ROOT_HALF, _ROOT_2_PI = "0.5", "0.7071067811865476", "0.7978845608028654"
_CUBIC = f"((x + (((x * x) * x) * 0.044715)) * {_ROOT_2_PI})"
_KNOWN: dict[str, Activation] = {
    "relu(x)": "relu",
    f"((x * {_HALF}) * (erf((x * {_ROOT_HALF})) + 1))": "gelu",
    f"((x * {_HALF}) * (tanh({_CUBIC}) + 1))": "gelu_tanh",
    "(x / (exp((-x)) + 1))": "silu",
}
_ASSIGNMENT = re.compile(r"\s+(tmp\d+) = (.+)")
_RETURN = re.compile(r"\s+return (tmp\d+)")
_LOAD = re.compile(r"ops\.load\((\w+), .+\)")
_CONSTANT = re.compile(r"ops\.constant\(([\d.e-]+), torch\.\w+\)")
_CAST = re.compile(r"ops\.to_dtype\((tmp\d+), torch\.(\w+), .+\)")
_CALL = re.compile(r"ops\.(\w+)\((tmp\d+)\)")
_NEGATED = re.compile(r"-(tmp\d+)")
_INFIX = re.compile(r"(tmp\d+) ([-+*/]) (tmp\d+)")


def activation_of(body: str, buffer: str) -> Activation | None:
    """The activation that `body` applies to `buffer`, element by element; None if it is another.

    The caller has to know that what is loaded lies where the result is stored.
    """
    values: dict[str, str] = {}
    wide = True
    for line in body.splitlines():
        if match := _RETURN.fullmatch(line):
            return _KNOWN.get(values.get(match[1], ""))
        if match := _ASSIGNMENT.fullmatch(line):
            name, text = match.groups()
            # Rounding to a narrow dtype comes last; in between it would change the numbers.
            value = _expression(text, values, buffer) if wide else None
            if value is None:
                return None
            values[name] = value
            wide = not ((cast := _CAST.fullmatch(text)) and cast[2] != "float32")
    return None


def _expression(text: str, values: dict[str, str], buffer: str) -> str | None:
    if match := _LOAD.fullmatch(text):
        return "x" if match[1] == buffer else None
    if match := _CONSTANT.fullmatch(text):
        return match[1]
    if match := _CAST.fullmatch(text):
        return values.get(match[1])
    if match := _CALL.fullmatch(text):
        return f"{match[1]}({values.get(match[2])})"
    if match := _NEGATED.fullmatch(text):
        return f"(-{values.get(match[1])})"
    if match := _INFIX.fullmatch(text):
        return f"({values.get(match[1])} {match[2]} {values.get(match[3])})"
    return None


_FUNCTIONAL: dict[Activation, str] = {
    "none": "{}",
    "relu": "torch.nn.functional.relu({})",
    "gelu": "torch.nn.functional.gelu({})",
    "gelu_tanh": "torch.nn.functional.gelu({}, approximate='tanh')",
    "silu": "torch.nn.functional.silu({})",
}


def write_aten(buffer: ROCmTemplateBuffer, output: Any, activation: Activation | None) -> None:
    """Write into the wrapper what computes `output` without a kernel of ours, which has won and
    cannot be called after all.

    `activation` is what would have been fused behind the kernel.
    """
    template = buffer.template
    text = template.aten_text([tensor_text(node) for node in buffer.inputs])
    for function in (template.activation, activation or "none"):
        text = _FUNCTIONAL[function].format(text)
    torch_graph.graph().wrapper_code.writeline(f"{tensor_text(output)}.copy_({text})")
