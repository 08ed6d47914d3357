"""The source of a template's kernel: the constants that tell one from another, how it is launched,
and the comment that says which nodes of the graph it computes.

Inductor keeps it below the cache dir. A Triton choice's hash is its template's name and the key of
its module, which lies at `<cache dir>/<2nd and 3rd letter of the key>/<key>.py`. A C++ choice's
hash ends in a hash of its source, which lies below the name that it was compiled under: it is found
by its content.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from backend.disk.safe import open_regular

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
        constants = dict(_CONSTEXPR.findall(source))
        constants.update(_LAUNCH.findall(source))
        return tuple(sorted((k, v) for k, v in constants.items() if k not in _OTHERWISE))
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


MAX_BYTES = 4 << 20
"""A longer source is none of a template."""
MAX_SOURCES = 20_000
"""C++ sources that are looked at; a cache dir with more is not searched to its end."""

RETRY_SECONDS = 60.0
"""A source that was not there is looked for again after so long."""

_KEY = re.compile(r"c[a-z2-7]{51}")
_FOLDER = re.compile(r"[a-z2-7]{2}")


@dataclass(slots=True)
class ChoiceSources:
    """The sources below one cache dir; each is read once."""

    root: Path
    _known: dict[str, dict[str, str]] = field(default_factory=dict)
    _cpp: dict[str, str] = field(default_factory=dict)
    _missed: dict[str, float] = field(default_factory=dict)

    def constants(self, choice: str, kind: str) -> dict[str, str]:
        """The constants of a choice by its hash and its kind; none if its source is not there."""
        key = choice.rpartition("-")[2]
        if kind not in ("triton", "cpp") or not _KEY.fullmatch(key):
            return {}
        known = self._known.get(choice)
        if known is None and time.monotonic() - self._missed.get(choice, -math.inf) > RETRY_SECONDS:
            text = self._module(key) if kind == "triton" else self._source(key)
            known = dict(kernel_config(text, kind))
            if known:
                self._known[choice] = known
            else:
                self._missed[choice] = time.monotonic()
        return known or {}

    def _module(self, key: str) -> str:
        return _text(self.root / key[1:3] / f"{key}.py")

    def _source(self, key: str) -> str:
        for path in _cpp_files(self.root):
            if path.name not in self._cpp:
                self._cpp[path.name] = source_key(_text(path))
            if self._cpp[path.name] == key:
                return _text(path)
        return ""


def source_key(source: str) -> str:
    """The hash under which Inductor knows a source."""
    digest = hashlib.sha256(source.encode("utf-8", "surrogateescape")).digest()
    return "c" + base64.b32encode(digest)[:51].decode("ascii").lower()


def _cpp_files(root: Path) -> Iterator[Path]:
    count = 0
    for folder in _children(root):
        if not _FOLDER.fullmatch(folder):
            continue
        for name in _children(root / folder):
            if name.endswith(".cpp"):
                count += 1
                if count > MAX_SOURCES:
                    return
                yield root / folder / name


def _children(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        with open_regular(path) as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError:
        return ""
    return "" if len(data) > MAX_BYTES else data.decode("utf-8", "surrogateescape")
