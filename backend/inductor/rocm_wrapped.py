"""A template whose inputs or output are not those of the op: something is done before and after.

`rocm_linear.py` has what is done for linear layers. Both wrappers let everything else through to
what they wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backend.inductor.rocm_sound import or_aten
from backend.inductor.torch_graph import Node

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
