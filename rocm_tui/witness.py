"""What the code that a program compiled, or found compiled, says of pins."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from backend.pins.graphs.match import Verdict, Wanted, judge, may_hold
from backend.pins.graphs.text import GraphText, read_graph_text
from backend.records import Choice, Pin

Answer = Literal["called", "other", "unknown", "untuned", "absent"]
"""All code with these inputs calls the pinned choice; some calls another; of some it cannot be
told; all was compiled without autotuning; there is none."""

ANOTHER = "another choice"


@dataclass(slots=True)
class Finding:
    """How many graphs call the pinned choice of `pin`, another (by its label), one that the text
    does not tell, or hold the op untuned. The same graph in several processes counts once."""

    pin: Pin
    called: int = 0
    others: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    untuned: int = 0

    @property
    def graphs(self) -> int:
        """Those that are tuned."""
        return self.called + self.others.total() + self.unknown

    @property
    def answer(self) -> Answer:
        if self.others:
            return "other"
        if self.unknown:
            return "unknown"
        if self.called:
            return "called"
        return "untuned" if self.untuned else "absent"


class Witness:
    """Hears one graph after another. `choices` are what is known of the choices of a key, by key:
    names, and the configurations that tell Triton templates apart."""

    def __init__(self, pins: Sequence[Pin], choices: Mapping[object, Mapping[str, Choice]]) -> None:
        self.findings = [Finding(pin) for pin in pins]
        self.graphs = 0
        """All that were heard of, whatever they hold."""
        self.unread = 0
        """Those whose code is of a form that is not understood."""
        self._choices = choices
        self._heard: set[bytes] = set()

    def hear(self, data: bytes) -> None:
        """Take the text of a graph, as an entry of the graph cache holds it."""
        digest = hashlib.sha256(data).digest()
        if digest in self._heard:
            return
        self._heard.add(digest)
        self.graphs += 1
        text = read_graph_text(data)
        if not text.is_compiled:
            self.unread += 1
            return
        for finding in self.findings:
            if may_hold(data, self._wanted(finding.pin, finding.pin.hash)):
                self._judge(finding, text)

    def _judge(self, finding: Finding, text: GraphText) -> None:
        verdict = self._verdict(finding.pin, finding.pin.hash, text)
        if verdict == "same":
            finding.called += 1
        elif verdict == "unknown":
            finding.unknown += 1
        elif verdict == "other":
            finding.others[self._instead(finding.pin, text)] += 1
        elif text.tuned is False:
            found = self._verdict(finding.pin, finding.pin.hash, replace(text, tuned=None))
            finding.untuned += found != "absent"

    def _instead(self, pin: Pin, text: GraphText) -> str:
        """The label of the rival that a graph calls."""
        known = self._choices.get(pin.key, {})
        for rival in _rivals(pin):
            if rival != pin.hash and self._verdict(pin, rival, text) == "same":
                return known.get(rival, Choice(hash=rival)).label
        return ANOTHER

    def _verdict(self, pin: Pin, hash: str, text: GraphText) -> Verdict:
        return judge(text, self._wanted(pin, hash))

    def _wanted(self, pin: Pin, hash: str) -> Wanted:
        choice = self._choices.get(pin.key, {}).get(hash)
        config = choice.config if choice is not None else {}
        return Wanted(pin.op, pin.inputs, hash, _rivals(pin), config)


def _rivals(pin: Pin) -> tuple[str, ...]:
    """The choices that could be called: those that were timed, in any precision."""
    timed = {
        hash for times in pin.timings.values() for hash, ms in times.items() if math.isfinite(ms)
    }
    return tuple(sorted(timed))
