"""Inductor's options that may make a graph faster, and where each is worth a trial.

The names and defaults are those of `torch/_inductor/config.py` in torch 2.13. Nobody can say from
outside which of them helps: on H100s single options moved whole models by -10 to +61 %. So each is
tried alone, against the graph as the program compiles it, and its outputs are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from backend.model.graph import CompileOption
from rocm_tui.errors import UsageError

Device = Literal["any", "gpu", "cpu"]


DEFAULT = "default"
"""Inductor's own value, tried where the program has set another one."""
OPTIONS: Sequence[tuple[str, str, Device]] = (
    ("coordinate_descent_tuning", "True", "gpu"),
    ("combo_kernels", "True", "gpu"),
    ("max_autotune_pointwise", "True", "gpu"),
    ("triton.multi_kernel", "1", "gpu"),
    ("triton.cooperative_reductions", "True", "gpu"),
    ("triton.enable_persistent_tma_matmul", "True", "gpu"),
    ("b2b_gemm_pass", "True", "gpu"),
    ("epilogue_fusion", "False", "any"),
    ("prologue_fusion", "False", "gpu"),
    ("epilogue_fusion", "True", "any"),
    ("benchmark_fusion", "True", "any"),
    ("loop_ordering_after_fusion", "False", "any"),
    ("aggressive_fusion", "True", "any"),
    ("layout_optimization", "False", "any"),
    ("comprehensive_padding", "False", "gpu"),
    ("split_reductions", "False", "any"),
    ("cpp.enable_tiling_heuristics", "False", "cpu"),
    ("cpp.simdlen", DEFAULT, "cpu"),
    ("max_fusion_size", DEFAULT, "any"),
)
"""Name, value to try, and devices, in the order of trials: what helped most often comes first."""

OUTSIDE = frozenset(
    (
        "align_random_eager",
        "cpp.enable_unsafe_math_opt_flag",  # GCC before 13 lets such code flush all denormals
        "cpp_wrapper",
        "efficient_conv_bn_eval_fx_passes",
        "fallback_random",
        "force_shape_pad",
        "freezing",
        "joint_graph_constant_folding",
        "permute_fusion",
        "selective_decompose",
        "shape_padding",
        "triton.cudagraphs",
        "use_joint_graph_passes",
        "use_pre_grad_passes",
    )
)
"""Options that take effect before a graph is captured, or outside it: its arms would not differ."""


def worth_trying(
    device: str | None, program: Iterable[CompileOption] = ()
) -> tuple[CompileOption, ...]:
    """Return the settings to try on a device of this type, except what the program has set."""
    kind: Device = "cpu" if device in (None, "cpu") else "gpu"
    has = {option.name: option.value for option in program if option.value != "None"}
    return tuple(
        CompileOption(name, value)
        for name, value, on in OPTIONS
        if on in ("any", kind) and has.get(name) != value and (value != DEFAULT or name in has)
    )


def compile_option(text: str) -> CompileOption:
    """Read `NAME=VALUE` as a person writes it. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise UsageError(f"--option {text}: write NAME=VALUE, such as epilogue_fusion=False")
    value = {"true": "True", "false": "False"}.get(value.strip().lower(), value.strip())
    return CompileOption(name.strip(), value)


def graph_option(text: str) -> CompileOption:
    """Read `NAME=VALUE` for a trial of a captured graph. Raises UsageError if the option cannot
    change one."""
    option = compile_option(text)
    if option.name in OUTSIDE:
        raise UsageError(
            f"--option {option.name} cannot be tried in a captured graph, because it takes effect "
            f"elsewhere; time the whole program with `run --option {option.label}` and without"
        )
    return option
