"""`KEY=VALUE, ...` as Inductor prints a choice's configuration."""

from __future__ import annotations


def parse_config(text: str) -> dict[str, str]:
    """Split `A=1, B='x, y', C=[1, 2]` at the commas outside quotes and brackets.

    One pass, no backtracking. Quotes around a whole value are kept: `FLOAT32_PRECISION="'ieee'"`
    gives `'ieee'` inside its outer quotes stripped once. A part without `=` is left out.
    """
    found: dict[str, str] = {}
    depth, quote, start = 0, "", 0
    parts: list[str] = []
    for at, char in enumerate(text):
        if quote:
            if char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth = max(0, depth - 1)
        elif char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    for part in parts:
        key, equals, value = part.strip().partition("=")
        if equals and key.isidentifier():
            found[key] = _unquote(value)
    return found


def _unquote(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value
