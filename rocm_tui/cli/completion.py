"""Completion scripts, made from the parser."""

from __future__ import annotations

import shtab

from rocm_tui import say
from rocm_tui.cli.parser import build_parser


def print_completion(shell: str) -> None:
    """For `bash`, `zsh` or `tcsh`."""
    say.out(shtab.complete(build_parser(), shell=shell))
