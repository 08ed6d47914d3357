"""The parser of words: its errors are one line, name the wrong word, and say what was meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from rocm_tui.harmless import plain
from rocm_tui.meant import did_you_mean

_WORD = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\S*|\S+")
"""Of a usage: an option with its value stays on one line."""


class _Formatter(argparse.HelpFormatter):
    """Breaks a usage that was written by hand as argparse breaks its own."""

    def add_usage(self, usage: str | None, *given: Any, **named: Any) -> None:
        lines = (usage or "").splitlines()
        broken = "\n".join(part for line in lines for part in self._broken(line.strip()))
        super().add_usage(broken.lstrip() if usage else None, *given, **named)

    def _broken(self, usage: str) -> list[str]:
        words = _WORD.findall(usage)
        command, lines = " ".join(words[:2]), [""]
        first = indent = " " * len("usage: ")
        for word in words:
            if lines[-1] and len(first) + len(lines[-1]) + 1 + len(word) > self._width:
                lines.append("")
                first = indent + " " * (len(command) + 1)
            lines[-1] += f" {word}" if lines[-1] else word
        return [indent + lines[0], *(f"{first}{line}" for line in lines[1:])]


class Parser(argparse.ArgumentParser):
    """Also its errors quote what was typed, which may come from a file name."""

    def __init__(self, *given: Any, **named: Any) -> None:
        named.setdefault("formatter_class", _Formatter)
        super().__init__(*given, **named)

    def error(self, message: str) -> NoReturn:
        self.exit(2, plain(f"{self.prog}: {message}; `{self.prog} --help` tells all") + "\n")

    def add_argument(self, *names: Any, **words: Any) -> argparse.Action:
        """Where none need be given, none is `required` in an error either."""
        if words.get("nargs") == "*":
            words.setdefault("default", [])
        return super().add_argument(*names, **words)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """All words are known: what is left over is an error of the command that has it."""
        parsed, left = super().parse_known_args(args, namespace)
        if left:
            self._refuse(left)
        return parsed, left

    def _refuse(self, left: Sequence[str]) -> NoReturn:
        word = next((word for word in left if word.startswith("-")), left[0])
        if not word.startswith("-") or word == "-":
            self.error(f"one word too many: {word!r}")
        option = word.partition("=")[0]
        self.error(f"no option {option!r}{did_you_mean(option, self._option_string_actions)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        near = did_you_mean(str(value), known)
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"no command {value!r}{near}")
        raise argparse.ArgumentError(action, f"{value!r} is none of {', '.join(known)}{near}")
