"""Reading fields of a JSON object that a stranger wrote: each has the right type, or it raises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from backend.errors import ShareInvalid, brief

MAX_TEXT = 65_536
"""Characters of one text; an inputs key of 64 inputs has about 10,000."""


class Fields:
    """The members of one object; `where` is what messages call it. Raises ShareInvalid."""

    def __init__(self, value: object, where: str) -> None:
        self._where = where
        if not isinstance(value, dict):
            raise ShareInvalid(f"{where} is not a JSON object")
        self._members: Mapping[str, Any] = value

    def wrong(self, what: str, why: str) -> ShareInvalid:
        """The error for one member."""
        return ShareInvalid(f"{self._where}: {what} {why}")

    def text(self, name: str) -> str:
        """Any text that can be written to a file."""
        return self.checked(f"`{name}`", self._members.get(name))

    def name(self, name: str) -> str:
        """A text of one printable line, not empty."""
        found = self.text(name)
        if not found or not found.isprintable():
            raise self.wrong(f"`{name}`", f"is no name: {brief(found, 60)!r}")
        return found

    def optional_name(self, name: str) -> str | None:
        return None if self._members.get(name) is None else self.name(name)

    def whole(self, name: str) -> int:
        found = self._members.get(name)
        if type(found) is not int or not 0 <= found < 1 << 31:
            raise self.wrong(f"`{name}`", "is no whole number")
        return found

    def optional_whole(self, name: str) -> int | None:
        return None if self._members.get(name) is None else self.whole(name)

    def number(self, name: str, most: float) -> float:
        """A number from 0 to `most`."""
        found = _number(self._members.get(name))
        if found is None or found > most:
            raise self.wrong(f"`{name}`", f"is no number from 0 to {most:.0f}")
        return found

    def items(self, name: str) -> list[Any]:
        found = self._members.get(name)
        if not isinstance(found, list):
            raise self.wrong(f"`{name}`", "is no list")
        return found

    def objects(self, name: str) -> dict[str, Any]:
        """An object with printable keys."""
        found = self._members.get(name)
        if not isinstance(found, dict) or not all(key.isprintable() for key in found):
            raise self.wrong(f"`{name}`", "is no object of named members")
        return found

    def texts(self, name: str) -> dict[str, str]:
        """An object of texts."""
        found = self.objects(name).items()
        return {key: self.checked(f"`{name}`, {brief(key, 40)}", text) for key, text in found}

    def checked(self, what: str, value: object) -> str:
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            raise self.wrong(what, "is no text" if not isinstance(value, str) else "is too long")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise self.wrong(what, "holds half a character") from error
        return value


def times_of(fields: Fields, precision: str, item: object) -> dict[str, float]:
    """The milliseconds by choice hash of one precision; null is a failed choice: `inf`."""
    what = f"`timings`, {brief(precision, 40)}"
    if not isinstance(item, dict):
        raise fields.wrong(what, "is no object")
    times: dict[str, float] = {}
    for name, value in item.items():
        found = math.inf if value is None else _number(value)
        if found is None or not name.isprintable():
            raise fields.wrong(what, f"has no time for {brief(name, 60)}")
        times[name] = found
    return times


def _number(value: object) -> float | None:
    """A finite number that is not negative."""
    if type(value) not in (int, float):
        return None
    assert isinstance(value, (int, float))
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None
