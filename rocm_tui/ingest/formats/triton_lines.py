"""What Triton prints of its own autotuning under `TRITON_PRINT_AUTOTUNING=1`.

    Triton autotuning for function matmul_kernel,
    with key as (512, 512, 'torch.float16'),
    finished after 1.23s,
    best config selected: BLOCK_M: 64, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None;

Older versions write one line without a key: `... matmul_kernel finished after 1.23s; best config
selected: ...;`. Four lines, or one, make a tuning; nothing is said of the other configurations, nor
of any time of a kernel.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from backend.model.choice import Choice
from backend.model.inductor_kernel import TRITON, dtypes_of, inputs_of
from backend.model.tuning import Seconds, Tuning
from rocm_tui.ingest.formats.processes import Origin

MARKER = "Triton autotuning for function "
_REST = ("with key as ", "finished after ", "best config selected: ")
LINES = (MARKER, *_REST)
REACH = 4096
"""Bytes behind the first line in which the other three stand."""


class AutotunedKernel(NamedTuple):
    """What one line, or several, say of an autotuned kernel; None is not said."""

    name: str | None = None
    key: str | None = None
    seconds: float | None = None
    config: str | None = None

    def then(self, later: AutotunedKernel) -> AutotunedKernel:
        """What this and a later line say together."""
        return AutotunedKernel(
            self.name,
            self.key if later.key is None else later.key,
            self.seconds if later.seconds is None else later.seconds,
            later.config,
        )


_NAME = re.compile(r"[A-Za-z_<][\w.<>]{0,299}")
_SECONDS = re.compile(r"finished after (\d{1,12}(?:\.\d{1,12})?)s\b")
_SETTING = re.compile(r"([A-Za-z_]\w{0,99}): ([^,;]{1,300})(?:, *)?")


def find_kernel(text: str) -> tuple[int, AutotunedKernel] | None:
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
    kernel = AutotunedKernel(
        name,
        text[key + len(_REST[0]) :].rstrip(" ,")[:300] if key >= 0 else None,
        float(seconds[1]) if seconds else None,
        _config(text[best + len(_REST[2]) :]) if best >= 0 else None,
    )
    return at if at >= 0 else min(starts), kernel


_VALUE = r"'[^'\\]*'|-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:e[+-]?\d{1,2})?|True|False|None"
_KEY = re.compile(rf"\((?:(?:{_VALUE})(?:, (?:{_VALUE}))*,?)?\)")
_WORDS = {"True": True, "False": False, "None": None}


def _inputs(name: str, key: str | None) -> str:
    """The inputs key: the kernel's name alone where no key was told."""
    return name if key is None else inputs_of(name, _values(key), "")


def _values(key: str) -> list[object]:
    """What `(512, 'torch.float16')` holds; the text itself where it is something else."""
    if not _KEY.fullmatch(key):
        return [key]
    parts: list[str] = re.findall(_VALUE, key)
    return [part[1:-1] if part[0] == "'" else _value(part) for part in parts]


def _value(part: str) -> object:
    return _WORDS[part] if part in _WORDS else json.loads(part)


def _config(text: str) -> str:
    """`BLOCK_M: 64, num_warps: 4, maxnreg: None;` as `BLOCK_M=64, num_warps=4`: what is not set
    is left out."""
    settings = _SETTING.findall(text.partition(";")[0])
    return ", ".join(f"{name}={value.strip()}" for name, value in settings if value != "None")


class KernelLog:
    """Collects what each stream says of its kernel until the configuration is told."""

    def __init__(self, source: str) -> None:
        self._sources = (source,)
        self._begun: dict[Origin, AutotunedKernel] = {}

    def take(self, kernel: AutotunedKernel, who: Origin) -> Tuning | None:
        """Take what a line of a process says; the tuning if it completes one."""
        stream = who
        if kernel.name is None:
            if stream not in self._begun and len(self._begun) == 1:
                (only,) = self._begun
                stream = only if who.akin(only) or only.differing(who) else stream
            before = self._begun.get(stream)
            if before is None:
                return None  # prose, or the rest of what was cut off
            kernel = before.then(kernel)
        if kernel.config is None:
            self._begun[stream] = kernel
            return None
        self._begun.pop(stream, None)
        return self._tuning(kernel, who.rank)

    def _tuning(self, kernel: AutotunedKernel, rank: int | None) -> Tuning:
        """What is known: which configuration was taken. Nobody says how fast it is."""
        return Tuning(
            op=TRITON,
            inputs_key=_inputs(kernel.name or "", kernel.key),
            dtypes=dtypes_of(_values(kernel.key or "()")),
            choices=(Choice(name=kernel.name, description=kernel.config or ""),),
            seconds=Seconds(benchmark=kernel.seconds),
            selected_by="timing",
            rank=rank,
            sources=self._sources,
        )
