"""One of our kernels as a choice that Inductor compiles, times, names and selects.

A failure costs only that choice. torch skips a choice whose benchmark raises a RuntimeError. Any
other error of a choice would end the compile, so each method that torch calls is tried before the
choice is offered, and a winner has a fallback.

A linear layer on the CPU, whose weights torch has packed for a library, is also a matrix product.
`packed_linear` (MKL) gets its weight twice, packed and original. `linear_unary` (oneDNN) has only
the packed one, maybe a bias, and a fused activation. So work is done before and after a template;
the two wrappers pass everything else through to the wrapped object.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from backend.errors import TemplateError, ToolchainError
from backend.inductor.benchmark.errors import ChoiceError, CompileFailed, ErrorFromChoice
from backend.inductor.benchmark.process import benchmark as benchmark_apart
from backend.inductor.benchmark.request import ROCmBenchmarkRequest, plan_of
from backend.inductor.benchmark.tensors import OpInputs, results_are_read
from backend.inductor.guard import failure_text, quietly, say_once
from backend.inductor.hip.operands import ONEDNN
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.graph import Node
from backend.inductor.torch.tuning import ChoiceCaller
from backend.inductor.torch.versions import CHOICES_LOG
from backend.model.origin import choice_hash
from backend.model.problem import TuningKey
from backend.pins.graphs.text import OwnChoice


class ROCmTemplateBuffer(torch_graph.TemplateBuffer):  # type: ignore[misc]
    """The graph's node for a call of our kernel, once its choice has won.

    `make_kernel_render(buffer)` returns the kernel and a function that renders its source.

    `workspace_size` is in bytes, an expression if sizes are dynamic. `choice` is written into the
    generated code as a comment, so that a pin finds it there.
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

    def extract_read_writes(self, *args: Any, **kwargs: Any) -> Any:
        """Return the tensors that are read and written; the order is irrelevant here."""
        return torch_graph.in_memory_order(super().extract_read_writes(*args, **kwargs))

    def get_allowed_prologue_inps(self) -> Any:
        """Return the names of the inputs that may be computed while loading."""
        return torch_graph.prologue_inputs(self.template.computable(self))


class ROCmTemplateCaller(torch_graph.StockChoiceCaller):  # type: ignore[misc]
    """A choice. `info_kwargs` is the config by name; the description has it too, so that every row
    and every pin names it. `tuning` is the tuning that the choice was offered for."""

    def __init__(
        self,
        name: str,
        category: str,
        input_nodes: Sequence[Node],
        layout: Any,
        make_kernel_render: Callable[..., Any],
        bmreq: ROCmBenchmarkRequest,
        template: Any,
        info_kwargs: dict[str, Any],
        workspace_size: Any = 0,
    ) -> None:
        description = ", ".join(f"{key}={value}" for key, value in info_kwargs.items())
        super().__init__(name, list(input_nodes), layout, description)
        self.category = category
        self.make_kernel_render = make_kernel_render
        self.bmreq = bmreq
        self.template = template
        self.info_kwargs = info_kwargs
        self.workspace_size = workspace_size
        self.tuning: TuningKey | None = None
        self.question = OpInputs()
        source = bmreq.spec.source
        logging.getLogger(CHOICES_LOG).debug("Choice %s, generated code:\n%s", name, source)

    def set_tuning(self, key: TuningKey, question: OpInputs) -> None:
        self.tuning = key
        self.question = question

    def precompile(self) -> None:
        """Compile it into the code cache. Raises CompileFailed; other failures are raised by the
        benchmark, which compiles again."""
        try:
            self.bmreq.precompile()
        except CompileFailed:
            raise
        except Exception:
            return

    def benchmark(self, *args: Any, out: Any) -> float:
        """Return the milliseconds, measured in a separate process. `out` then has the result for
        `args`, unless nobody will read it. Raises ErrorFromChoice."""
        try:
            self.bmreq.precompile()
            if out is None or not results_are_read():
                return benchmark_apart(self.bmreq)
            with torch_graph.plain_tensors():
                return benchmark_apart(self.bmreq, self.arranged(args), out)
        except (ChoiceError, ToolchainError) as error:
            raise ErrorFromChoice(error, self, self._inputs()) from error
        except RuntimeError:
            raise
        except Exception as error:  # torch skips a choice only for a RuntimeError
            raise ErrorFromChoice(failure_text(error), self, self._inputs()) from error

    def arranged(self, given: Sequence[Any]) -> list[Any]:
        """Return the op's inputs in the order of the kernel, as it reads them."""
        plans = [plan_of(meta) for meta in self.bmreq.input_tensor_meta]
        reorder = getattr(self.template, "input_reorder", range(len(plans)))
        return self.question.operands(given, reorder, plans)

    def _inputs(self) -> str:
        metas = [*self.bmreq.input_tensor_meta, self.bmreq.output_tensor_meta]
        sizes = ["x".join(map(str, meta.sizes)) for meta in metas]
        return f"{', '.join(sizes[:-1])} -> {sizes[-1]} {metas[-1].dtype}"

    def call_name(self) -> str:
        return f"rocm_template_kernels.{self.name}"

    def kernel_hash_key(self) -> str:
        """Return the key of the binary, shared by choices with other runtime arguments."""
        return f"{self.category}-{self.bmreq.spec.hash_key}"

    def hash_key(self) -> str:
        """Return the hash for times and pins: of the source, the config and the toolchain."""
        spec = self.bmreq.spec
        return choice_hash(self.category, spec.hash_key, self.description, spec.toolchain)

    def info_dict(self) -> dict[str, Any]:
        """Return the entry for Inductor's log of matrix products."""
        return {"backend": "ROCm", "name": self.name, **self.info_kwargs}

    def output_node(self) -> Any:
        return output_node_or_aten(self, self._output_node)

    def _output_node(self) -> Any:
        own = None
        if self.tuning is not None:
            given = getattr(self.template, "given", ())
            own = OwnChoice(self.tuning.op, self.tuning.inputs, self.hash_key(), given)
        return torch_graph.tensor_box(
            ROCmTemplateBuffer(
                layout=self.layout,
                inputs=self.input_nodes,
                make_kernel_render=self.make_kernel_render,
                workspace_size=self.workspace_size,
                template=self.template,
                choice=own,
            )
        )

    def __str__(self) -> str:
        return f"ROCmTemplateCaller({self.name}, {self.description})"


def generated(template: Any, configs: Iterable[Any]) -> list[ChoiceCaller]:
    """Return a choice for each config; its number is its index, so names are the same each time. A
    config that does not fit is skipped."""
    choices: list[ChoiceCaller] = []
    for number, config in enumerate(configs):
        with quietly("a choice of ours is not offered"):
            name = f"rocm_{template.name}_{number}"
            try:
                template.maybe_append_choice(choices, name=name, config=config)
            except TemplateError as error:
                say_once(f"a choice of ours is not offered: {error}")
    return choices


_ASKED = ("__str__", "hash_key", "kernel_hash_key", "call_name", "info_dict")


def offerable(ours: Sequence[ChoiceCaller], others: Sequence[ChoiceCaller]) -> list[ChoiceCaller]:
    """Return those of `ours` that can be offered beside `others`, which are torch's."""
    aten = next((choice for choice in others if torch_api.is_extern(choice)), None)
    offered = []
    for choice in ours:
        with quietly("a choice of ours is not offered"):
            for name in _ASKED:
                getattr(choice, name)()
            choice.aten = aten
            offered.append(choice)
    return offered


def output_node_or_aten(choice: ChoiceCaller, output_node: Callable[[], Any]) -> Any:
    """Return the node of our winning choice, or ATen's if it cannot be created."""
    try:
        return output_node()
    except Exception as error:
        aten = getattr(choice, "aten", None)
        if aten is None:
            raise
        why = f"{choice.name} has won and cannot be called: {failure_text(error)}"
        say_once(f"{why}; {aten.name} is called instead")
        choice.replaced_by = aten
        return aten.output_node()


def original_weight(nodes: Sequence[Node], layout: Any) -> tuple[Sequence[Node], Any]:
    """Map packed_linear's x, packed weight and weight (N, K) to x and the weight as (K, N)."""
    x, _, weight = nodes
    return [x, torch_graph.transposed(weight)], layout


def original_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Map tensors in the same way."""
    x, _, weight = tensors
    return [x, weight.transpose(0, 1)]


def unpacked_weight(nodes: Sequence[Node], layout: Any) -> tuple[Sequence[Node], Any]:
    """Map linear_unary's x, packed weight (N, K) and maybe bias to x, the weight as (K, N), and the
    bias.

    The weight is a placeholder until `keep_unpacked`, so that it takes no memory unless we win.
    """
    x, packed, *bias = nodes
    return [x, torch_graph.transposed(torch_graph.unpacked(packed)), *bias], layout


def unpacked_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Map tensors in the same way."""
    x, packed, *bias = tensors
    weight = packed.to_dense() if packed.is_mkldnn else packed.contiguous()
    return [x, weight.transpose(0, 1), *bias]


def keep_unpacked(nodes: Sequence[Node], output: Any) -> Any:
    """Return `output`, a winning kernel of the op's `nodes`, with a real weight."""
    constant = torch_graph.add_unpacked(nodes[1])
    torch_graph.template_buffer(output).inputs[1] = torch_graph.transposed(constant)
    return output


def activation(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the activation fused with linear_unary, from the keywords of ATen's choice."""
    fused = ONEDNN.get((str(kwargs.get("attr")), str(kwargs.get("algorithm") or "")))
    return None if fused is None else {"activation": fused}


Preprocessor = Callable[[Sequence[Node], Any], tuple[Sequence[Node], Any]]
"""From the op's input nodes and layout to the template's."""
Postprocessor = Callable[[Any], Any]
"""From the template's output node to the op's."""


class DataProcessorTemplateWrapper:
    """The template `wrapped_template` of preprocessed nodes; `options` are its other arguments."""

    def __init__(
        self,
        wrapped_template: Callable[..., Any],
        preprocessor: Preprocessor | None,
        postprocessor: Postprocessor | None,
        *,
        input_nodes: Sequence[Node],
        layout: Any,
        **options: Any,
    ) -> None:
        if preprocessor is not None:
            input_nodes, layout = preprocessor(input_nodes, layout)
        self._postprocessor = postprocessor
        self._wrapped = wrapped_template(input_nodes=input_nodes, layout=layout, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def maybe_append_choice(self, choices: list[ChoiceCaller], **options: Any) -> Any:
        """Append the choice, postprocessed, as the wrapped template appends its own."""
        return type(self._wrapped).maybe_append_choice(self, choices, **options)

    def generate(self, **options: Any) -> DataProcessorChoiceCallerWrapper:
        return DataProcessorChoiceCallerWrapper(
            self._wrapped.generate(**options), self._postprocessor
        )

    def __repr__(self) -> str:
        return f"DataProcessorTemplateWrapper({self._wrapped})"


class DataProcessorChoiceCallerWrapper:
    """A choice whose output is postprocessed after it has won."""

    def __init__(self, wrapped: Any, postprocessor: Postprocessor | None) -> None:
        self._wrapped = wrapped
        self._postprocessor = postprocessor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def output_node(self) -> Any:
        return output_node_or_aten(self, self._output_node)

    def _output_node(self) -> Any:
        node = self._wrapped.output_node()
        return node if self._postprocessor is None else self._postprocessor(node)

    def __str__(self) -> str:
        return str(self._wrapped)

    def __repr__(self) -> str:
        return f"DataProcessorChoiceCallerWrapper({self._wrapped})"
