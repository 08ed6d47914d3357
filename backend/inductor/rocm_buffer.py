"""The node of the graph that stands for a call of our kernel, once its choice has won."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backend.inductor import torch_graph
from backend.inductor.torch_graph import Node
from backend.pins.graphs.text import OwnChoice


class ROCmTemplateBuffer(torch_graph.TemplateBuffer):  # type: ignore[misc]
    """`make_kernel_render(buffer)` gives the kernel and a function that renders its source.

    `workspace_size` is in bytes, an expression where sizes are dynamic. `choice` is what the
    generated code says it calls, so that a pin finds it there.
    """

    def __init__(
        self,
        layout: Any,
        inputs: Sequence[Node],
        make_kernel_render: Callable[..., Any],
        workspace_size: Any,
        template: Any,
        choice: OwnChoice | None = None,
    ) -> None:
        super().__init__(layout, inputs, make_kernel_render)
        self.workspace_size = workspace_size
        self.template = template
        self.choice = choice

    def get_workspace_size(self) -> Any:
        return self.workspace_size
