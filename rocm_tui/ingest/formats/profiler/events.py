"""The events of a chrome trace one by one, out of bytes that come in pieces.

Such a file is one JSON object of hundreds of megabytes, so it is never held: what is kept is what
has come of one event.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

MAX_EVENT = 4 << 20
"""Characters of one event; a longer one is damage."""
_HEAD = 64 << 10
"""Characters before the events that are kept, for what they tell of the process."""
_EVENTS = re.compile(r'"traceEvents"\s{0,100}:\s{0,100}\[')
_BETWEEN = re.compile(r"[\s,]*")
_DECODE = json.JSONDecoder().raw_decode


class TraceEvents:
    """Takes bytes and gives objects. `head` is the text before the events; `ended` tells that all
    of them were read, `damaged` that the rest makes no sense and is left out."""

    def __init__(self) -> None:
        self.head = ""
        self.ended = False
        self.damaged = False
        self._text = ""
        self._inside = False
        self._tried = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    @property
    def torn(self) -> bool:
        """Whether the text that has come stops before the end of the events."""
        return not self.ended and not self.damaged

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Take the next bytes; the events that are whole by now."""
        if self.ended or self.damaged:
            return
        self._text += self._decode(data)
        if not self._inside and not self._enter():
            return
        if len(self._text) >= 2 * self._tried:  # one long event is not tried again and again
            yield from self._objects()

    def rest(self) -> Iterator[dict[str, Any]]:
        """The events that are whole, should no more come for now."""
        if self._inside and self.torn:
            yield from self._objects()

    def _enter(self) -> bool:
        """Find where the events begin."""
        start = _EVENTS.search(self._text)
        end = len(self._text) - 400 if start is None else start.end()
        if end > 0:
            self.head = (self.head + self._text[:end])[:_HEAD]
            self._text = self._text[end:]
        self._inside = start is not None
        return self._inside

    def _objects(self) -> Iterator[dict[str, Any]]:
        text, at, self._tried = self._text, 0, 0
        while True:
            between = _BETWEEN.match(text, at)
            at = between.end() if between else at
            if at >= len(text):
                break
            if text[at] == "]":
                self.ended = True
                break
            try:
                event, at = _DECODE(text, at)
            except (ValueError, RecursionError):
                self.damaged = len(text) - at > MAX_EVENT or text[at] != "{"
                self._tried = len(text) - at
                break
            if isinstance(event, dict):
                yield event
        self._text = "" if self.ended or self.damaged else text[at:]
