"""Linear layers on the CPU, whose weights torch has packed for a library, as matrix products.

`packed_linear` (MKL) is given its weight twice, packed and as it was. `linear_unary` (oneDNN) has
the packed one alone, maybe a bias, and an activation that torch has fused with it. So something is
done before a template and after it; the two wrappers let everything else through to what they wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from backend.inductor.hip.caller import or_aten
from backend.inductor.torch import graph as torch_graph
from backend.inductor.torch.graph import Node
from backend.templates.problem import Activation

_ACTIVATIONS: Mapping[tuple[str, str], Activation] = {
    ("none", ""): "none",
    ("relu", ""): "relu",
    ("swish", ""): "silu",
    ("gelu", "none"): "gelu",
    ("gelu", "tanh"): "gelu_tanh",
}
"""By oneDNN's `attr` and `algorithm`."""


def original_weight(nodes: Sequence[Node], layout: Any) -> tuple[Sequence[Node], Any]:
    """packed_linear's x, packed weight and weight (N, K): x and the weight as (K, N)."""
    x, _, weight = nodes
    return [x, torch_graph.transposed(weight)], layout


def original_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same for tensors."""
    x, _, weight = tensors
    return [x, weight.transpose(0, 1)]


def unpacked_weight(nodes: Sequence[Node], layout: Any) -> tuple[Sequence[Node], Any]:
    """linear_unary's x, packed weight (N, K) and maybe bias: x, the weight as (K, N), the bias.

    The weight is a stand-in until `keep_unpacked`, so that it takes no memory unless we win.
    """
    x, packed, *bias = nodes
    return [x, torch_graph.transposed(torch_graph.unpacked(packed)), *bias], layout


def unpacked_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same for tensors."""
    x, packed, *bias = tensors
    weight = packed.to_dense() if packed.is_mkldnn else packed.contiguous()
    return [x, weight.transpose(0, 1), *bias]


def keep_unpacked(nodes: Sequence[Node], output: Any) -> Any:
    """`output`, a kernel that has won, with a real weight in place of the stand-in.

    `nodes` are the op's.
    """
    constant = torch_graph.add_unpacked(nodes[1])
    torch_graph.template_buffer(output).inputs[1] = torch_graph.transposed(constant)
    return output


def activation(kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is fused with linear_unary, from the keywords of ATen's choice."""
    known = _ACTIVATIONS.get((str(kwargs.get("attr")), str(kwargs.get("algorithm") or "")))
    return None if known is None else {"activation": known}


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

    def generate(self, **options: Any) -> DataProcessorChoiceCallerWrapper:
        return DataProcessorChoiceCallerWrapper(
            self._wrapped.generate(**options), self._postprocessor
        )


class DataProcessorChoiceCallerWrapper:
    """A choice whose output is postprocessed once it has won."""

    def __init__(self, wrapped: Any, postprocessor: Postprocessor | None) -> None:
        self._wrapped = wrapped
        self._postprocessor = postprocessor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def output_node(self) -> Any:
        return or_aten(self, self._output_node)

    def _output_node(self) -> Any:
        node = self._wrapped.output_node()
        return node if self._postprocessor is None else self._postprocessor(node)

    def __str__(self) -> str:
        return str(self._wrapped)
