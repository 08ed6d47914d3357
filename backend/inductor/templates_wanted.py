"""Whether our templates are asked for, and what follows for graphs. Imports no Inductor."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.templates.triton.module_file import interpreter_on

TEMPLATES = "ROCM_TUI_TEMPLATES"
"""The variable: `1` turns the templates on where the hooks are on."""

CHECK = "ROCM_TUI_CHECK"
"""The variable: `1` compares every choice's output with ATen's, not only that of ours."""

_TAG = "cache_key_tag"


def wanted(env: Mapping[str, str] = os.environ) -> bool:
    return env.get(TEMPLATES, "") not in ("", "0")


def check_wanted(env: Mapping[str, str] = os.environ) -> bool:
    return env.get(CHECK, "") not in ("", "0")


def separate_graphs() -> None:
    """Keep graphs that may call our kernels apart from those of programs without templates.

    The tag is part of the key of each compiled graph. It changes with the templates' sources, and
    where Triton's interpreter is on, which graphs for it need. What the program itself has as its
    tag, now or later, in this thread or another one, stays in front of ours.
    """
    import torch.compiler.config

    config: Any = torch.compiler.config
    interpreted = "-interpreted" if interpreter_on() else ""
    tag = f"rocm-tui-templates-{_sources_hash()}{interpreted}"
    stock = type(config)

    def with_ours(self: Any) -> str:
        own = stock.__getattr__(self, _TAG)
        return own if tag in own else f"{own}{tag}"

    if tag not in config.cache_key_tag:
        # A property comes before the `__getattr__` by which torch reads its settings; what is set
        # goes where it always went. (torch keeps what is set for each thread by itself.)
        kind = type(stock.__name__, (stock,), {_TAG: property(with_ours)})
        object.__setattr__(config, "__class__", kind)


def _sources_hash() -> str:
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for folder in (root / "templates", root / "toolchain" / "include"):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".jinja", ".h"):
                digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
