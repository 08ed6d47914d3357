"""A new `config.toml`: every setting, commented out and explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from backend.disk import safe
from rocm_tui.config.settings import SECTIONS, Value, default_of, settings
from rocm_tui.errors import RocmTuiError


class ConfigThere(RocmTuiError):
    """A person's file would be replaced."""


def toml(value: Value) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return f"{value:g}" if isinstance(value, float) else str(value)


def example(keys: Mapping[str, tuple[str, str]]) -> str:
    """The file. `keys` are the default of each key and what it does, by id."""
    lines = [
        "# Settings of rocm-tui. What is commented out is as it is by itself.",
        "# `rocm-tui config` prints what is in force, with --check what is wrong here.",
    ]
    for section, about in SECTIONS.items():
        lines += ["", f"# {about}", f"[{section}]"]
        if section == "keys":
            lines += _aligned((f'"{name}"', toml(key), does) for name, (key, does) in keys.items())
        else:
            lines += _aligned(
                (one.name, toml(default_of(one)), said(one.metadata))
                for place, one in settings()
                if place == section
            )
    return "\n".join(lines) + "\n"


def said(rule: Mapping[str, object]) -> str:
    """The sentence of a setting, with what it may be."""
    choices, least = rule["choices"], rule["least"]
    if isinstance(choices, tuple) and choices:
        return f"{rule['about']}: {', '.join(choices)}"
    return (
        f"{rule['about']} ({least:g} to {rule['most']:g})"
        if least is not None
        else str(rule["about"])
    )


def _aligned(rows: Iterator[tuple[str, str, str]]) -> list[str]:
    texts = [(f"# {name} = {value}", about) for name, value, about in rows]
    width = min(44, max(len(text) for text, _ in texts))
    return [f"{text:<{width}}  # {about}" for text, about in texts]


def write(path: Path, text: str, *, replace: bool) -> Path | None:
    """Write the file; the copy of the one that was there, if it was.

    Raises ConfigThere where there is one that is not to be replaced, NotWritable, UnsafePath, Busy.
    """
    folder = path.parent
    safe.make_folder(folder, folder)
    with safe.locked(folder, path, locks=folder):
        safe.check_file(folder, path)
        if not path.exists():
            safe.write_atomic(path, text.encode())
            return None
        if not replace:
            raise ConfigThere(f"{path} is there; --yes writes it anew and keeps a copy")
        copy = _copy_of(path)
        safe.write_atomic(copy, safe.read_bytes(path))
        safe.write_atomic(path, text.encode())
        return copy


def _copy_of(path: Path) -> Path:
    """The first free of `config.toml.1`, `.2`, …"""
    at = 1
    while (copy := path.with_name(f"{path.name}.{at}")).exists():
        at += 1
    return copy
