"""Try everything on an AMD GPU, and write one report without personal data.

    python -m tests.amd [--minutes 10] [--output amd-report.json] [--device cpu] [--only PART ...]

Works with ROCm, with CUDA, and on a CPU as a rehearsal. Needs torch, rocm-tui, pytest and
hypothesis in this Python. A part that fails, crashes or takes too long is a value in the report.
The exit code is 0 if a report was written.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tomlkit

from backend.processes import tree
from tests.amd import facts, privacy
from tests.amd.commands import ROOT, Commands, Failed
from tests.amd.steps import STEPS, Part, Step

_REQUIRED = ("torch", "textual", "pytest", "hypothesis")
"""What the parts import, beside what those install."""
_NAMES = [step.name for step in STEPS]


def main(words: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(words)
    if missing := [name for name in _REQUIRED if find_spec(name) is None]:
        print(f"missing in {sys.executable}: {', '.join(missing)}", file=sys.stderr)
        print("In an environment with torch: pip install -e . pytest hypothesis", file=sys.stderr)
        return 2
    if not os.access(args.output.resolve().parent, os.W_OK):
        print(f"cannot write {args.output}: name another file with --output", file=sys.stderr)
        return 2
    tree.adopt()  # so that what a crashed command leaves behind can be ended
    kind = args.device or _device()
    steps = [step for step in STEPS if step.name in (args.only or _NAMES) or step is STEPS[0]]
    print(f"{len(steps)} parts on {kind}, {args.minutes:g} minutes at most", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="rocm-tui-amd-"))
    begin = time.monotonic()
    results: list[dict[str, Any]] = []
    clean = privacy.of_this_machine(folder, ROOT)
    try:
        seen: dict[str, Any] = {"device given": args.device}
        for number, step in enumerate(steps):
            end = begin + limit(steps, number, seen, 60 * args.minutes)
            if sys.stdout.isatty():
                print(f"{step.title} …", end="\r", flush=True)
            result = attempt(step, Commands(sys.executable, folder, kind, end), seen)
            results.append(result)
            tree.sweep(os.getpid())
            print(f"{clean.text(line_of(result)):<60}", flush=True)
            # The report is whole after each part: the machine may hang in the next one.
            seconds = time.monotonic() - begin
            report = {**report_of(results, kind, args.minutes, seconds), "send": where_to_send()}
            write(args.output, clean.value(report))
    except KeyboardInterrupt:
        print(f"\nstopped after {len(results)} of {len(steps)} parts")
        if not results:
            return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"Written to {args.output}. Please read it, then send it: {where_to_send()}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.amd",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="in all")
    parser.add_argument("--output", type=Path, default=Path("amd-report.json"), metavar="FILE")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="cuda is ROCm, too")
    parser.add_argument("--only", nargs="+", choices=_NAMES, metavar="PART", help=", ".join(_NAMES))
    return parser


def _device() -> str:
    """Return the kind of device that torch sees. Asked in another process: torch may crash."""
    question = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 3)"
    try:
        done = subprocess.run([sys.executable, "-c", question], capture_output=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "cuda"  # a driver that hangs
    return "cpu" if done.returncode == 3 else "cuda"


def limit(steps: Sequence[Step], number: int, seen: Mapping[str, Any], seconds: float) -> float:
    """Return the second of the run by which a part must end: what later parts need stays theirs."""
    needs = sum(step.needs for step in steps)
    later = sum(step.needs for step in steps[number + 1 :] if not step.why_not(seen))
    return seconds - later * min(1.0, seconds / needs)


def attempt(step: Step, commands: Commands, seen: dict[str, Any]) -> dict[str, Any]:
    """Run a part and return its result, whatever happens."""
    result: dict[str, Any] = {"part": step.name, "title": step.title, "outcome": "ok"}
    part, begin = Part(commands, seen), time.monotonic()
    why = step.why_not(seen)
    if why or commands.left < 5:
        return {**result, "outcome": "not run", "says": why or "the time was up", "seconds": 0.0}
    try:
        result["says"] = step.work(part)
    except Failed as failure:
        result |= {"outcome": failure.outcome, "says": str(failure), "error": failure.tail}
    except Exception as error:  # an answer of another form is a result, too
        result |= {"outcome": "failed", "says": f"{type(error).__name__}: {error}"}
    result["seconds"] = round(time.monotonic() - begin, 1)
    return {**result, "commands": commands.log, "data": part.data}


def line_of(result: Mapping[str, Any]) -> str:
    """Return the line of the summary for a part."""
    return (
        f"{result['outcome']:<10} {result['part']:<10} {result['seconds']:5.0f} s  {result['says']}"
    )


def report_of(
    results: Sequence[Mapping[str, Any]], kind: str, minutes: float, seconds: float
) -> dict[str, Any]:
    done = {result["part"] for result in results}
    return {
        "report": "rocm-tui on an AMD GPU: python -m tests.amd",
        "summary": [line_of(result) for result in results],
        "not run": [
            *(f"{x['title']}: {x['says']}" for x in results if x["outcome"] == "not run"),
            *(f"{step.title}: was not reached" for step in STEPS if step.name not in done),
        ],
        "device": kind,
        "minutes": minutes,
        "seconds": round(seconds, 1),
        "rocm-tui": {"version": _project()["version"], "commit": _commit()},
        "machine": facts.machine(),
        "parts": list(results),
    }


def _project() -> Mapping[str, Any]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project: Mapping[str, Any] = tomlkit.parse(text).unwrap()["project"]
    return project


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def where_to_send() -> str:
    """Return one line that says where a report goes."""
    tracker = _project().get("urls", {}).get("Issues")
    where = f"a new issue at {tracker}" if tracker else "an issue of this project"
    return f"attach it to {where}"


def write(path: Path, report: Any) -> None:
    """Replace the file at once: a reader sees a whole report."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
