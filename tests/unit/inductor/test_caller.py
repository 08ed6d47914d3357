"""The wrappers of a template whose nodes are preprocessed and whose output is postprocessed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from backend.errors import ConfigError
from backend.inductor.benchmark.errors import CompileFailed, NotCompiled
from backend.inductor.hip.caller import (
    DataProcessorTemplateWrapper,
    ROCmTemplateCaller,
    generated,
)
from backend.inductor.hip.operands import product_text
from backend.inductor.torch.graph import KernelTemplate


class Choice:
    """A choice whose node is a text."""

    def __init__(self, name: str, nodes: Sequence[str]) -> None:
        self.name = name
        self.nodes = nodes

    def output_node(self) -> str:
        return f"{self.name}({', '.join(self.nodes)})"

    def __str__(self) -> str:
        return f"Choice({self.name})"


class Template(KernelTemplate):  # type: ignore[misc]
    """A template of nodes that are texts; a negative config does not fit."""

    def __init__(self, input_nodes: Sequence[str], layout: str) -> None:
        super().__init__("plain")
        self.input_nodes = input_nodes
        self.layout = layout

    def generate(self, *, name: str, config: int) -> Choice:
        if config < 0:
            raise ConfigError("negative")
        return Choice(name, self.input_nodes)

    def __str__(self) -> str:
        return f"Template({', '.join(self.input_nodes)})"


@pytest.fixture
def wrapped() -> DataProcessorTemplateWrapper:
    def swapped(nodes: Sequence[Any], layout: Any) -> tuple[Sequence[Any], Any]:
        return nodes[::-1], layout

    return DataProcessorTemplateWrapper(
        Template, swapped, lambda node: f"after {node}", input_nodes=["a", "b"], layout="row"
    )


def test_choices_of_a_wrapped_template_are_postprocessed(
    wrapped: DataProcessorTemplateWrapper, capsys: pytest.CaptureFixture[str]
) -> None:
    choices = generated(wrapped, [1, -1, 2])
    assert [choice.name for choice in choices] == ["rocm_plain_0", "rocm_plain_2"]
    assert [choice.output_node() for choice in choices] == [
        "after rocm_plain_0(b, a)",
        "after rocm_plain_2(b, a)",
    ]
    assert "a choice of ours is not offered: negative" in capsys.readouterr().err


def test_the_wrappers_say_what_they_wrap(wrapped: DataProcessorTemplateWrapper) -> None:
    assert repr(wrapped) == "DataProcessorTemplateWrapper(Template(b, a))"
    (choice,) = generated(wrapped, [1])
    assert repr(choice) == "DataProcessorChoiceCallerWrapper(Choice(rocm_plain_0))"
    assert str(choice) == "Choice(rocm_plain_0)"


@pytest.mark.parametrize(
    "error, raised",
    [(CompileFailed("no"), True), (NotCompiled("full disk"), False), (OSError("full"), False)],
)
def test_compiling_ahead_fails_for_a_kernels_own_fault_alone(
    error: Exception, raised: bool
) -> None:
    """torch benchmarks no choice that failed then; after other failures the benchmark retries."""

    def fail() -> None:
        raise error

    choice = SimpleNamespace(bmreq=SimpleNamespace(precompile=fail))
    with pytest.raises(CompileFailed) if raised else contextlib.nullcontext():
        ROCmTemplateCaller.precompile(choice)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [(), (2,)], ids=["addmm", "baddbmm"])
def test_the_fallback_reads_no_bias_where_beta_is_zero(batch: tuple[int, ...]) -> None:
    a, b = torch.ones(*batch, 2, 3), torch.ones(*batch, 3, 4)
    bias = torch.full((4,), torch.nan)
    layout = SimpleNamespace(size=(*batch, 2, 4), acc="float32")
    template = SimpleNamespace(alpha=0.5, beta=0.0, layout=layout, problem=lambda: layout)
    text = product_text(template, {"a": "a", "b": "b", "bias": "bias"})
    result = eval(text, {"torch": torch, "a": a, "b": b, "bias": bias})
    assert torch.equal(result, torch.full((*batch, 2, 4), 1.5))
