"""`rocm-tui --print-man`: the manual page, made from the parser. Roff, as man(7) has it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from textwrap import wrap

from rocm_tui import __version__

_TITLE = "See every kernel that Inductor tries, learn which one is faster, and pin it"
_EXIT = {
    "0": "Yes: it was done, and the answer is yes.",
    "1": "No: the answer is no, or there is none. Nothing was found, something is slower or not "
    "called; a file, an id, a choice or a Python that was named is not there.",
    "2": "Bad usage: a command, an option, a value or a mix of them that makes no sense.",
    "130": "Ended by Ctrl-C.",
    "any": "`run` ends with the code of the program that it ran.",
}
"""The one rule of exit codes."""
_ENVIRONMENT = {
    "TORCHINDUCTOR_CACHE_DIR": "Inductor's cache dir, where pins and sessions are kept too.",
    "VIRTUAL_ENV": "The environment whose Python has torch, where ours has none.",
    "NO_COLOR": "No colours on the screen.",
}
_EXAMPLES = {
    "rocm-tui watch": "watch the sessions and the cache of this machine",
    "rocm-tui run -- python train.py": "run a program, recorded, with its pins honoured",
    "rocm-tui ls train.log": "list the tunings of a log",
    "rocm-tui pin 3fa91c2 '#2'": "pin the second fastest choice of a tuning",
    "rocm-tui verify": "prove that pins are used",
}
_UNTOLD = (argparse._SubParsersAction, argparse._HelpAction)
"""Commands have a part of their own, and each has `--help`."""
_ESCAPES = {
    "\\": r"\e",
    "-": r"\-",
    "'": r"\(aq",
    "`": r"\(ga",
    "^": r"\(ha",
    "~": r"\(ti",
}


def page(parser: argparse.ArgumentParser) -> str:
    """The page of a parser that has all its commands loaded."""
    return "\n".join(_lines(parser)) + "\n"


def _lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    today = time.strftime("%Y-%m-%d", time.gmtime())
    yield f'.TH ROCM-TUI 1 "{today}" "rocm-tui {__version__}" "User Commands"'
    yield from (".nh", ".ad l", ".SH NAME", *_text(f"rocm-tui - {_TITLE}"))
    yield from (".SH SYNOPSIS", ".B rocm-tui", ".I COMMAND", ".RI [ options ]")
    yield from (".SH DESCRIPTION", *_text(parser.description or ""))
    yield ".SH OPTIONS"
    yield from _options(parser)
    yield ".SH COMMANDS"
    for name, command in _commands(parser).items():
        usage = " ".join(command.format_usage().removeprefix("usage:").split())
        yield from (f".SS {_roff(name)}", r"\fB\c", *_text(usage), r"\fR")
        yield from (".PP", *_text(command.description or ""))
        yield from _options(command)
        if command.epilog:
            yield from (".PP", *_text(command.epilog))
    for title, entries in {"EXIT STATUS": _EXIT, "ENVIRONMENT": _ENVIRONMENT}.items():
        yield f".SH {title}"
        yield from _entries(entries)
    yield ".SH EXAMPLES"
    yield from _entries(_EXAMPLES)


def _commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, _UNTOLD):
            continue
        value = action.metavar or ("" if action.option_strings else action.dest)
        if not value and action.choices:
            value = "|".join(map(str, action.choices))
        elif not value and action.nargs != 0:
            value = action.dest.upper()
        names = ", ".join(rf"\fB{_roff(name)}\fR" for name in action.option_strings)
        worth = rf"\fI{_roff(str(value))}\fR" if value else ""
        yield from (".TP", " ".join(filter(None, (names, worth))))
        yield from _text((action.help or "").replace("%%", "%")) or [r"\&"]


def _entries(entries: Mapping[str, str]) -> Iterator[str]:
    for name, about in entries.items():
        yield from (".TP", rf"\fB{_roff(name)}\fR", *_text(about))


def _text(text: str) -> list[str]:
    """Lines of roff that say what `text` does; none begins like a request."""
    lines = wrap(_roff(text), 79, break_long_words=False, break_on_hyphens=False)
    return [rf"\&{line}" if line.startswith(".") else line for line in lines]


def _roff(text: str) -> str:
    """`text` without what roff would take for an escape, in ASCII."""
    for mark, escape in _ESCAPES.items():
        text = text.replace(mark, escape)
    return "".join(c if c.isascii() else rf"\[u{ord(c):04X}]" for c in text)
