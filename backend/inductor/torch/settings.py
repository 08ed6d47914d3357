"""Private names of torch: Inductor's options, as a program has set them, and set again elsewhere.

Read in torch 2.8 to 2.15 (`torch/_inductor/config.py`, `torch/utils/_config_module.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch._inductor import config

Scalar = bool | int | float | str | None
"""What one of the options may be, for us."""

_ALWAYS = (
    "max_autotune",
    "max_autotune_pointwise",
    "max_autotune_gemm",
    "max_autotune_gemm_backends",
    "max_autotune_conv_backends",
    "max_autotune_conv_bwd_weight_backends",
    "max_autotune_conv_bwd_input_backends",
    "max_autotune_gemm_search_space",
    "max_autotune_flex_search_space",
    "autotune_fallback_to_aten",
    "coordinate_descent_tuning",
    "freezing",
    "layout_optimization",
    "epilogue_fusion",
    "prologue_fusion",
    "benchmark_fusion",
    "benchmark_epilogue_fusion",
    "benchmark_kernel",
    "combo_kernels",
    "deterministic",
    "emulate_precision_casts",
    "force_same_precision",
    "fallback_random",
    "graph_partition",
    "shape_padding",
    "split_reductions",
    "cpp_wrapper",
    "cpp.threads",
    "cpp.simdlen",
    "cpp.enable_kernel_profile",
    "cpp.min_chunk_size",
    "triton.cudagraphs",
    "triton.multi_kernel",
    "triton.unique_kernel_names",
)
"""Many of these have a default that comes from the environment, which is another one elsewhere."""

_TEXTS = {name for name in _ALWAYS if name.startswith("max_autotune_")} | {
    "cpu_backend",
    "cuda_backend",
    "triton.descriptive_names",
}
"""Options whose text cannot lead to a file or a program."""
_TEXT = re.compile(r"[A-Za-z0-9_,]{0,200}")

_ELSEWHERE = re.compile(
    r"_|trace\.|aot_inductor|test_configs|cuda\.|cutlass\.|rocm\.|halide|bundle|profile|debug"
    r"|freezing_discard|verbose|compile_threads|worker|quiesce|save_args|force_disable_caches|autotune_in_subproc"
    r"|autotune_multi|generate_intermediate|fx_graph|autotune_(local|remote)|sleep_sec|.*_TESTING"
    r"|.*(cache|dir|path|upload|log|dump)|.*_timeout|cpp\.(cxx|inject)|triton\.inject"
    r"|profiler|unsafe|custom|fbcode|inplace_padding_at|nan_asserts|size_asserts|scalar_asserts"
    r"|alignment_asserts|triton\.debug"
)
"""Options that are about files, processes or looking on, and not about what is compiled."""


def program_settings() -> dict[str, Scalar]:
    """The options that decide how a graph is compiled, where they matter or are no default."""
    chosen: dict[str, Scalar] = {}
    entries = getattr(config, "_config", {})
    for name, value in config.get_config_copy().items():
        default = getattr(entries.get(name), "default", value)
        if _usable(name, value) and (name in _ALWAYS or value != default):
            chosen[name] = value
    return dict(sorted(chosen.items()))


def usable_settings(given: Mapping[str, object]) -> dict[str, Scalar]:
    """Of options that stand in a file those that this torch has, and that do no harm."""
    known = config.get_config_copy()
    chosen: dict[str, Any] = {}
    for name, value in given.items():
        if name in known and _usable(name, value) and _usable(name, known[name]):
            chosen[name] = value
    return chosen


def _usable(name: str, value: object) -> bool:
    if name not in _ALWAYS and name not in _TEXTS and _ELSEWHERE.match(name):
        return False
    if isinstance(value, str):
        return name in _TEXTS and _TEXT.fullmatch(value) is not None
    return value is None or isinstance(value, (bool, int, float))
