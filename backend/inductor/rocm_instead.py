"""ATen in the place of a kernel of ours that has won and cannot be called after all."""

from __future__ import annotations

from typing import Any

from backend.inductor import torch_graph
from backend.inductor.rocm_buffer import ROCmTemplateBuffer
from backend.inductor.rocm_kernel import tensor_text
from backend.templates.problem import Activation

_FUNCTIONAL: dict[Activation, str] = {
    "none": "{}",
    "relu": "torch.nn.functional.relu({})",
    "gelu": "torch.nn.functional.gelu({})",
    "gelu_tanh": "torch.nn.functional.gelu({}, approximate='tanh')",
    "silu": "torch.nn.functional.silu({})",
}


def write(buffer: ROCmTemplateBuffer, output: Any, activation: Activation | None) -> None:
    """Write into the wrapper what computes `output` without a kernel of ours.

    `activation` is what would have been fused behind the kernel. Only public functions of torch are
    called, so the graph needs none of our code.
    """
    template = buffer.template
    a, b, *bias = (tensor_text(node) for node in buffer.inputs)
    text = f"torch.matmul({a}, {b})"
    if template.alpha != 1:
        text = f"torch.mul({text}, {template.alpha!r})"
    if bias:
        text = f"torch.add({text}, {bias[0]}, alpha={template.beta!r})"
    for each in (template.activation, activation or "none"):
        text = _FUNCTIONAL[each].format(text)
    torch_graph.graph().wrapper_code.writeline(f"{tensor_text(output)}.copy_({text})")
