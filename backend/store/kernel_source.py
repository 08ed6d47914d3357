"""What tells one kernel of a template from another: the constants in its source, how it is
launched, and the comment that says which nodes of the graph it computes."""

from __future__ import annotations

import re

_CONSTEXPR = re.compile(r"^[ \t]{1,200}(\w{1,200}) : tl\.constexpr = ([^\n]{1,200})$", re.MULTILINE)
_LAUNCH = re.compile(
    r"\b(num_stages|num_warps|matrix_instr_nonkdim|waves_per_eu|kpack|num_consumer_groups"
    r"|num_buffers_warp_spec)=(\d{1,9})\b"
)
_CPP_CONSTANT = re.compile(r"\bconstexpr int64_t (num_threads|[MNK]t_blocks|[MNK]r?) = (\d{1,19});")
_NODE = re.compile(r"^# {1,8}%(\w{1,200}) : [^\n]{0,600}? ?= call_function\[target=", re.MULTILINE)
_OTHERWISE = {"INDEX_DTYPE"}
"""Constants that fusion may change."""


def kernel_config(source: str, kind: str) -> tuple[tuple[str, str], ...]:
    """The constants of a template's kernel, sorted by name; none for a compiler not known."""
    if kind == "triton":
        found = dict(_CONSTEXPR.findall(source))
        found.update(_LAUNCH.findall(source))
        return tuple(sorted((k, v) for k, v in found.items() if k not in _OTHERWISE))
    if kind == "cpp":
        values: dict[str, list[str]] = {}
        for name, value in _CPP_CONSTANT.findall(source):
            values.setdefault(name, []).append(value)
        return tuple(sorted((name, " ".join(texts)) for name, texts in values.items()))
    return ()


def fragment_nodes(text: str) -> frozenset[str]:
    """The nodes of the last "Graph fragment" comment in `text`, which stands before a kernel."""
    fragment = text.rpartition("# Graph fragment:")[2] if "# Graph fragment:" in text else ""
    return frozenset(_NODE.findall(fragment))
