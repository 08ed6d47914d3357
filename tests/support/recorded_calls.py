"""What one program had tuned, and what can be done with each of it afterwards, in one worker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.cache.autotune import copy_unpinned
from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.events import GraphCompiled
from backend.model.graph import Graph, Swap
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from backend.wire.jobs import TrialJob, WorkerJob, job_words
from rocm_tui.actions.measure import measure_job
from rocm_tui.actions.sources import load_model
from rocm_tui.actions.verify_program import pins_to_verify
from rocm_tui.jobs.tune import TuneOptions, problem_of, tune_job
from rocm_tui.jobs.worker import Worker, spawn_worker
from tests.support.hooked import launch_program, sessions


@dataclass(frozen=True)
class Recorded:
    tunings: list[Tuning]
    graphs: list[Graph]
    layout: Layout
    worker: Worker
    trying: Worker

    def of(self, op: str) -> Tuning:
        return next(tuning for tuning in self.tunings if tuning.op == op)

    def timed(self, op: str) -> list[Choice]:
        """Those that have a time, the fastest first; where none has one, all."""
        known = [choice for choice in self.of(op).choices if choice.hash]
        timed = [choice for choice in known if choice.ms is not None]
        return sorted(timed or known, key=lambda choice: choice.ms or 0.0)

    def do(self, job: WorkerJob[Any]) -> dict[str, Any]:
        return self.worker.exchange(job_words(job))

    def check_measured(self, op: str) -> None:
        some = [self.timed(op)[0], self.timed(op)[-1]]
        result = self.do(measure_job(self.of(op), some, budget=0.4, rounds=3))
        assert result["ok"] and not result["measurement"]["failed"], result
        assert "not checked" not in " ".join(result["measurement"]["trouble"])

    def check_tuned(self, op: str) -> None:
        tuning = self.of(op)
        result = self.do(tune_job(problem_of(tuning), TuneOptions()))
        assert result["ok"] and result["inputs"] == tuning.inputs_key, result
        tuned = {choice["hash"] for choice in result["choices"]}
        assert tuned >= {choice.hash for choice in tuning.choices}

    def check_pinned(self, op: str) -> None:
        """To what is not the fastest; a worker then compiles that."""
        tuning, wanted = self.of(op), self.timed(op)[1]
        assert tuning.key is not None and wanted.hash is not None
        store = PinStore(self.layout)
        store.pin(None, tuning.key, wanted.hash, label=wanted.label)
        pins = [status.pin for status in store.status() if status.pin.inputs == tuning.inputs_key]
        [asked] = pins_to_verify([pin for pin in pins if pin.op == op], self.layout)
        result = self.do(asked.job())
        assert (result["ok"], result["hash"]) == (True, wanted.hash), result

    def check_tried(self, op: str) -> None:
        """With two choices in turn."""
        key = self.of(op).key
        [graph] = [one for one in self.graphs if key in {use.key for use in one.tunings}]
        assert key is not None and graph.captured, graph.uncaptured
        some = [self.timed(op)[0], self.timed(op)[-1]]
        swaps = [(Swap(key.op, key.inputs, key.precision, each.hash or ""),) for each in some]
        job = TrialJob(graph.id, ((), *swaps), budget=0.3, rounds=3, root=str(self.layout.root))
        result = self.trying.exchange(job_words(job))
        assert result["ok"], result
        assert [arm["failed"] for arm in result["trial"]["arms"]] == [""] * 3
        assert all(arm["error"] <= arm["allowed"] for arm in result["trial"]["arms"])


@contextmanager
def recorded(program: str, folder: Path) -> Iterator[Recorded]:
    """Run `program` once and keep the text of its graphs."""
    layout = Layout(folder / "cache")
    launch_program(program, layout.root, env={"ROCM_TUI_CAPTURE": "1"})
    tunings = [row.tuning for row in load_model(layout).rows()]
    events = [event for session in sessions(layout.root) for event in session]
    graphs = [event.graph for event in events if isinstance(event, GraphCompiled)]
    private = Layout(layout.graphs / "cache")
    copy_unpinned(layout, private)
    with (
        spawn_worker(sys.executable, layout.root) as worker,
        spawn_worker(sys.executable, private.root) as trying,
    ):
        yield Recorded(tunings, graphs, layout, worker, trying)
