"""What recording calls of compiled graphs costs a program, against one that is not recorded.

    python benchmarks/bench_shares.py [--device cuda] [--rounds 300] [--seconds 0.02] [--pairs 6]

Each program is a compiled function that is called again and again: a tiny graph of one addition,
the worst case, since a call of it does next to nothing; many of them by turns; a model. Within one
process, blocks of `--seconds` with and without the hook of calls follow each other by turns, the
first of each pair drawn; on a GPU a block ends when the device is done, on a CPU there is one
thread, whose CPU time is taken, so that others on the machine matter less. Then the same in pairs
of processes, `run` and `run --no-shares`. A ratio is that of the time of a step with the hook to
that without; its interval (95 %) is that of the trimmed mean of the logarithms over the pairs, and
`total` the ratio of all time, in which no rare cost is trimmed. Prints one JSON object. Works in a
temporary folder and removes it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backend.measure.verdict import trimmed_interval

BUDGET = 1.01
"""Of a program's time without the hook."""

CHILD = (sys.executable, "-W", "ignore", __file__)
PROGRAMS = ("tiny", "twenty tiny", "model")
Step = Callable[[], object]


def program(name: str, device: str) -> Step:
    """One step of a program."""
    import torch  # not in the process that starts others

    torch.manual_seed(0)
    if device == "cpu":
        torch.set_num_threads(1)
    if name == "tiny":
        small = torch.ones(8, device=device)
        add = torch.compile(lambda x: x + 1)
        return lambda: add(small)
    if name == "twenty tiny":
        small = torch.ones(8, device=device)
        # As many functions: of one code Dynamo would make a graph for any number.
        several = [torch.compile(eval(f"lambda x: x + {n}")) for n in range(20)]
        return lambda: [function(small) for function in several]
    width, rows = (2048, 8) if device == "cuda" else (256, 16)
    layers = [
        layer
        for _ in range(4)
        for layer in (
            torch.nn.LayerNorm(width),
            torch.nn.Linear(width, 4 * width),
            torch.nn.GELU(),
            torch.nn.Linear(4 * width, width),
        )
    ]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = torch.compile(torch.nn.Sequential(*layers).to(device, dtype))
    batch = torch.randn(rows, width, device=device, dtype=dtype)
    return lambda: model(batch)


def seconds_a_step(step: Step, seconds: float, device: str) -> float:
    import torch  # as above

    clock = time.perf_counter if device == "cuda" else time.process_time
    begin = now = clock()
    steps = 0
    while now < begin + seconds:
        for _ in range(8):
            step()
        steps += 8
        now = clock()
    if device == "cuda":
        torch.cuda.synchronize()
        now = clock()
    return (now - begin) / steps


def ratio(with_hook: Sequence[float], without: Sequence[float]) -> dict[str, Any]:
    logs = [math.log(a / b) for a, b in zip(with_hook, without, strict=True)]
    centre, half = trimmed_interval(logs, 0.05)
    return {
        "us a step without": round(sum(without) / len(without) * 1e6, 2),
        "ratio": round(math.exp(centre), 4),
        "interval": [round(math.exp(centre - half), 4), round(math.exp(centre + half), 4)],
        "total": round(sum(with_hook) / sum(without), 4),
        "pairs": len(logs),
    }


def in_one_process(name: str, device: str, rounds: int, seconds: float) -> dict[str, Any]:
    """The hook is put on and taken off the compiled graphs that the program has."""
    import torch  # as above

    from backend.inductor.hooks import graphs, recording  # heavy: Inductor
    from backend.inductor.torch import compiled  # as above

    stock: list[tuple[Any, Any]] = []
    compiled.watch_ready(lambda graph: stock.append((graph, graph.current_callable)))
    graphs.install(recording.recorder())
    step = program(name, device)
    with torch.no_grad():
        for _ in range(50):
            step()
        hooked = [(graph, graph.current_callable) for graph, _ in stock]
        times: dict[bool, list[float]] = {True: [], False: []}
        drawn = random.Random(0)
        for _ in range(rounds):
            for on in drawn.sample((True, False), 2):
                for graph, calling in hooked if on else stock:
                    graph.current_callable = calling
                times[on].append(seconds_a_step(step, seconds, device))
    return {"graphs": len(stock), **ratio(times[True], times[False])}


def in_processes(name: str, device: str, pairs: int, cache: Path) -> dict[str, Any]:
    times: dict[bool, list[float]] = {True: [], False: []}
    drawn = random.Random(0)
    one_step(name, device, cache, shares=True)  # compiles
    for _ in range(pairs):
        for shares in drawn.sample((True, False), 2):
            times[shares].append(one_step(name, device, cache, shares=shares))
    return ratio(times[True], times[False])


def one_step(name: str, device: str, cache: Path, *, shares: bool) -> float:
    options = [] if shares else ["--no-shares"]
    child = [*CHILD, "--child", name, "--device", device]
    done = subprocess.run(
        [sys.executable, "-m", "rocm_tui", "run", "--quiet", *options, "--", *child],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def child(name: str, device: str) -> float:
    """Seconds a step of a process, after its first ones."""
    import torch  # as above

    step = program(name, device)
    with torch.no_grad():
        for _ in range(50):
            step()
        return seconds_a_step(step, 3.0, device)


def measure(device: str, rounds: int, seconds: float, pairs: int) -> Mapping[str, Any]:
    results: dict[str, Any] = {"device": device, "budget": BUDGET}
    amount = f"--rounds={rounds}", f"--seconds={seconds}"
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        for name in PROGRAMS:
            done = subprocess.run(
                [*CHILD, f"--blocks={name}", f"--device={device}", *amount],
                env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), "ROCM_TUI_SHARES": "1"},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            results[name] = {"blocks": json.loads(done.stdout)}
            if pairs:
                results[name]["processes"] = in_processes(name, device, pairs, cache)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--blocks", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--child", choices=PROGRAMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(child(args.child, args.device))
    elif args.blocks:
        print(json.dumps(in_one_process(args.blocks, args.device, args.rounds, args.seconds)))
    else:
        measured = measure(args.device, args.rounds, args.seconds, args.pairs)
        print(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
