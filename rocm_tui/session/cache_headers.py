"""The devices, on ROCm architectures, that Inductor's cache files name in their first lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from rocm_tui.harmless import clean

_MARK = '"system":'
_HEAD = 8192


def device_names(paths: Iterable[str]) -> dict[str, str]:
    """The devices, on ROCm architectures, that cache files name in their first lines, by path.

    Reads the beginnings of those that are such files: call it off the event loop.
    """
    return {path: name for path in paths if (name := _device_name(path))}


def _device_name(path: str) -> str | None:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_HEAD).decode(errors="replace")
        at = text.index(_MARK) + len(_MARK)
        system, _ = json.JSONDecoder().raw_decode(text[at:].lstrip())
    except (OSError, ValueError, RecursionError):
        return None
    device = system.get("device") if isinstance(system, dict) else None
    name = device.get("name") if isinstance(device, dict) else None
    return clean(name)[:200] if isinstance(name, str) else None
