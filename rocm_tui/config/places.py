"""Where the settings and the memory of the program lie, by the XDG base directory specification."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def config_path(env: Mapping[str, str] = os.environ) -> Path:
    """`$ROCM_TUI_CONFIG`, else `config.toml` in our folder of `$XDG_CONFIG_HOME`."""
    given = env.get("ROCM_TUI_CONFIG")
    if given:
        return Path(given).absolute()
    return _home(env, "XDG_CONFIG_HOME", ".config") / "config.toml"


def config_given(env: Mapping[str, str] = os.environ) -> bool:
    """Whether there are settings to read; True too where they cannot be read, and must be told."""
    try:
        config_path(env).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return "ROCM_TUI_CONFIG" in env
    except OSError:
        pass
    return True


def state_path(env: Mapping[str, str] = os.environ) -> Path:
    """`state.json` in our folder of `$XDG_STATE_HOME`."""
    return _home(env, "XDG_STATE_HOME", ".local/state") / "state.json"


def name_of_theme(colors: str) -> str:
    """What the theme is remembered as, on terminals of so many colours: over SSH one may tell of
    256 that has all, and then looks otherwise."""
    return f"theme {colors}"


def _home(env: Mapping[str, str], name: str, usual: str) -> Path:
    """A relative path is to be ignored, says the specification; so is a user without a home."""
    given = env.get(name, "")
    if os.path.isabs(given):  # noqa: PTH117
        return Path(given) / "rocm-tui"
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - Path.home() may raise
    return Path(home) / usual / "rocm-tui"
