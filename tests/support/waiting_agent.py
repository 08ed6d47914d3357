"""An agent that waits instead of tuning, as a real child process that speaks the protocol:
`waiting_agent.py NAME [HASH [UNITS [FACTOR]]]`. It waits for a unit's weight in seconds.

A unit whose title begins with `fails` has no result; with `own`, by its own fault; with `single`
there is one choice of it. Times are FACTOR times those of others; below 1 the winner is another.
Where UNITS is `cpu` it is a CPU's, which compiles two choices of each problem ahead, in that time.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from backend.model.choice import Choice
from backend.wire.jobs import CompileResult, TuneJob, TuneResult
from rocm_tui.fleet.messages import (
    BEAT,
    Beat,
    Compile,
    Compiled,
    Done,
    Facts,
    Hello,
    Offer,
    Stop,
    ToDriver,
    Unit,
    line_of,
    message_of,
)
from rocm_tui.fleet.pipe import Start

HASH = "5" * 64


def waiting_starts(names: list[str], *words: str) -> dict[str, Start]:
    return {name: Start((sys.executable, __file__, name, *words)) for name in names}


def waiting_unit(number: int, seconds: float, title: str = "") -> Unit:
    job = TuneJob("mm", f"[{number}]", "highest")
    return Unit(f"{number:07x}", title or f"mm {number}", job, weight=seconds)


class Waiter:
    def __init__(self, name: str, facts: Facts, factor: float) -> None:
        self._name = name
        self._facts = facts
        self._factor = factor
        self._lock = threading.Condition()
        self._offers: list[Offer | Compile] = []
        threading.Thread(target=self._work, daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()
        self._say(Hello(name, facts))

    def listen(self) -> None:
        for line in sys.stdin.buffer:
            message = message_of(line)
            if isinstance(message, Stop):
                return
            with self._lock:
                if isinstance(message, Offer | Compile):
                    self._offers.append(message)
                else:
                    lease = getattr(message, "lease", None)
                    self._offers = [each for each in self._offers if each.lease != lease]
                self._lock.notify_all()

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._offers:
                    self._lock.wait()
                offer = self._offers[0]
                end = time.monotonic() + offer.unit.weight
                while offer in self._offers and (left := end - time.monotonic()) > 0:
                    self._lock.wait(left)
                if offer not in self._offers:
                    continue
                self._offers.remove(offer)
            if isinstance(offer, Compile):
                result = CompileResult(ok=True, compiled=2)
                self._say(Compiled(self._name, offer.lease, offer.unit.id, result))
            else:
                self._say(self._done(offer))

    def _done(self, offer: Offer) -> Done:
        unit, title = offer.unit, offer.unit.title
        done = Done(self._name, offer.lease, unit.id, self._facts, seconds=unit.weight)
        if title.startswith(("fails", "own")):
            return Done(*_first(done), reason="it cannot", own=title.startswith("own"))
        if title.startswith("single"):
            return Done(*_first(done), reason="there is one", own=True, single=True)
        times = {"mm-1": 1.0 * self._factor, "mm-2": 2.0 * self._factor}
        if self._factor < 1:  # another winner than the others'
            times = {"mm-1": 2.0, "mm-2": 1.0}
        known = unit.known  # of a problem that may be split: what it is to take, by choice
        if known:
            left_out, only = unit.job.without or (), unit.job.only or known
            times = {name: known[name] for name in only if name not in left_out}
            times = {name: ms * self._factor for name, ms in times.items()}
        choices = sorted((ms, name) for name, ms in times.items())
        result = TuneResult(
            ok=True,
            op=unit.job.op,
            inputs=unit.job.inputs or "",
            precision=unit.job.precision or "",
            system_hash=self._facts.system_hash,
            choices=tuple(Choice(name, name, ms) for ms, name in choices),
            times=times,
            system={"hash": self._facts.system_hash},
        )
        return Done(*_first(done), result=result, seconds=unit.weight)

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT)
            with self._lock:
                leases = tuple(offer.lease for offer in self._offers)
            self._say(Beat(self._name, leases, clock=1700.0, power=600.0))

    def _say(self, message: ToDriver) -> None:
        os.write(1, line_of(message))


def _first(done: Done) -> tuple[str, str, str, Facts]:
    return done.agent, done.lease, done.unit, done.facts


def main() -> None:
    name, *rest = sys.argv[1:]
    system, units, factor = [*rest, *[HASH, "304", "1"][len(rest) :]]
    facts = Facts("box", "cpu", system_hash=system)
    if units != "cpu":
        facts = Facts(name, "waits", "gfx942", int(units), "SPX/NPS1", None, system, "2.13.0")
        facts = replace(facts, compilers={"triton": "a1"})
    facts = replace(facts, store="7")
    Waiter(name, facts, float(factor)).listen()


if __name__ == "__main__":
    main()
