"""Ops and kernels in the narrow cells of a table on the screen; commands write them in full."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rocm_tui.harmless import plain

_OPS: Mapping[str, str] = {
    "persistent_reduction": "persistent",
    "user_autotune": "autotune",
    "flex_attention_backward": "flex_backward",
    "convolution_bwd_weight": "conv_weight",
    "convolution_bwd_input": "conv_input",
}
_BEGINS = re.compile(r"triton_(?:[a-z]+_)?fused_+(?=[a-z0-9])")

_NAMED = re.compile(r"\b([A-Za-z]{1,8})=(\d)")
_LAUNCHED = re.compile(r", (\d+) (warps|stages)\b")
_SHAPE = re.compile(r" block_shape=\[[\d, ]*\]")


def op(name: str) -> str:
    """A shorter word for an op whose name is longer than its column."""
    return _OPS.get(name) or plain(name)


def sizes(text: str) -> str:
    """A kernel of Inductor and its sizes, without the words that its op says already: `gelu 4096`
    of `triton_poi_fused_gelu 4096`; `M64 E128 N352` of experts; others as they are."""
    return _NAMED.sub(r"\1\2", _SHAPE.sub("", _BEGINS.sub("", text, count=1)))


def choice(text: str) -> str:
    """`16×128×64 w4 s2` of a config of another tuner's table; others as they are."""
    return _LAUNCHED.sub(lambda found: f" {found[2][0]}{found[1]}", text)
