"""Which choices in Triton stand for a product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from backend.inductor import torch_graph
from backend.inductor.rocm_triton import TritonGemmTemplate
from backend.inductor.rocm_triton_target import TritonTarget
from backend.inductor.saying import say_once
from backend.inductor.torch_api import ChoiceCaller
from backend.templates.triton import heuristics
from backend.templates.triton.gemm import from_gemm

INTERPRETER_FLOP = 1e8
"""The interpreter takes milliseconds a block: a larger product would take longer than it may."""


def choices(make: Callable[..., Any], target: TritonTarget, budget: int) -> list[ChoiceCaller]:
    """A choice a config; its number is its place in the list, so names are the same each time.

    `make(TritonGemmTemplate)` gives the template. Raises UnsupportedProblemError.
    """
    template = make(TritonGemmTemplate)
    problem = template.problem()
    if target.interpreted:
        sizes = problem.sizes(torch_graph.size_hint)
        flop = 2 * sizes.batch * sizes.m * sizes.n * sizes.k
        if flop > INTERPRETER_FLOP:
            say_once(f"Triton's interpreter is not used for more than {INTERPRETER_FLOP:g} flop")
            return []
        if problem.a.dtype == "bfloat16":
            return []  # it multiplies their bits as integers (triton#11584)
    configs = heuristics.configs(
        from_gemm(problem), target.arch, budget=budget, hint=torch_graph.size_hint
    )
    return [
        template.generate(name=f"rocm_triton_{number}", config=config)
        for number, config in enumerate(configs)
    ]
