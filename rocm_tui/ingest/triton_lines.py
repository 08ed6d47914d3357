"""What Triton prints of its own autotuning under `TRITON_PRINT_AUTOTUNING=1`.

    Triton autotuning for function matmul_kernel,
    with key as (512, 512, 'torch.float16'),
    finished after 1.23s,
    best config selected: BLOCK_M: 64, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None;

Older versions write one line without a key: `... matmul_kernel finished after 1.23s; best config
selected: ...;`. Nothing is said of the other configurations, nor of any time of a kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MARKER = "Triton autotuning for function "
_REST = ("with key as ", "finished after ", "best config selected: ")
LINES = (MARKER, *_REST)
REACH = 4096
"""Bytes behind the first line in which the other three stand."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What one line, or several, say of an autotuned kernel; None is not said."""

    name: str | None = None
    key: str | None = None
    seconds: float | None = None
    config: str | None = None

    def then(self, later: Kernel) -> Kernel:
        """What this and a later line say together."""
        return Kernel(
            self.name,
            self.key if later.key is None else later.key,
            self.seconds if later.seconds is None else later.seconds,
            self.config if later.config is None else later.config,
        )


_NAME = re.compile(r"[A-Za-z_<][\w.<>]{0,299}")
_SECONDS = re.compile(r"finished after (\d{1,12}(?:\.\d{1,12})?)s\b")
_SETTING = re.compile(r"([A-Za-z_]\w{0,99}): ([^,;]{1,300})(?:, *)?")


def find_kernel(text: str) -> tuple[int, Kernel] | None:
    """What a clean line says of it, and the column where that begins."""
    at, name = text.find(MARKER), None
    if at >= 0:
        match = _NAME.match(text, at + len(MARKER))
        if not match:
            return None
        name = match[0]
    starts = [start for part in _REST if (start := text.find(part)) >= 0]
    if name is None and not starts:
        return None
    key = text.find(_REST[0])
    seconds = _SECONDS.search(text)
    best = text.find(_REST[2])
    said = Kernel(
        name,
        text[key + len(_REST[0]) :].rstrip(" ,")[:300] if key >= 0 else None,
        float(seconds[1]) if seconds else None,
        _config(text[best + len(_REST[2]) :]) if best >= 0 else None,
    )
    return at if at >= 0 else min(starts), said


def _config(text: str) -> str:
    """`BLOCK_M: 64, num_warps: 4, maxnreg: None;` as `BLOCK_M=64, num_warps=4`: what is not set
    is left out."""
    settings = _SETTING.findall(text.partition(";")[0])
    return ", ".join(f"{name}={value.strip()}" for name, value in settings if value != "None")
