"""Compiled graphs under `run`: what is recorded of them in cold and warm processes, and that the
program is none the wiser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend.disk import safe
from backend.disk.layout import Layout
from backend.inductor.hooks.graphs import graph_id, keep_text, of_compile, op_count
from backend.model.events import (
    Event,
    GraphCalled,
    GraphCompiled,
    HooksOff,
    SessionEnded,
    SessionStarted,
)
from backend.model.graph import Graph
from tests.support.hooked import launch, launch_program, sessions
from tests.support.torch_models import child_env

PROGRAM = """
import hashlib, json, sys, threading, warnings
warnings.simplefilter("ignore")
import torch, torch._inductor.config as config
from torch._dynamo.utils import counters
from torch._inductor.output_code import CompiledFxGraph

config.max_autotune = True
config.max_autotune_gemm_backends = "ATEN"
torch.manual_seed(0)
torch.set_num_threads(1)
keys, bits = [], {}
ready = CompiledFxGraph.post_compile
def post_compile(self, *args, **kwargs):
    ready(self, *args, **kwargs)
    keys.append(self._fx_graph_cache_key)
CompiledFxGraph.post_compile = post_compile

def keep(name, *tensors):
    text = b"".join(str(t.detach().flatten().tolist()).encode() for t in tensors)
    bits[name] = hashlib.sha256(text).hexdigest()

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
    def forward(self, x):
        return self.down(torch.relu(self.up(x)))

model = Model()
compiled = torch.compile(model)
x = torch.randn(4, 16)
with torch.no_grad():
    for _ in range(6):
        keep("inference", compiled(x))
    def work():
        with torch.no_grad():  # of each thread
            for _ in range(25):
                compiled(x)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
for _ in range(4):
    compiled(x).square().sum().backward()
keep("training", *(p.grad for p in model.parameters()))

@torch.compile
def twice(a, b):
    return (a @ b) @ b
a, b = torch.randn(8, 8), torch.randn(8, 8)
keep("twice", twice(a, b))

@torch.compile
def halves(a):
    c = torch.sin(a) + 1
    torch._dynamo.graph_break()
    return torch.cos(c) * 3 + a
for _ in range(3):
    keep("halves", halves(a))

@torch.compile
def grows(a):
    return torch.tanh(a) - 2
for rows in (5, 6, 7, 9):
    keep(f"grows {rows}", grows(torch.randn(rows, 3)))

@torch.library.custom_op("rocm_tui_test::picky", mutates_args=())
def picky(a: torch.Tensor) -> torch.Tensor:
    if bool((a < 0).any()):
        raise ValueError("picky")
    return a + 1
@picky.register_fake
def _(a):
    return torch.empty_like(a)
@torch.compile
def fails(a):
    return torch.ops.rocm_tui_test.picky(a) * 5
for sign in (1, -1, 1, -1, 1, 1):
    try:
        keep("fails", fails(sign * torch.ones(3)))
    except ValueError as error:
        assert str(error) == "picky"
        bits["raised"] = bits.get("raised", 0) + 1

print(json.dumps({
    "keys": keys, "bits": bits,
    "hits": counters["aot_autograd"]["autograd_cache_hit"],
    "fx hits": counters["inductor"]["fxgraph_cache_hit"],
    "freezing": torch._inductor.compile_fx.fw_compiler_freezing.__code__.co_filename,
}))
"""


@dataclass(frozen=True)
class Ran:
    said: Mapping[str, object]
    stderr: str
    events: list[Event]

    @property
    def graphs(self) -> dict[int, Graph]:
        return {event.g: event.graph for event in self.events if isinstance(event, GraphCompiled)}

    @property
    def calls(self) -> dict[Graph, int]:
        last = {event.g: event for event in self.events if isinstance(event, GraphCalled)}
        return {self.graphs[g]: event.calls for g, event in last.items()}


def hooked(cache: Path, *flags: str, env: Mapping[str, str] | None = None) -> Ran:
    done = launch_program(PROGRAM, cache, "--quiet", *flags, env=env)
    return Ran(json.loads(done.stdout.splitlines()[-1]), done.stderr, sessions(cache)[-1])


def stock(cache: Path) -> Mapping[str, object]:
    program = cache.parent / f"{cache.name}-program" / "program.py"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)],
        env=child_env(cache),
        capture_output=True,
        text=True,
        check=True,
    )
    said: Mapping[str, object] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs") / "cache"


@pytest.fixture(scope="module")
def cold(cache: Path) -> Ran:
    return hooked(cache)


@pytest.fixture(scope="module")
def warm(cold: Ran, cache: Path) -> Ran:
    return hooked(cache)


CONTAINERS = """
import torch
def program():
    model = torch.compile(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()))
    with torch.no_grad():
        model(torch.randn(4, 16))
program()
class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh())
    def forward(self, x):
        return self.layers(x)
with torch.no_grad():
    torch.compile(torch.nn.Sequential(Layers()))(torch.randn(4, 16))
"""


def test_a_graph_is_titled_by_the_program_where_it_is_of_a_container(tmp_path: Path) -> None:
    launch_program(CONTAINERS, tmp_path / "cache", "--quiet")
    (events,) = sessions(tmp_path / "cache")
    titles = [event.graph.title for event in events if isinstance(event, GraphCompiled)]
    assert titles == ["program.py:6 program", "program.py:12 forward"]


def test_each_graph_is_recorded_once_with_what_it_is(cold: Ran) -> None:
    assert len({graph.id for graph in cold.graphs.values()}) == len(cold.graphs) == 9
    kinds = sorted(graph.kind for graph in cold.graphs.values())
    assert kinds == ["backward", "forward"] + 7 * ["inference"]
    assert {graph.key for graph in cold.graphs.values()} == set(cold.said["keys"])  # type: ignore[call-overload]
    for graph in cold.graphs.values():
        assert (graph.device, graph.captured) == ("cpu", False)
        assert graph.title.startswith("program.py:")
        assert 0 < graph.nodes < 20
        assert len(graph.id) == 7
        assert int(graph.id, 16) >= 0
    names = sorted(graph.title.split()[1] for graph in cold.graphs.values())
    assert names == ["fails", *3 * ["forward"], "grows", "grows", "halves", "halves", "twice"]


def test_each_call_is_counted(cold: Ran) -> None:
    by_name: dict[tuple[str, str], list[int]] = {}
    for graph, calls in cold.calls.items():
        by_name.setdefault((graph.kind, graph.title.split()[1]), []).append(calls)
    assert by_name == {
        ("inference", "grows"): [1, 3],
        ("inference", "forward"): [6 + 100],
        ("forward", "forward"): [4],
        ("backward", "forward"): [4],
        ("inference", "twice"): [1],
        ("inference", "halves"): [3, 3],
        ("inference", "fails"): [6],
    }


def test_calls_are_timed_by_the_hosts_clock(cold: Ran) -> None:
    last = {event.g: event for event in cold.events if isinstance(event, GraphCalled)}
    timed = [event for event in last.values() if event.calls > 2]
    assert timed
    assert all(event.timed > 0 and event.ms and 0 < event.ms < 1000 for event in timed)
    assert all(event.by == "host" for event in timed)


def test_the_tunings_of_a_graph_are_recorded_with_their_number(cold: Ran) -> None:
    by_name = {(g.kind, g.title.split()[1]): g.tunings for g in cold.graphs.values()}
    (twice,) = by_name["inference", "twice"]
    assert (twice.op, twice.count) == ("mm", 2)
    assert twice.hash is not None
    assert [use.op for use in by_name["inference", "forward"]] == ["addmm", "addmm"]
    assert {use.op for use in by_name["backward", "forward"]} == {"mm"}
    assert by_name["inference", "halves"] == ()


def test_a_warm_process_knows_the_same_graphs_and_tunings(cold: Ran, warm: Ran) -> None:
    assert cold.said["hits"] == 0
    assert warm.said["hits"] > 5  # type: ignore[operator]
    assert {g.id: g for g in warm.graphs.values()} == {g.id: g for g in cold.graphs.values()}
    assert warm.calls == cold.calls


def test_fx_cache_hits_without_aotautograd_cache_are_the_same(cold: Ran, cache: Path) -> None:
    ran = hooked(cache, env={"TORCHINDUCTOR_AUTOGRAD_CACHE": "0"})
    assert (ran.said["hits"], ran.said["fx hits"]) == (0, 9)
    assert {g.id: g for g in ran.graphs.values()} == {g.id: g for g in cold.graphs.values()}


def test_keys_and_results_are_those_of_stock_pytorch(cold: Ran, warm: Ran, cache: Path) -> None:
    """The keys are the same, so each cache serves both. Freezing is PyTorch's own function, since
    the text of graphs is not captured."""
    again = stock(cache)
    assert again["hits"] == warm.said["hits"]
    for name in ("keys", "bits", "freezing"):
        assert cold.said[name] == warm.said[name] == again[name]
    assert cold.said["bits"]["raised"] == 2  # type: ignore[index]


def test_a_stock_process_fills_the_cache_for_a_hooked_one(
    cold: Ran, cache: Path, tmp_path: Path
) -> None:
    """Then nobody has seen which tunings the graphs contain."""
    other = tmp_path / cache.name
    (tmp_path / f"{cache.name}-program").symlink_to(cache.parent / f"{cache.name}-program")
    assert stock(other)["keys"] == cold.said["keys"]
    ran = hooked(other)
    assert ran.said["hits"] > 5  # type: ignore[operator]
    assert {g.id for g in ran.graphs.values()} == {g.id for g in cold.graphs.values()}
    assert {g.tunings for g in ran.graphs.values()} == {()}


def test_the_summary_tells_how_many(cold: Ran) -> None:
    assert ", with 9 compiled graphs" in cold.stderr


def test_no_shares_records_none(cache: Path, cold: Ran) -> None:
    ran = hooked(cache, env={"ROCM_TUI_SHARES": "0"})
    assert ran.said["bits"] == cold.said["bits"]
    assert "nothing was recorded" in ran.stderr
    assert "compiled graph" not in ran.stderr


BROKEN = """
import backend.inductor.hooks.graphs as graphs, backend.inductor.hooks.calls as calls
def broken(*args, **kwargs):
    raise RuntimeError("ours")
"""


@pytest.mark.parametrize(
    "sabotage",
    [
        "graphs.graph_of = broken",
        "graphs.tuning_watch.uses_of = broken",
        "graphs.GraphWatch._calls = broken",
        "graphs.keep_uses = graphs.kept_uses = broken",
        "graphs.compiled.facts_of = broken",
        "calls.GraphCalls._plan = calls.GraphCalls._collect = broken",
        "graphs.GraphWatch.compile = broken",
        "graphs.GraphWatch._write = broken",
    ],
)
def test_what_our_hooks_raise_harms_no_program(
    sabotage: str, cold: Ran, cache: Path, tmp_path: Path
) -> None:
    """Each graph comes from FxGraphCache, through what compiles graphs."""
    program = tmp_path / "sabotaged.py"
    program.write_text(f"import torch._inductor.compile_fx\n{BROKEN}{sabotage}\n{PROGRAM}")
    env = {"TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    done = launch([sys.executable, str(program)], cache, "--quiet", env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["bits"], said["keys"]) == (cold.said["bits"], cold.said["keys"])
    ours = {line for line in done.stderr.splitlines() if "RuntimeError" in line}
    assert len(ours) <= 2  # one of the hooks, and the summary when they stepped aside


def test_a_forked_child_has_a_session_of_its_own(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    launch_program(
        """
        import multiprocessing, os, sys, torch
        add = torch.compile(lambda x: x + 1)
        x = torch.ones(3)
        for _ in range(5):
            add(x)
        def more():
            for _ in range(7):
                add(x)
        child = os.fork()
        if child == 0:
            more()
            sys.exit(0)
        os.waitpid(child, 0)
        process = multiprocessing.get_context("fork").Process(target=more)
        process.start()
        process.join()
        idle = os.fork()
        if idle == 0:
            sys.exit(0)
        os.waitpid(idle, 0)
        add(x)
        """,
        cache,
    )
    counts = []
    for events in sessions(cache):
        assert isinstance(events[0], SessionStarted)
        (graph,) = {event.graph for event in events if isinstance(event, GraphCompiled)}
        assert isinstance(events[-1], SessionEnded)
        calls = [event for event in events if isinstance(event, GraphCalled)]
        assert {event.g for event in calls} == {1}
        counts.append((calls[-1].calls, graph.id))
    assert sorted(calls for calls, _ in counts) == [6, 7, 7]
    assert len({graph for _, graph in counts}) == 1


def test_a_killed_process_has_written_before(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    launch_program(
        """
        import os, signal, time, torch
        add = torch.compile(lambda x: x + 1)
        x = torch.ones(3)
        add(x)  # compiled before the eight seconds begin
        begin = time.monotonic()
        while time.monotonic() < begin + 8:
            add(x)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        cache,
        expect=-9,
    )
    (events,) = sessions(cache)
    calls = [event for event in events if isinstance(event, GraphCalled)]
    assert 2 <= len(calls) <= 8
    assert calls[-1].calls > 1000
    assert not any(isinstance(event, SessionEnded | HooksOff) for event in events)


def test_an_id_is_that_of_the_code_not_of_the_places_in_files() -> None:
    text = """
class GraphModule(torch.nn.Module):
    def forward(self, a: "f32[4][1]cpu"):
        # File: /home/somebody/model.py:18 in forward, code: return a + 1
        add: "f32[4][1]cpu" = torch.ops.aten.add.Tensor(a, 1);  a = None
        p = self._frozen_param0
        return (add,)
"""
    moved = text.replace("somebody/model.py:18", "another/net.py:7").replace("\n        ", "\n  ")
    assert graph_id(text) == graph_id(moved) != graph_id(text.replace("[4]", "[5]"))
    assert op_count(text) == 1


def test_a_graph_is_kept_as_it_is_about_to_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    gm = make_fx(torch.sin, tracing_mode="fake")(torch.ones(2, 3))
    inputs = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    taken = of_compile(gm, inputs, {})
    assert taken is not None and keep_text("f" + "a" * 51, taken) == (True, "")
    (path,) = Layout(tmp_path).graphs.glob("*.py")
    assert "torch.ops.aten.sin.default" in path.read_text()
    with safe.locked(tmp_path, path.parent / "captured"):  # another process keeps a graph
        assert keep_text("f" + "a" * 51, taken) == (True, "")
