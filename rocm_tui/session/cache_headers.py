"""The device that Inductor's cache files name in their first lines; on ROCm an architecture."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from rocm_tui.harmless import clean

_MARK = '"system":'
_HEAD = 8192


def device_names(paths: Iterable[str]) -> dict[str, str]:
    """By path, of those that are such files and name one. Reads their beginnings."""
    return {path: name for path in paths if (name := _name(path))}


def _name(path: str) -> str | None:
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
