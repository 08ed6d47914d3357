"""The names under which our choices are timed and pinned. Without torch, to check a source by."""

from __future__ import annotations

import hashlib
import json


def kernel_hash(source: str, entry: str, target: str) -> str:
    """The same wherever the same source is compiled for the same target."""
    return _digest(json.dumps([source, entry, target]))


def choice_hash(template: str, kernel: str, config: str) -> str:
    """Of one config of a template: `rocm_gemm-...`. `kernel` is its `kernel_hash`.

    `config` is the description, which has the runtime arguments too.
    """
    return f"rocm_{template}-{_digest(f'{kernel} {config}')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
