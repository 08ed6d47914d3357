"""The number of threads of the process that tuned: from its log's header to the worker's job."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.model.events import ChoiceTimed, SessionStarted
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.wire.events import decode
from rocm_tui.actions.measure import measure_job
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.jobs.tune import problem_of, words_of
from rocm_tui.session.model import Model
from tests.support.format_lab import STARTED, cache_text, lines
from tests.support.watch_lab import HASH


def _tuning(cache: Path, session: Session) -> Tuning:
    """As it is joined from the log of a session and the persistent cache."""
    timed = ChoiceTimed(1, "mm-a", 1.5)
    for folder in (cache / "rocm_tui" / "sessions", cache / "cache"):
        folder.mkdir(parents=True)
    log = cache / "rocm_tui" / "sessions" / "s.jsonl"
    log.write_bytes(lines(SessionStarted(session), STARTED, timed))
    entry = {STARTED.op: {STARTED.inputs: {STARTED.precision: {"mm-a": 1.5}}}}
    (cache / "cache" / HASH).write_bytes(cache_text(entry))
    model = Model()
    model.apply(read_sources([str(cache)]))
    (row,) = model.rows()
    assert len(row.tuning.sources) == 2
    return row.tuning


@pytest.mark.parametrize("threads", [None, 3])
def test_jobs_ask_for_the_threads_that_the_tuning_had(tmp_path: Path, threads: int | None) -> None:
    tuning = _tuning(tmp_path, Session("s", threads=threads))
    timed = [choice for choice in tuning.choices if choice.ms is not None]
    assert measure_job(tuning, timed).threads == threads
    assert words_of(problem_of(tuning)).get("threads") == threads


def test_a_header_of_an_earlier_version_tells_none() -> None:
    old = '{"event":"session_started","session":{"id":"s","host":"box","pid":7}}'
    event = decode(old)
    assert isinstance(event, SessionStarted)
    assert event.session.threads is None and not event.session.locked
