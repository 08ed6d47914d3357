"""Our Triton GEMM as Inductor's choice, and its call in the code of a graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backend.inductor import torch_graph
from backend.inductor.rocm_buffer import ROCmTemplateBuffer
from backend.inductor.rocm_caller import ROCmTemplateCaller
from backend.inductor.rocm_check import GemmReference
from backend.inductor.rocm_kernel import importing, tensor_text
from backend.inductor.rocm_template import ProductTemplate
from backend.inductor.rocm_triton_benchmark import TritonBenchmarkRequest, TritonSpec
from backend.inductor.rocm_triton_target import TritonTarget
from backend.inductor.torch_graph import Node
from backend.templates.problem import Activation
from backend.templates.triton.choice import TritonChoice, TritonGemmConfig
from backend.templates.triton.gemm import from_gemm, generate

_LOADER = "rocm_tui_load_triton"


class TritonGemmCaller(ROCmTemplateCaller):
    """A choice whose `bmreq` holds the module that was generated for it."""

    def info_dict(self) -> dict[str, Any]:
        """What Inductor writes into its log of matrix products, under its own keys."""
        return {"name": self.name, **self.bmreq.choice.info}

    def __str__(self) -> str:
        return f"TritonGemmCaller({self.name}, {self.description})"


class TritonGemmTemplate(ProductTemplate):
    """Configs are `TritonGemmConfig`. `launch` takes a, b and bias in the template's order, so
    there is no `input_reorder`."""

    target: TritonTarget

    def __init__(
        self,
        input_nodes: Sequence[Node],
        layout: Any,
        input_reorder: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__("triton", input_nodes, layout, **options)

    def generate(self, *, name: str, config: TritonGemmConfig) -> TritonGemmCaller:
        """The choice `name`. Raises TemplateError where the config does not fit."""
        _, render = self.make_kernel_render(None, config=config)
        choice = render()
        return TritonGemmCaller(
            name,
            self.name,
            self.input_nodes,
            self.layout,
            functools.partial(self.make_kernel_render, config=config),
            TritonBenchmarkRequest(
                TritonSpec(choice.source, choice.hash, str(self.target)),
                choice,
                torch_graph.tensor_metas(self.input_nodes),
                torch_graph.tensor_metas([self.output_node])[0],
                [torch_graph.size_hint(size) for size in choice.sizes],
                torch_graph.size_hint(choice.workspace_bytes),
                self.reference(),
            ),
            self,
            dict(choice.meta),
            choice.workspace_bytes,
        )

    def make_kernel_render(
        self,
        buffer: ROCmTemplateBuffer | None,
        *,
        config: TritonGemmConfig,
        activation: Activation | None = None,
    ) -> tuple[TritonKernel, Callable[[], TritonChoice]]:
        """The kernel's call, and what gives its module."""
        nodes = self.named_nodes(buffer)
        problem = from_gemm(self.problem(nodes, activation))
        choice = generate(problem, config, self.target.arch)
        return TritonKernel(choice, nodes), lambda: choice

    def reference(self) -> GemmReference:
        return GemmReference(self.alpha, self.beta, self.activation)


class TritonKernel:
    """Knows which node each operand is. `nodes` has the inputs by the names of their operands."""

    imports = importing("rocm_triton_runtime", "load_triton", _LOADER)

    def __init__(self, choice: TritonChoice, nodes: Mapping[str, Node]) -> None:
        self.choice = choice
        self.name = choice.name
        self._nodes = dict(nodes)

    def definition(self, alias: str, source: str, target: str) -> str:
        """The Python expression of the loaded kernel; `alias` is what HIP's are called by."""
        assert "'''" not in source
        return f"{_LOADER}(r'''{source}''', name={self.choice.hash!r}, target={target!r})"

    def call_kernel(self, name: str, node: Any, output: Any) -> None:
        """Write the call of the kernel `name` into the wrapper, its workspace around it.

        `node` is the ROCmTemplateBuffer, `output` the buffer to be written. Triton finds the device
        and the stream itself: the wrapper has made them current.
        """
        wrapper = torch_graph.graph().wrapper_code
        inputs = [self._nodes[operand] for operand in (*self.choice.inputs, *self.choice.extras)]
        arguments = [tensor_text(tensor) for tensor in (*inputs, output)]
        memory = None
        if self.choice.workspace is not None:
            memory = torch_graph.workspace(node.get_workspace_size(), node.get_device())
            wrapper.generate_workspace_allocation(memory)
            arguments.append(f"{memory.outer_name}.view(torch.float32)")
        arguments += [torch_graph.size_text(size) for size in self.choice.sizes]
        wrapper.writeline(f"{name}({', '.join(arguments)})")
        if memory is not None:
            wrapper.generate_workspace_deallocation(memory)
