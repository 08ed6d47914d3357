"""`python -m tests.mutants`: plant small faults, one at a time, and report which ones tests notice.

Each fault is one changed expression or statement in a line drawn at random. It is made in a copy of
the tree in a temporary folder; then the tests run that mirror its module or import it. The exit
code is 0 where at least `--at-least` percent were noticed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mutations import Mutation, mutations_by_line
from tests.mutants.selection import TestFiles
from tests.mutants.trial import NOTICED, Copy, Judge, Trial, failing
from tests.support.places import ROOT

ROOMS = (
    "backend/pins", "backend/cache", "backend/disk", "backend/measure", "backend/sharing",
    "backend/inductor/hooks", "rocm_tui/ingest", "rocm_tui/session", "rocm_tui/jobs",
    "rocm_tui/actions",
)  # fmt: skip
"""Where a fault would harm a user's files, or show a wrong number."""


def main(words: Sequence[str]) -> int:
    args = _parser().parse_args(words)
    seed = random.SystemRandom().randrange(1 << 32) if args.seed is None else args.seed
    drawn = draw(args.tree, args.rooms, args.number, random.Random(seed))
    print(f"seed: {seed} (repeat with SEED={seed}); {len(drawn)} mutants", flush=True)
    # A test that is killed leaves its mounts; the report must not be lost with their folder.
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        trials, failed = tried(args.tree, Path(folder), drawn, args.jobs, args.seconds)
    return report(trials, failed, args.at_least)


def draw(
    tree: Path, rooms: Sequence[str], number: int, chance: random.Random
) -> list[tuple[str, Mutation]]:
    """Return a mutation of each of `number` lines, drawn among all lines of the rooms."""
    paths = [path for room in rooms for path in sorted((tree / room).rglob("*.py"))]
    lines = [
        (path, mutations)
        for path in paths
        for mutations in mutations_by_line(path.read_bytes()).values()
    ]
    chance.shuffle(lines)
    drawn: list[tuple[str, Mutation]] = []
    for path, mutations in lines:
        mutation = chance.choice(mutations)
        if len(drawn) < number and mutation.is_fault(path.read_bytes()):
            drawn.append((str(path.relative_to(tree)), mutation))
    return drawn


def tried(
    tree: Path, folder: Path, drawn: Sequence[tuple[str, Mutation]], jobs: int, seconds: float
) -> tuple[list[Trial], list[str]]:
    """Try each mutant, `jobs` at once. Return the trials, and the tests that fail without one."""
    copies: SimpleQueue[Copy] = SimpleQueue()
    for job in range(jobs):
        copies.put(Copy(tree, folder / str(job)))
    packages = sorted({module.partition("/")[0] for module, _ in drawn})
    judge = Judge(TestFiles(tree, tuple(packages)).ranked, seconds)

    def judged(module: str, mutation: Mutation) -> Trial:
        copy = copies.get()
        try:
            trial = judge.judge(copy, module, mutation)
        finally:
            copies.put(copy)
        print(_line(trial), flush=True)
        return trial

    with ThreadPoolExecutor(jobs) as pool:
        trials = list(pool.map(judged, *zip(*drawn, strict=True))) if drawn else []
    return trials, failing(judge)


def report(trials: Sequence[Trial], failed: Sequence[str], at_least: float) -> int:
    """Print what was not noticed, and how many were; return the exit code."""
    for test in failed:
        print(f"not used, since it fails or takes too long without a fault: {test}")
    print("\nnot noticed:")
    for trial in trials:
        if trial.verdict not in NOTICED:
            print(f"{_line(trial)}\n    tests: {' '.join(trial.tests) or 'none'}")
    noticed = sum(trial.verdict in NOTICED for trial in trials)
    share = 100 * noticed / len(trials) if trials else 0.0
    counts = Counter(trial.verdict.value for trial in trials)
    print(*(f"{count} {verdict}" for verdict, count in counts.items()), sep=", ")
    print(f"{noticed} of {len(trials)} noticed: {share:.0f} %, {at_least:g} % are required")
    return 0 if share >= at_least else 1


def _line(trial: Trial) -> str:
    mutation = trial.mutation
    original, mutant = (" ".join(text.split()) for text in (mutation.original, mutation.mutant))
    return (
        f"{trial.verdict.value:<12} {trial.module}:{mutation.line} {mutation.kind}: "
        f"`{original}` -> `{mutant}` ({trial.seconds:.0f} s)"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--number", type=int, default=80, metavar="N", help="mutants to try")
    parser.add_argument("--seed", type=int, help="draws the same mutants again")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="mutants at once")
    parser.add_argument("--at-least", type=float, default=85.0, metavar="PERCENT")
    parser.add_argument("--seconds", type=float, default=300.0, help="limit of a mutant's tests")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout to copy")
    parser.add_argument("--rooms", nargs="+", default=ROOMS, metavar="FOLDER")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
