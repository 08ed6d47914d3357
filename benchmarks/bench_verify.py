"""What `verify` takes: the first pin, each further one, and what watching a program costs it.

    python benchmarks/bench_verify.py [PINS]

Tunes PINS products on this CPU (17 if not said), pins each to its second choice and verifies all of
them in one worker. Budget: 2 s for each pin after the first, on two idle cores. Then a program
of theirs is compiled warm, by itself and as `verify -- CMD` runs it, five times in turn.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.pins.store import PinStore
from rocm_tui.actions.verify import PinToVerify, Verifying
from rocm_tui.actions.verify_program import TraceFolder

BUDGET = 2.0
PAIRS = 5

PROGRAM = """
import sys, time, torch, torch._inductor.config as config
config.max_autotune = True
began = time.perf_counter()
for at in range(int(sys.argv[1])):
    a, b = torch.randn(4, 16 + 8 * at, 64), torch.randn(4, 64, 96)
    torch._dynamo.reset()
    torch.compile(lambda a, b: torch.relu(torch.bmm(a, b)), dynamic=False)(a, b)
print(time.perf_counter() - began)
"""


def program(pins: int, env: dict[str, str]) -> float:
    """Seconds that the program's compiles take together."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(pins)],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def verify(layout: Layout, env: dict[str, str]) -> bool:
    """Verify all pins; whether the budget was kept."""
    pins = PinStore(layout).pins()
    seconds, last = [], time.perf_counter()
    with Verifying(sys.executable, layout, env=env) as verifying:
        for pin, result in verifying.results([PinToVerify(pin) for pin in pins]):
            now = time.perf_counter()
            seconds.append(now - last)
            last = now
            assert result.ok, (pin.inputs, result)
    further = statistics.median(seconds[1:])
    print(
        f"verify of {len(pins)} pins: {sum(seconds):.1f} s with {verifying.workers} worker(s); the "
        f"first {seconds[0]:.1f} s, each further {further:.2f} s (median; slowest "
        f"{max(seconds[1:]):.2f} s); budget {BUDGET:.0f} s"
    )
    return further <= BUDGET


def watch(pins: int, env: dict[str, str]) -> None:
    """What a program's warm compiles take with and without the trace."""
    ratios, size = [], 0
    program(pins, env)
    for _ in range(PAIRS):
        alone = program(pins, env)
        with TraceFolder(env) as folder:
            traced = program(pins, {**env, **folder.env})
            size = sum(path.stat().st_size for path, _ in folder.files())
        ratios.append(traced / alone)
    print(
        f"warm compiles of {pins} graphs as verify -- CMD runs them: "
        f"{statistics.median(ratios):.2f} x those of the program by itself "
        f"({min(ratios):.2f} to {max(ratios):.2f}); {size / pins / 1024:.0f} KiB of trace a graph"
    )


def main() -> int:
    pins = int(sys.argv[1]) if len(sys.argv) > 1 else 17
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder) / "cache")
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(layout.root)}
        print(f"tuning {pins} products: {program(pins, env):.0f} s", flush=True)
        (file,), _ = read_caches(layout)
        for key, times in file.entries.items():
            PinStore(layout).pin(None, key, sorted(times, key=times.__getitem__)[1])
        kept = verify(layout, env)
        watch(pins, env)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
