"""What is recorded of compiled graphs, which are made by hand here: when, how often, and once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.inductor.hooks import graphs, recording, tuning_watch
from backend.inductor.hooks.environment import CAPTURE, CacheDirs
from backend.inductor.hooks.graphs import GraphWatch, install, keep_text, kept_uses
from backend.inductor.hooks.recording import Recorder
from backend.inductor.hooks.tuning_watch import TuningWatch
from backend.model.events import Event, GraphCalled, GraphCompiled, SessionStarted
from backend.model.graph import TuningUse
from backend.model.problem import TuningKey

pytestmark = pytest.mark.torch

TEXT = """class G(torch.nn.Module):
    def forward(self, a):
        # File: model.py:1 in forward
        add: "f32[4]" = torch.ops.aten.add.Tensor(a, 1);  a = None
        return (add,)
"""
KEY = TuningKey("mm", "[]", "highest")
USE = TuningUse("mm", "[]", "highest", 1, "mm-c1")


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv(CAPTURE, raising=False)
    for module in (recording, graphs):
        monkeypatch.setattr(module, "home", CacheDirs(tmp_path))
    monkeypatch.setattr(recording.atexit, "register", lambda *_: None)
    return Layout(tmp_path)


@pytest.fixture
def watch(layout: Layout) -> GraphWatch:
    return GraphWatch(Recorder())


def ready(text: str = TEXT, **more: Any) -> Any:
    """As torch's `CompiledFxGraph`."""
    facts = {
        "fx_kwargs": {"is_inference": True}, "inductor_post_grad_graph_str": text,
        "_fx_graph_cache_key": "fkey", "device_types": {"cpu"}, "device_idxs": set(),
        "cudagraph_info": None, "current_callable": lambda inputs: inputs,
    }  # fmt: skip
    return SimpleNamespace(**{**facts, **more})


def compiled(watch: GraphWatch, graph: Any, *hashes: str) -> Any:
    """Compile a graph that calls these choices."""

    def stock(gm: Any, inputs: Any) -> str:
        for hash in hashes:
            tuning = TuningWatch(1, KEY, lambda event: None)
            tuning.hash = hash
            with tuning_watch.selecting(tuning):
                pass
        watch.ready(graph)
        return "compiled"

    assert watch.compile(stock, None, []) == "compiled"  # type: ignore[arg-type]
    return graph


def events_of(layout: Layout) -> list[Event]:
    (path,) = layout.sessions.glob("*.jsonl")
    start, *events = read_log(path)[0]
    assert isinstance(start, SessionStarted)
    return events


def test_a_graph_is_recorded_with_its_tunings_and_its_calls(
    layout: Layout, watch: GraphWatch
) -> None:
    begun = time.time()
    graph = compiled(watch, ready(), "mm-c1")
    (event,) = events_of(layout)
    assert isinstance(event, GraphCompiled) and event.g == 1
    assert begun <= event.when <= time.time()
    found = event.graph
    assert (found.id, found.key, found.kind) == (graphs.graph_id(TEXT), "fkey", "inference")
    assert (found.device, found.nodes, found.tunings) == ("cpu", 1, (USE,))
    assert (found.captured, found.uncaptured) == (False, "")
    watch.write_calls()
    assert len(events_of(layout)) == 1, "it was not called"
    inputs = [object()]
    assert all(graph.current_callable(inputs) is inputs for _ in range(3))
    watch.write_calls()
    watch.write_calls()
    _, called = events_of(layout)
    assert isinstance(called, GraphCalled)
    assert (called.g, called.calls, called.by) == (1, 3, "host") and called.timed >= 1
    assert begun <= called.when <= time.time()
    graph.current_callable(inputs)
    watch.write_calls()
    assert [e.calls for e in events_of(layout) if isinstance(e, GraphCalled)] == [3, 4]


def test_the_tunings_of_a_cached_graph_are_those_that_an_earlier_process_stored(
    layout: Layout, watch: GraphWatch
) -> None:
    compiled(watch, ready(), "mm-c1")
    id = graphs.graph_id(TEXT)
    assert kept_uses(layout, id, "fkey") == (USE,) and kept_uses(layout, id, None) == ()
    later = GraphWatch(Recorder())
    later.ready(ready())
    compiled(later, ready(TEXT.replace("add", "sub")))
    logs = [list(read_log(path)[0]) for path in layout.sessions.glob("*.jsonl")]
    kept = [[e.graph.tunings for e in log if isinstance(e, GraphCompiled)] for log in logs]
    assert sorted(kept, key=len) == [[(USE,)], [(USE,), ()]]


def test_a_graph_that_is_compiled_again_keeps_its_number(layout: Layout, watch: GraphWatch) -> None:
    for hashes in (("mm-c1",), ("mm-c1",), ("tri-1",)):
        compiled(watch, ready(), *hashes)
    compiled(watch, ready(TEXT.replace("add", "sub")))
    events = [event for event in events_of(layout) if isinstance(event, GraphCompiled)]
    assert [(event.g, [use.hash for use in event.graph.tunings]) for event in events] == [
        (1, ["mm-c1"]), (1, ["tri-1"]), (2, []),
    ]  # fmt: skip


@pytest.mark.parametrize(("cudagraphs", "skipped"), [(None, 1), (object(), 4)])
def test_the_first_calls_are_not_timed(
    layout: Layout, watch: GraphWatch, cudagraphs: object, skipped: int
) -> None:
    graph = compiled(watch, ready(cudagraph_info=cudagraphs))
    for _ in range(skipped):
        graph.current_callable([])
    watch.write_calls()
    graph.current_callable([])
    watch.write_calls()
    calls = [event for event in events_of(layout) if isinstance(event, GraphCalled)]
    assert [(event.calls, event.timed) for event in calls] == [(skipped, 0), (skipped + 1, 1)]


def test_calls_on_another_device_are_only_counted(layout: Layout, watch: GraphWatch) -> None:
    graph = compiled(watch, ready(device_types={"xpu"}))
    for _ in range(9):
        graph.current_callable([])
    watch.write_calls()
    called = events_of(layout)[-1]
    assert isinstance(called, GraphCalled) and (called.calls, called.timed) == (9, 0)


def test_while_the_hooks_are_aside_or_the_log_is_in_use_nothing_is_written(
    layout: Layout, watch: GraphWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = compiled(watch, ready())
    graph.current_callable([])
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "busy", lambda self: True)
        watch.write_calls()
    assert len(events_of(layout)) == 1
    watch._stepped_aside("they failed")
    for _ in range(5):
        graph.current_callable([])
    watch.write_calls()
    compiled(watch, ready(TEXT.replace("add", "sub")))
    assert len(events_of(layout)) == 1


def test_counts_are_written_now_and_then(
    layout: Layout, watch: GraphWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At first after two seconds; then after a twentieth of the time."""
    graph = compiled(watch, ready())
    now = time.perf_counter()

    def written(later: float) -> int:
        graph.current_callable([])
        times = SimpleNamespace(
            perf_counter=lambda: now + later, thread_time=lambda: 0.0, time=time.time
        )
        monkeypatch.setattr(graphs, "time", times)
        watch._sampled(now + later)
        return sum(isinstance(event, GraphCalled) for event in events_of(layout))

    assert [written(later) for later in (1.5, 2.5, 4.0, 5.0, 200.0, 205.0, 215.0)] == [
        0, 1, 1, 2, 3, 3, 4,
    ]  # fmt: skip


def test_what_is_no_text_is_not_kept(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert keep_text("abcdef0", None) == (False, "")
    assert keep_text("abcdef0", graphs._CapturedText(why_not="it has a hook")) == (
        False, "it has a hook",
    )  # fmt: skip
    text = graphs._CapturedText("x" * (3 << 20))
    monkeypatch.setattr(graphs, "MOST_BYTES", (3 << 20) - 1)
    assert keep_text("abcdef0", text) == (False, "its text has 3 MiB")
    monkeypatch.setattr(graphs, "MOST_BYTES", 3 << 20)
    assert keep_text("abcdef0", text) == (True, "")
    path = layout.graphs / "abcdef0.py"
    before = path.stat().st_ino
    assert keep_text("abcdef0", text) == (True, "") and path.stat().st_ino == before
    assert keep_text("abcdef0", graphs._CapturedText("y")) == (True, "")
    assert path.read_text() == "y"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    kept, why = keep_text("abcdef0", text)
    assert not kept and "symlink" in why and not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("capture", ["", "1"])
def test_what_is_watched_from_the_start(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capture: str
) -> None:
    done: list[str] = []
    hooks: dict[str, Callable[..., Any]] = {}
    monkeypatch.setenv(CAPTURE, capture)
    monkeypatch.setattr(graphs, "install_captures", lambda: done.append("captures"))
    for name in ("watch_ready", "wrap_compiling"):
        monkeypatch.setattr(
            graphs.compiled, name, lambda hook, name=name: hooks.setdefault(name, hook)
        )
    recorder = Recorder()
    install(recorder)
    assert done == ["captures"] * bool(capture) and hooks.keys() == {
        "watch_ready",
        "wrap_compiling",
    }
    graph = ready()

    def stock(gm: object, inputs: object, **more: object) -> object:
        assert more == {"extra": 1}
        hooks["watch_ready"](graph)
        return gm

    monkeypatch.setattr(graphs, "of_compile", lambda gm, inputs, kwargs: None)
    assert hooks["wrap_compiling"](stock)("gm", [], extra=1) == "gm"
    assert [type(event) for event in events_of(layout)] == [GraphCompiled]


def test_the_text_of_a_graph_is_kept_where_that_is_requested(
    layout: Layout, watch: GraphWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "1")
    taken = [graphs._CapturedText("the text"), graphs._CapturedText(why_not="it has a hook"), None]
    monkeypatch.setattr(graphs, "of_compile", lambda gm, inputs, kwargs: taken.pop(0))
    for name in ("add", "sub", "mul"):
        compiled(watch, ready(TEXT.replace("add", name)))
    found = [event.graph for event in events_of(layout) if isinstance(event, GraphCompiled)]
    assert [(graph.captured, graph.uncaptured) for graph in found] == [
        (True, ""), (False, "it has a hook"), (False, ""),
    ]  # fmt: skip
    assert [path.name for path in layout.graphs.glob("*.py")] == [f"{found[0].id}.py"]
    assert (layout.graphs / f"{found[0].id}.py").read_text() == "the text"
