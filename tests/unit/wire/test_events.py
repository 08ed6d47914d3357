"""The event log: what is written is read, whatever happens to the file."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter, read_log
from backend.errors import EventInvalid
from backend.model.choice import Choice
from backend.model.events import (
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    SessionEnded,
    SessionStarted,
    TuningFailed,
    TuningStarted,
)
from backend.model.session import Session
from backend.wire.events import decode, encode
from tests.support.store_disks import mounted

SESSION = Session(
    "abc", host="gpu/box\n1", pid=7, argv=("train.py", "--x=\x1b[31m"), torch="2.13.0"
)

STARTED = TuningStarted(
    n=1,
    when=1.5,
    op="bmm",
    inputs="[]",
    precision="highest",
    shapes=((1, 2), ()),
    strides=((2, 1), ()),
    dtypes=("torch.float32",),
    device="cpu",
    choices=(Choice("bmm", "bmm-c1"), Choice("cpp_0", "Cpp-c2", failed=True, reason="no [/]")),
)

ALL = [
    SessionStarted(SESSION),
    STARTED,
    ChoiceCompiled(1, "h", None),
    ChoiceTimed(1, "h", 0.1 + 0.2),
    ChoiceTimed(1, "h", math.inf),
    ChoiceFailed(1, "h", "benchmark", "out of\nresource"),
    ChoiceSelected(1, 2.0, "h", "pin", 0.5, None),
    TuningFailed(2, 3.0, "ü\x00"),
    SessionEnded(9.0),
]


@pytest.mark.parametrize("event", ALL, ids=lambda event: type(event).__name__)
def test_every_event_round_trips_in_one_strict_line(event: Event) -> None:
    line = encode(event)
    assert "\n" not in line
    json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert decode(line) == event


def test_what_a_later_version_adds_is_tolerated() -> None:
    assert decode('{"event": "kernel_dreamt", "n": 1}') is None
    assert decode('{"event": "session_ended", "when": 1, "mood": []}') == SessionEnded(1.0)


@given(
    st.one_of(
        st.text(max_size=60),
        st.builds(
            json.dumps,
            st.recursive(
                st.none() | st.booleans() | st.floats() | st.text() | st.just("choice_timed"),
                lambda inner: (
                    st.lists(inner)
                    | st.dictionaries(
                        st.sampled_from(["event", "n", "hash", "ms", "session", "x"]), inner
                    )
                ),
                max_leaves=8,
            ),
        ),
    )
)
def test_any_line_is_an_event_or_one_clear_error(line: str) -> None:
    try:
        decode(line)
    except EventInvalid as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "choice_timed", "n": 1, "hash": "h"}',
        '{"event": "choice_timed", "n": "1", "hash": "h", "ms": 1}',
        '{"event": "choice_timed", "n": true, "hash": "h", "ms": 1}',
        '{"event": "choice_timed", "n": 1, "hash": "h", "ms": NaN}',
        '{"event": "choice_failed", "n": 1, "hash": "h", "phase": "lunch", "reason": ""}',
        "[" * 100_000,
        "null",
    ],
)
def test_malformed(line: str) -> None:
    with pytest.raises(EventInvalid):
        decode(line)


def test_a_log_is_made_at_the_first_event_and_begins_with_the_session(tmp_path: Path) -> None:
    writer = EventWriter(Layout(tmp_path / "cache"), SESSION)
    assert not (tmp_path / "cache").exists()
    assert writer.write(STARTED)
    writer.close()
    assert writer.path.parent == tmp_path / "cache" / "rocm_tui" / "sessions"
    assert read_log(writer.path) == ([SessionStarted(SESSION), STARTED], [])


def test_a_torn_last_line_and_bad_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    good = encode(STARTED).encode()
    path.write_bytes(b"\xff\n" + b"junk\n" * 50 + good + b"\n" + good[:30])
    found, problems = read_log(path)
    assert found == [STARTED]
    assert problems[0].line == 1 and problems[1].line == 2
    assert problems[-1].what == "31 more lines are not events"
    assert read_log(tmp_path / "missing")[1]


def test_threads_and_forked_children_never_mix(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    writer = EventWriter(layout, SESSION)

    def many(n: int) -> None:
        for i in range(200):
            writer.write(ChoiceTimed(n, "h" * i, 1.0))

    threads = [threading.Thread(target=many, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    pid = os.fork()
    if pid == 0:
        writer.write(SessionEnded(1.0))
        os._exit(0 if writer.error is None else 1)
    assert os.waitpid(pid, 0)[1] == 0
    for thread in threads:
        thread.join()
    logs = {path: read_log(path) for path in layout.sessions.iterdir()}
    assert len(logs) == 2 and not any(problems for _, problems in logs.values())
    assert len(logs[writer.path][0]) == 801
    (other,) = [found for path, (found, _) in logs.items() if path != writer.path]
    assert isinstance(other[0], SessionStarted) and other[0].session.pid == pid
    assert other[1:] == [SessionEnded(1.0)]


def test_a_writer_never_raises(tmp_path: Path) -> None:
    (tmp_path / "rocm_tui").symlink_to("/")
    writer = EventWriter(Layout(tmp_path), SESSION)
    assert not writer.write(STARTED)
    assert writer.error is not None and "symlink" in writer.error
    assert not writer.write(STARTED)
    writer.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as folder:
        yield folder


def test_a_full_disk_ends_the_log_with_whole_lines(small_disk: Path) -> None:
    writer = EventWriter(Layout(small_disk), SESSION)
    big = TuningFailed(1, 1.0, "x" * 30_000)
    while writer.write(big):
        pass
    assert writer.error is not None and "disk is full" in writer.error
    found, problems = read_log(writer.path)
    assert not problems and len(found) > 3
