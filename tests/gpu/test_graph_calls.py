"""Calls of compiled graphs on a GPU: timed by events, none of which disturbs CUDA graphs.

Skipped where torch sees no GPU. Times are compared: nothing else may run on that GPU meanwhile.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.model.events import GraphCalled, GraphCompiled
from tests.support.hooked import launch_program, sessions

pytestmark = pytest.mark.torch

PROGRAM = """
import json, sys, threading, time, torch
torch.manual_seed(0)
layers = [torch.nn.Linear(2048, 2048), torch.nn.GELU()] * 8
model = torch.nn.Sequential(*layers).cuda().to(torch.bfloat16)
x = torch.randn(4096, 2048, device="cuda", dtype=torch.bfloat16)
sizes = {}

def timed(function, calls=1000):
    for _ in range(10):
        function()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / calls * 1e3

with torch.no_grad():
    plain = torch.compile(model)
    sizes["plain"] = timed(lambda: plain(x))
    wide = x[:2048].clone()
    graphs = torch.compile(model, mode="reduce-overhead", dynamic=False)
    sizes["cudagraphs"] = timed(lambda: graphs(wide).clone())

    # A capture of the program itself, with calls of a compiled graph in it.
    small = torch.compile(lambda x: torch.relu(x) * 2 + 1)
    y = torch.ones(1024, device="cuda")
    for _ in range(3):
        small(y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            z = small(y)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(z, torch.full_like(z, 3.0))
    sizes["captured calls"] = 20

many = x.repeat(16, 1)  # the device takes longer than what Python does beside it
def train():
    out = trained(many)
    out.float().square().mean().backward()
trained = torch.compile(torch.nn.Sequential(*layers[:4]).cuda())
sizes["train"] = timed(train, 50)
print(json.dumps(sizes))
"""


def test_events_time_calls_and_disturb_no_capture(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    done = launch_program(PROGRAM, cache, "--quiet")
    sizes = json.loads(done.stdout.splitlines()[-1])
    (events,) = sessions(cache)
    graphs = {event.g: event.graph for event in events if isinstance(event, GraphCompiled)}
    last = {event.g: event for event in events if isinstance(event, GraphCalled)}
    assert {event.by for event in last.values()} == {"device"}
    assert {graph.device for graph in graphs.values()} == {"cuda:0"}
    inference = [last[g] for g, graph in graphs.items() if graph.kind == "inference"]
    plain, cudagraphs, small = inference
    assert (plain.calls, cudagraphs.calls, small.calls) == (1010, 1010, 3 + 20)
    for event, name in ((plain, "plain"), (cudagraphs, "cudagraphs")):
        assert event.timed >= 5
        assert event.ms == pytest.approx(sizes[name], rel=0.25)
    assert small.timed <= 2
    trained = [last[g] for g, graph in graphs.items() if graph.kind in ("forward", "backward")]
    assert [event.calls for event in trained] == [60, 60]
    assert sum(event.ms or 0.0 for event in trained) == pytest.approx(sizes["train"], rel=0.5)
