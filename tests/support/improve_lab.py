"""A captured graph of three products in a cache dir, and workers that answer with known times."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from typing import Any

from backend.disk.layout import Layout
from backend.model.choice import MeasuredChoice, Measurement
from backend.model.events import GraphCalled, GraphCompiled
from backend.model.graph import Graph
from backend.wire.jobs import MeasureJob, MeasureResult, TrialJob, TrialResult, WorkerJob
from rocm_tui.actions.sources import load_model
from rocm_tui.jobs.limits import JobError
from rocm_tui.search.types import TrialStep
from rocm_tui.session.graph_rows import GraphRow, graph_rows
from tests.support.graph_log import inputs, tune, use, writer_of
from tests.support.search_lab import Bench, Effect, additive

GRAPH = "aaaaaa1"
SYSTEM = "5" * 64
TEXT = "# a graph\n"


def write_graph(root: Path, text: str = TEXT) -> Layout:
    """Three tunings of two choices each, in a graph of 10 ms; their cache has the same times."""
    layout = Layout(root)
    writer = writer_of(root)
    times = {8: (2.0, 1.9), 16: (1.0, 1.05), 24: (0.3, 0.31)}
    cache: dict[str, Any] = {"mm": {}}
    for n, (m, (aten, triton)) in enumerate(times.items(), 1):
        tune(writer, n, m, aten, triton)
        cache["mm"][inputs(m)] = {"highest": {"mm-1": aten, "tri-1": triton}}
    uses = (use(8, 2), use(16, 1, "mm-1"), use(24, 1, "mm-1"))
    graph = Graph(GRAPH, "inference", None, "Net.forward", "cpu", 9, uses, captured=True)
    writer.write(GraphCompiled(1, 105.0, graph))
    writer.write(GraphCalled(1, 107.0, 80, 5, 10.0))
    writer.close()
    layout.graphs.mkdir(parents=True)
    (layout.graphs / f"{GRAPH}.py").write_text(text)
    layout.autotune.mkdir()
    document = {"system": {"hash": SYSTEM}, "cache": cache}
    (layout.autotune / SYSTEM).write_text(json.dumps(document))
    return layout


def graph_of(layout: Layout) -> GraphRow:
    (row,) = graph_rows(load_model(layout), layout)
    return row


@dataclass
class Workers:
    """A `RunJob`: what is measured alone and in the graph is given. `before` is called with each
    job; `torch` and `trouble` are what trials say of themselves."""

    effect: Effect = field(default_factory=lambda: additive({}))
    seed: str = ""
    noise: float = 0.001
    torch: str = "2.13.0"
    slower: float = 1.05
    failing: dict[str, str] = field(default_factory=dict)
    before: Callable[[WorkerJob[Any]], None] = lambda job: None
    trouble: Callable[[TrialJob], tuple[str, ...]] = lambda job: ()
    jobs: list[WorkerJob[Any]] = field(default_factory=list)

    def __call__(self, job: WorkerJob[Any]) -> Any:
        self.before(job)
        self.jobs.append(job)
        if isinstance(job, MeasureJob):
            return MeasureResult(True, measurement=self._measured(job))
        assert isinstance(job, TrialJob)
        seed = f"{self.seed} {len(self.jobs)}"
        bench = Bench(self.effect, seed, self.noise, failing=self.failing)
        try:
            made = bench.trial(TrialStep("screen", 1, 0, job.arms, job.error, job.budget))
        except RuntimeError as error:
            raise JobError(str(error)) from error
        trial = replace(made, graph=job.graph, when=float(len(self.jobs)), torch=self.torch)
        trial = replace(trial, device="cpu", trouble=self.trouble(job))
        return TrialResult(True, trial=trial)

    def _measured(self, job: MeasureJob) -> Measurement:
        best, *others = job.hashes
        choices = [MeasuredChoice(best, 1.0, 1, 1, 0.01, 40, 1.0, 1.0, 1.0, "faster", best)]
        by = self.slower
        choices += [
            MeasuredChoice(hash, by, by, by, 0.01, 40, by, by - 0.01, by + 0.01, "slower", hash)
            for hash in others
        ]
        return Measurement(job.op, job.inputs, job.precision, 200.0, tuple(choices), rounds=40)

    @property
    def trials(self) -> list[TrialJob]:
        return [job for job in self.jobs if isinstance(job, TrialJob)]


def gains(effects: dict[int, float]) -> Effect:
    """The log effect of the other choice of the tuning of `m` x 64 x 32."""
    return lambda arm: sum(
        effect for m, effect in effects.items() for swap in arm if swap.inputs == inputs(m)
    )


FIVE_PERCENT = log(0.95)
