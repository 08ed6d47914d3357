"""The text of a kernel as lines in colours: C++ and Python by Pygments, compilers' listings by what
a line of theirs looks like. Only lines that are asked for are coloured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pygments.lexer import Lexer
from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, String, _TokenType

from rocm_tui.harmless import plain
from rocm_tui.render.table import Line, Span

if TYPE_CHECKING:  # a type only: the templates behind it take long to load
    from rocm_tui.session.kernel_source import Language

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
            style = _style(token)
            first, *others = text.split("\n")
            line.append((plain(first, _LONGEST), style))
            for part in others:
                yield tuple(span for span in line if span[0])
                line = [(plain(part, _LONGEST), style)]
        yield tuple(span for span in line if span[0])


def _style(token: _TokenType) -> str:
    return next((style for kind, style in _STYLES if token in kind), "")


def _listing(text: str) -> Line:
    """A line of assembly or IR: its mnemonic, labels, comments."""
    text = text[:_LONGEST]
    spans: list[Span] = []
    at = 0
    for found in _LISTING.finditer(text):
        spans.append((plain(text[at : found.start()]), ""))
        spans.append((plain(found[0], _LONGEST), _LISTING_STYLES[found.lastgroup or "comment"]))
        at = found.end()
    spans.append((plain(text[at:], _LONGEST), ""))
    return tuple(span for span in spans if span[0])
