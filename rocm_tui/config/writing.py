"""A new `config.toml`: every setting, commented out and explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import tomlkit

from backend.disk import safe
from rocm_tui.config.settings import SECTIONS, Value, settings
from rocm_tui.errors import RocmTuiError


class ConfigThere(RocmTuiError):
    """A person's file would be replaced."""


def toml(value: Value) -> str:
    """Return a value as TOML."""
    return tomlkit.item(value).as_string()


def example(keys: Mapping[str, tuple[str, str]]) -> str:
    """The file. `keys` are the default of each key and what it does, by id."""
    lines = [
        "# Settings of rocm-tui. A line that is commented out shows the default.",
        "# `rocm-tui config` prints the settings in force; --check lists mistakes in this file.",
    ]
    for section, about in SECTIONS.items():
        lines += ["", f"# {about}", f"[{section}]"]
        if section == "keys":
            lines += _aligned((f'"{name}"', toml(key), does) for name, (key, does) in keys.items())
        else:
            lines += _aligned(
                (one.name, toml(one.default), one.description)
                for one in settings()
                if one.section == section
            )
    return "\n".join(lines) + "\n"


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
