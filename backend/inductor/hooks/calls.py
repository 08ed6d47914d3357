"""The calls of a graph and their times, recorded without the program noticing.

Each call counts down a number in a closure. The call that reaches zero is timed, and sets the
number of calls until the next one, so that timing takes less than `BUDGET` of the host time of the
graph's calls: that bounds the cost of all graphs of a program together. The timed call is drawn at
random; otherwise a program that alternates between long and short inputs might be sampled only at
its long ones.

The first calls are skipped: they load kernels, tune, record CUDA graphs. A sample represents all
calls since the previous one.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from backend.inductor.guard import pass_on_if_a_handlers
from backend.inductor.torch.compiled import Calling, StreamTimes
from backend.model.graph import Clock, GraphTimes

BUDGET = 0.002
"""The maximum share of a graph's host time spent on timing its calls."""
FREE = 30
"""Samples per second, of all graphs together, that are always taken."""

SKIPPED = 1
SKIPPED_CUDAGRAPHS = 4
"""First calls that are never timed; with CUDA graphs one warms up, one records."""

MAX_STEP = 1 << 20
SPACING_SHARE = 1 / 500
MIN_SPACING, MAX_SPACING = 0.001, 1.0
"""Seconds between two samples of a graph: a share of the time for which it has been sampled."""

MAX_PENDING = 64
"""The maximum of samples with pending events; beyond that none is taken."""


def next_step(
    *, cost: float, host: float, period: float, graphs: int, spacing: float, last: int
) -> int:
    """Return the number of calls to the next sample: `cost` is seconds per sample, `host` seconds
    per call on the host, `period` the time from call to call, `graphs` the number of graphs called.

    At most twice `last` if that costs little: otherwise a program that becomes slow after a fast
    beginning would hardly be sampled again.
    """
    if period <= 0:
        return 1
    affordable = cost / (BUDGET * host) if host > 0 else MAX_STEP
    least = min(affordable, max(1.0, graphs / FREE) / period)
    return max(1, min(int(max(least, min(spacing / period, 2 * last))) + 1, MAX_STEP))


class GraphCalls:
    """The calls of one graph, of all its copies in the process."""

    def __init__(
        self,
        *,
        stream: StreamTimes | None,
        host: bool,
        skipped: int = SKIPPED,
        graphs: Callable[[], int] = lambda: 1,
        idle: Callable[[], bool] = lambda: True,
        after: Callable[[float], None] = lambda now: None,
        clock: Callable[[], float] = time.perf_counter,
        draw: Callable[[], float] | None = None,
    ) -> None:
        """Time by `stream`, else by the host's clock if `host` permits. `idle` returns whether a
        call may be timed now, `graphs` the program's number of graphs; `after` is called after each
        sample, with the clock."""
        self._stream = stream
        self._times = stream is not None or host
        self._skipped = skipped
        self._graphs = graphs
        self._idle = idle
        self._after = after
        self._clock = clock
        self._draw = draw or random.Random().random
        self._counters: list[Callable[[], int]] = []
        self._pending: deque[tuple[Any, int]] = deque()
        self._begin()

    def _begin(self) -> None:
        self._collecting = threading.Lock()
        self._step = 1
        self._cost = self._host = 0.0
        self._first = 0.0
        self._last: tuple[float, int] | None = None
        self._timed = 0
        self._weight = 0
        self._weighted_ms = 0.0
        self._base = self._count()
        self._sampled_at = self._base

    @property
    def by(self) -> Clock:
        return "host" if self._stream is None else "device"

    def restart(self) -> None:
        """Reset all counts; a forked child begins anew."""
        self._pending.clear()
        self._begin()

    def stop(self) -> None:
        """Stop timing."""
        self._times = False

    def _count(self) -> int:
        return sum(counter() for counter in self._counters)

    def times(self) -> GraphTimes:
        """Return the counts and times so far; waits for nothing."""
        self._collect()
        ms = self._weighted_ms / self._weight if self._weight else None
        return GraphTimes(self._count() - self._base, self._timed, ms, self.by)

    def wrap(self, stock: Calling) -> Calling:
        """Return `stock` with its calls counted, and some of them timed."""
        clock = self._clock
        left = given = self._skipped + 1

        def counted(inputs: Any) -> Any:
            nonlocal left, given
            left -= 1
            if left > 0:
                return stock(inputs)
            entered = clock()
            step = self._next()  # before the call, since other threads may call meanwhile
            left += step
            given += step
            begun = self._begun(entered)
            result = stock(inputs)
            if begun is not None:
                self._ended(begun)
            return result

        self._counters.append(lambda: given - left)
        return counted

    def _next(self) -> int:
        if not self._times:
            return MAX_STEP
        return 1 + int(self._draw() * (2 * self._step - 1))

    def _begun(self, entered: float) -> tuple[float, float, Any] | None:
        try:
            if not self._times or not self._idle() or len(self._pending) >= MAX_PENDING:
                self._collect()
                return None
            pair = None
            if self._stream is not None:
                pair = self._stream.begin()
                if pair is None:
                    return None
            return entered, self._clock(), pair
        except Exception as error:
            pass_on_if_a_handlers(error)
            self.stop()  # a failed GPU also raises in the program
            return None

    def _ended(self, begun: tuple[float, float, Any]) -> None:
        try:
            entered, called, pair = begun
            returned = self._clock()
            count = self._count()
            weight = max(1, count - self._sampled_at)
            if pair is None:
                self._add((returned - called) * 1e3, weight)
            elif self._stream is not None and self._stream.end(pair):
                self._pending.append((pair, weight))
            else:
                return
            self._sampled_at = count
            self._collect()
            self._plan(called - entered, returned - called, returned, count)
            self._after(returned)
        except Exception as error:
            pass_on_if_a_handlers(error)
            self.stop()

    def _collect(self) -> None:
        if self._stream is None or not self._collecting.acquire(blocking=False):
            return
        try:
            while self._pending:
                pair, weight = self._pending[0]
                ms = self._stream.passed(pair)
                if ms is None:
                    return
                self._pending.popleft()
                self._add(ms, weight)
        finally:
            self._collecting.release()

    def _add(self, ms: float, weight: int) -> None:
        self._timed += 1
        self._weight += weight
        self._weighted_ms += weight * ms

    def _plan(self, before: float, host: float, returned: float, count: int) -> None:
        """Determine the number of calls to the next sample."""
        now = self._clock()
        cost = before + now - returned
        if self._last is None:  # the first time takes longer
            self._first, self._last, self._host = now, (now, count), host
            return
        share = 0.2 if self._cost else 1.0
        self._cost += share * (cost - self._cost)
        self._host += share * (host - self._host)
        when, then = self._last
        self._last = now, count
        spacing = (now - self._first) * SPACING_SHARE
        self._step = next_step(
            cost=self._cost,
            host=self._host,
            period=(now - when) / (count - then) if count > then else 0.0,
            graphs=self._graphs(),
            spacing=min(max(spacing, MIN_SPACING), MAX_SPACING),
            last=self._step,
        )
