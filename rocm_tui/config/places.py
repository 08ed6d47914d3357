"""Paths of the settings and the program's memory, by the XDG base directory specification."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs.unix import Unix

_FOLDERS = Unix("rocm-tui")
"""The XDG folders on every system: on macOS, too, the files stay where they were."""


def config_path() -> Path:
    """Return `$ROCM_TUI_CONFIG`, else `config.toml` in our folder of `$XDG_CONFIG_HOME`."""
    given = os.environ.get("ROCM_TUI_CONFIG")
    return Path(given).absolute() if given else _FOLDERS.user_config_path / "config.toml"


def config_given() -> bool:
    """Return whether there are settings to read, or a path that must be reported as unreadable."""
    try:
        config_path().lstat()
    except (FileNotFoundError, NotADirectoryError):
        return bool(os.environ.get("ROCM_TUI_CONFIG"))
    except OSError:
        pass
    return True


def state_path() -> Path:
    """Return `state.json` in our folder of `$XDG_STATE_HOME`."""
    return _FOLDERS.user_state_path / "state.json"


def name_of_theme(colors: str) -> str:
    """Return the name under which the theme is remembered for terminals with `colors` colours.

    Over SSH a terminal may report 256 colours although it has all, and then needs another theme.
    """
    return f"theme {colors}"
