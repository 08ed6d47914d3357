"""What another tuner looks an entry up by, in short: its sizes as those of torch's products are
written, its types. Pure text functions.

It is told as names and values, `M=64,E=128,N=352,dtype=fp8_w8a8`, or is one text.
"""

from __future__ import annotations

import re

_SIZES = (("B", "M", "N", "K"), ("b", "m", "n", "k"))
_TOLD = re.compile(r"(\w+)=((?:\[[^\]]*\]|[^,\[])*)")
_DTYPES = ("dtype", "q_dtype_a", "q_dtype_w")


def asked_sizes(asked: str) -> str:
    """`64×1280×8192` of a product, `M=64 7168×512 E=384 topk=6` of a mixture of experts (tokens,
    hidden and inner size, experts, those of a token), `M=64 E=128 N=352` of a config for one; else
    all values."""
    told = dict(_TOLD.findall(asked))
    for names in _SIZES:
        if all(name in told for name in names[1:]):
            return "×".join(told[name] for name in names if name in told)
    if "token" in told and "model_dim" in told:
        return (
            f"M={told['token']} {told['model_dim']}×{told.get('inter_dim', '?')} "
            f"E={told.get('expert', '?')} topk={told.get('topk', '?')}"
        )
    values = [f"{name}={text}" for name, text in told.items() if name not in _DTYPES]
    return " ".join(values).removeprefix("step=") if told else asked


def asked_dtypes(asked: str) -> tuple[str, ...]:
    """The types that it tells."""
    return tuple([text.strip() for name, text in _TOLD.findall(asked) if name in _DTYPES])
