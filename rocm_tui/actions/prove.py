"""Are the pins of a graph worth it? Stock processes with and without them, alternately.

Each process compiles the captured graph as a program does that knows nothing of us: with the
person's cache dir and its pins, or with a copy of its tunings in which nothing is pinned. The order
within a pair is drawn, and the interval comes from how the pairs differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from backend.cache.autotune import copy_unpinned
from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.measure.trial import ERROR, LEAST_PROCESSES, across_processes
from backend.model.graph import TrialArm
from backend.pins.state import PinStatus
from backend.pins.store import PinStore
from backend.wire.jobs import TrialJob
from rocm_tui.actions.trial import NotTried, private_folder, text_of
from rocm_tui.config.settings import config
from rocm_tui.harmless import plain
from rocm_tui.jobs.run import RunJob, RunJobAt
from rocm_tui.search.types import GraphProof, note_with
from rocm_tui.session.graph_rows import GraphRow

PAIRS = 8
"""From eight on the interval leaves the most extreme pair at either end out."""


def pins_of(graph: GraphRow, statuses: Sequence[PinStatus]) -> tuple[PinStatus, ...]:
    """The pins of tunings that the graph holds; a pin holds in every precision."""
    held = {(key.op, key.inputs) for key in graph.tunings}
    system = graph.session.system_hash if graph.session else None
    return tuple(
        status
        for status in statuses
        if (status.pin.op, status.pin.inputs) in held and system in (None, status.pin.system_hash)
    )


class Proving:
    """Runs the pairs. `tell` is called before each process with its number and their total."""

    def __init__(
        self,
        run: RunJobAt,
        layout: Layout,
        graph: GraphRow,
        *,
        pairs: int = PAIRS,
        budget: float | None = None,
        tell: Callable[[int, int, bool], None] = lambda number, total, pinned: None,
        seed: int | None = None,
    ) -> None:
        """Raises NotTried where nothing of the graph is pinned."""
        self._run = run
        self._layout = layout
        self._graph = graph
        self._pairs = max(LEAST_PROCESSES, pairs)
        self._tell = tell
        self._chance = random.Random(seed)
        threads = graph.session.threads if graph.session else None
        budget = config().budgets.prove if budget is None else budget
        self._job = TrialJob(
            graph.id, ((),), budget=budget, threads=threads, stock=True, fresh=True
        )
        self._pins = pins_of(graph, PinStore(layout).status())
        if not self._pins:
            raise NotTried(f"nothing that graph {graph.id} holds is pinned, so there is no proof")

    def go(self) -> GraphProof:
        """Raises JobError, NotTried and StoreErrors."""
        arms: dict[bool, list[TrialArm]] = {False: [], True: []}
        with private_folder(self._layout) as private:
            self._copy(private)
            for number in range(self._pairs):
                order = [False, True]
                self._chance.shuffle(order)
                for at, pinned in enumerate(order, 1):
                    self._tell(2 * number + at, 2 * self._pairs, pinned)
                    run = self._run if pinned else self._run.at(private)
                    arms[pinned].append(self._arm(run))
        return self._proof(arms[False], arms[True])

    def _copy(self, private: Layout) -> None:
        """The person's tunings without pins, and the graph's text."""
        copy_unpinned(self._layout, private)
        text = text_of(self._layout, self._graph.id)
        safe.make_folder(private.root, private.graphs)
        path = private.graphs / text.path.name
        with safe.locked(private.root, path):
            safe.write_atomic(path, text.data)

    def _arm(self, run: RunJob) -> TrialArm:
        """Run one process, which compiles the graph. Raises NotTried."""
        result = run(self._job)
        if result.trial is None or not result.ok or not result.trial.arms:
            raise NotTried(plain(result.reason or "the worker gave no trial"))
        arm = result.trial.arms[0]
        if arm.ms is None:
            raise NotTried(plain(arm.failed or "no pass was timed"))
        return arm

    def _proof(self, without: Sequence[TrialArm], pinned: Sequence[TrialArm]) -> GraphProof:
        times = [
            {0: before.ms or 0.0, 1: after.ms or 0.0}
            for before, after in zip(without, pinned, strict=True)
        ]
        before, after = across_processes(times, error=ERROR)
        return GraphProof(
            graph=self._graph.id,
            pins=self._pins_now(),
            ratio=after.ratio,
            low=after.ratio_low,
            high=after.ratio_high,
            verdict=after.verdict,
            before=before.ms,
            after=after.ms,
            pairs=self._pairs,
            kernels_before=without[-1].kernels,
            kernels_after=pinned[-1].kernels,
        )

    def _pins_now(self) -> tuple[PinStatus, ...]:
        """Return the graph's pins; those of the beginning if they cannot be read now, because no
        error may hide the result of all processes."""
        try:
            return pins_of(self._graph, PinStore(self._layout).status())
        except StoreError:
            return self._pins


# The figure goes into the notes of the pins.


def annotate(layout: Layout, proof: GraphProof, figure: str) -> str:
    """Put the figure into the notes of the graph's pins that are still pinned. Return why it is not
    in all of them, or an empty text: a proof took minutes, so no error may hide its result."""
    store = PinStore(layout)
    try:
        for status in proof.pins:
            note = note_with(status.pin.note, proof.graph, figure, proof.verdict != "unclear")
            store.annotate(status.pin, note)
    except StoreError as error:
        return plain(f"the figure is not in the notes of all pins: {error}")
    return ""
