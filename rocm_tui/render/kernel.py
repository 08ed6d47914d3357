"""The kernel of a choice on the Source screen: its text in colours, its resources, its share.

C++ and Python are coloured by Pygments, listings of compilers by regular expressions, and only the
lines that are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

from pygments.lexer import Lexer
from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, String, _TokenType

from backend.model.choice import Choice
from backend.toolchain.resources import Unknown
from rocm_tui.harmless import plain
from rocm_tui.render.choices import RESOURCES
from rocm_tui.render.shares import share_line
from rocm_tui.render.side_by_side import cells
from rocm_tui.render.table import Line, Span, wrapped
from rocm_tui.session import numbers as fmt
from rocm_tui.session import stats
from rocm_tui.session.kernel_source import ChoiceKernel
from rocm_tui.session.model import Row

if TYPE_CHECKING:  # a type only: the templates behind it take long to load
    from rocm_tui.session.kernel_source import Language

_NAME = 12
_VALUE = 12


def facts(row: Row, choice: Choice, kernel: ChoiceKernel, width: int) -> list[Line]:
    """The page `resources` of the Source screen."""
    return [*_taken(kernel, width), (), *_share(row, choice, width), (), *_config(choice, width)]


def _taken(kernel: ChoiceKernel, width: int) -> Iterator[Line]:
    resources = kernel.resources
    if isinstance(resources, Unknown):
        yield (("Of its GPU", "accent"),)
        for part in wrapped(f"not known: {plain(resources.reason)}", width - 4):
            yield ((f"  {part}", "dim"),)
        return
    yield (
        ("Of its GPU", "accent"),
        (f"  {plain(resources.target.arch or str(resources.target), 40)}", "dim"),
    )
    texts = cells(resources)
    for column in RESOURCES:
        name, value = column.title.lower().ljust(_NAME), texts[column.key].rjust(_VALUE)
        if column.title.isupper() and len(column.title) < 5:
            name = column.title.ljust(_NAME)
        limiting = column.key == "SPILLS" and texts[column.key] not in ("0", "?")
        style = "warn" if limiting else ""
        yield ((f"  {name}", "dim"), (value, style), (f"   {column.about}", "dim"))


def _share(row: Row, choice: Choice, width: int) -> Iterator[Line]:
    yield (("In the program", "accent"),)
    time = fmt.duration(stats.time_ms(row.tuning, choice))
    if stats.once(row.tuning, choice):
        time = fmt.once(time, fmt.SUSPECT if row.suspect else fmt.ONCE)
    best = stats.winner(row.tuning)
    place = row.tuning.choices.index(choice) + 1 if choice in row.tuning.choices else None
    of = f", #{place} of {len(row.tuning.choices)}" if place else ""
    yield ((f"  {'time'.ljust(_NAME)}", "dim"), (time.rjust(_VALUE), ""), (of, "dim"))
    line = share_line(row.share)
    if line is None:
        text = "its share of a program is unknown: no profile or recorded run has it"
    elif best is not None and choice != best:
        text = "the share is that of the choice in use:"
    else:
        text = ""
    for part in wrapped(text, width - 4):
        yield ((f"  {part}", "dim"),)
    if line is not None:
        yield ((" ", ""), *line)


def _config(choice: Choice, width: int) -> Iterator[Line]:
    yield (("Choice", "accent"),)
    yield ((f"  {'name'.ljust(_NAME)}", "dim"), (plain(choice.label), ""))
    if choice.hash:
        for at, part in enumerate(wrap(plain(choice.hash, 400), max(20, width - _NAME - 4))):
            yield ((f"  {'' if at else 'hash'}".ljust(_NAME + 2), "dim"), (part, ""))
    for key, value in choice.config.items():
        yield ((f"  {plain(key, 40)}".ljust(26), "dim"), (plain(str(value), 200), ""))


_AHEAD = 5000
"""Lines that are coloured for the sake of one further down; what is beyond stays plain."""
_LONGEST = 4000
"""Characters of a line that are shown."""
_TAB = 8

_STYLES: tuple[tuple[_TokenType, str], ...] = (
    (Comment.Preproc, "accent"),
    (Comment.PreprocFile, "warn"),
    (Comment, "dim"),
    (Keyword, "accent"),
    (String, "warn"),
    (Name.Function, "strong"),
    (Name.Class, "strong"),
    (Name.Decorator, "accent"),
)
_LISTING = re.compile(
    r"(?P<comment>(?:;|//|\#(?=\s|loc)).*)"
    r"|(?P<loc>\s?loc\([^)]*\)+)"
    r'|(?P<string>"[^"]*")'
    r"|(?P<label>^[\w.$@^]+:)"
    r"|(?P<directive>(?<=\s)\.[a-z_]\w*|^\.[a-z_]\w*)"
    r"|(?P<mnemonic>(?<==\s)[a-z_][\w.]*)"
    r"|(?P<first>^\s+(?![.;%/#@!])[a-z][\w.]*(?=\s|$))"
)
_LISTING_STYLES = {
    "comment": "dim",
    "loc": "dim",
    "string": "warn",
    "label": "strong",
    "directive": "dim",
    "mnemonic": "accent",
    "first": "accent",
}


class Code:
    """A text by its lines; `line` gives one in colours. What no terminal may get is a picture."""

    def __init__(self, text: str, language: Language) -> None:
        whole = text.replace("\r\n", "\n").replace("\r", "\n")  # as Pygments ends lines
        self.lines = whole.expandtabs(_TAB).split("\n")
        if not self.lines[-1]:
            self.lines.pop()
        self._coloured: list[Line] = []
        self._rest = None if language == "listing" else self._tokens(language)

    def line(self, index: int) -> Line:
        if self._rest is None:
            return _listing(self.lines[index])
        while len(self._coloured) <= index <= len(self._coloured) + _AHEAD:
            line = next(self._rest, None)
            if line is None:
                break
            self._coloured.append(line)
        if index < len(self._coloured):
            return self._coloured[index]
        return ((plain(self.lines[index], _LONGEST), ""),)

    def _tokens(self, language: Language) -> Iterator[Line]:
        options = {"stripnl": False, "ensurenl": False}
        lexer: Lexer = PythonLexer(**options) if language == "python" else CppLexer(**options)
        line: list[Span] = []
        for token, text in lexer.get_tokens("\n".join(self.lines)):
            style = next((style for kind, style in _STYLES if token in kind), "")
            first, *others = text.split("\n")
            line.append((plain(first, _LONGEST), style))
            for part in others:
                yield tuple(span for span in line if span[0])
                line = [(plain(part, _LONGEST), style)]
        yield tuple(span for span in line if span[0])


def _listing(text: str) -> Line:
    """A line of assembly or IR: its mnemonic, labels, comments."""
    text = text[:_LONGEST]
    spans: list[Span] = []
    at = 0
    for match in _LISTING.finditer(text):
        spans.append((plain(text[at : match.start()]), ""))
        spans.append((plain(match[0], _LONGEST), _LISTING_STYLES[match.lastgroup or "comment"]))
        at = match.end()
    spans.append((plain(text[at:], _LONGEST), ""))
    return tuple(span for span in spans if span[0])
