"""Starts a job of ranks again and again with nothing tuned, and counts the starts in which ranks
chose differently.

    python -m tests.ranks --starts 50               # without and with --agree
    python -m tests.ranks --starts 50 --torchrun    # each start a torchrun of its own
    python -m tests.ranks --starts 5 --torchrun --cpp    # whose ranks compile C++, too
    python -m tests.ranks --starts 5 --torchrun --gpu --ranks 4    # each on a GPU of its own

Without --torchrun the agent of torchrun forks the ranks from one process that has PyTorch loaded
already. Choices are calls of ATen but for --cpp and --gpu. Choices of different GPUs are compared
by their identity.

Exit code 1 where ranks differed with `--agree`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from backend.cache.variants import ChoiceVariants
from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.model.events import ChoiceSelected, SessionStarted, TuningStarted
from backend.model.inductor_kernel import is_inductors
from tests.ranks import program, scenes
from tests.support.places import ROOT

Choices = dict[str, dict[int, tuple[str, str]]]
"""By inputs and rank: the identity of the choice, and why it was selected."""


def choices_in(cache: Path) -> Choices:
    found: Choices = {}
    variants = ChoiceVariants(cache)
    for log in sorted(Layout(cache).sessions.glob("*.jsonl")):
        events, _ = read_log(log)
        rank, keys = None, dict[int, str]()
        for event in events:
            if isinstance(event, SessionStarted):
                rank = event.session.rank
            elif isinstance(event, TuningStarted) and not is_inductors(event.op):
                keys[event.n] = event.inputs
            elif isinstance(event, ChoiceSelected) and rank is not None and event.n in keys:
                identity = variants.identity(event.hash)
                found.setdefault(keys[event.n], {})[rank] = identity, event.by
    return found


def differing(cache: Path, ranks: int, problems: int) -> int:
    """How many problems the ranks chose differently for; all must have met each."""
    found = choices_in(cache)
    assert len(found) == problems, f"{cache}: {len(found)} problems"
    assert all(sorted(by_rank) == list(range(ranks)) for by_rank in found.values()), cache
    return sum(len({choice for choice, _ in by_rank.values()}) > 1 for by_rank in found.values())


def environment(cache: Path | None = None) -> dict[str, str]:
    ours = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    ours |= {"PYTHONPATH": str(ROOT), "TORCHINDUCTOR_VEC_ISA_OK": "1"}
    cached = {} if cache is None else {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROCM_TUI", "TORCH"))}
    return {**kept, **ours, **cached}


def run(flags: list[str], command: list[str], env: dict[str, str]) -> str:
    """What `rocm-tui run` wrote to stderr."""
    ours = [sys.executable, "-m", "rocm_tui", "run", "--quiet", *flags, "--"]
    python = [sys.executable, "-W", "ignore"]
    done = subprocess.run([*ours, *python, *command], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


def forked(flags: list[str], count: int, ranks: int, folder: Path) -> str:
    told = ["--starts", str(count), str(ranks), str(folder)]
    return run(flags, ["-m", "tests.ranks.scenes", *told], environment(folder / "launcher"))


def torchrun(flags: list[str], ranks: int, cache: Path, told: list[str]) -> str:
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return run(flags, [*launch, program.__file__, *told], environment(cache))


def count(flags: list[str], args: argparse.Namespace, folder: Path) -> tuple[int, int]:
    """Starts, and problems, in which ranks differed."""
    caches = [folder / f"start-{number}" for number in range(args.starts)]
    options = [f"--{kind}" for kind in ("cpp", "gpu") if getattr(args, kind)]
    if args.torchrun:
        for cache in caches:
            torchrun(flags, args.ranks, cache, options)
    else:
        forked(flags, args.starts, args.ranks, folder)
    problems = len(program.SIZES if args.cpp else scenes.PRODUCTS)
    if args.gpu:
        problems = program.GPU_PROBLEMS
    found = [differing(cache, args.ranks, problems) for cache in caches]
    why = Counter(
        by for cache in caches for ranks_ in choices_in(cache).values() for _, by in ranks_.values()
    )
    print(f"  {dict(why)}")
    return sum(map(bool, found)), sum(found)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ranks", description=__doc__)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--torchrun", action="store_true")
    parser.add_argument("--cpp", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--only", choices=("agree", "no-agree"))
    args = parser.parse_args()
    if (args.cpp or args.gpu) and not args.torchrun:
        parser.error("--cpp and --gpu require --torchrun")
    wrong = 0
    for way in ("no-agree", "agree"):
        if args.only not in (None, way):
            continue
        with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
            began = time.monotonic()
            flags = [f"--{way}"]
            wrong, problems = count(flags, args, Path(folder))
            print(
                f"--{way}: ranks differed in {wrong} of {args.starts} starts, for {problems} "
                f"problems; {time.monotonic() - began:.0f} s",
                flush=True,
            )
    return int(wrong > 0 and args.only != "no-agree")


if __name__ == "__main__":
    sys.exit(main())
