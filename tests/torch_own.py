"""PyTorch's own tests under stock PyTorch, `rocm-tui run` and `rocm-tui run --templates`.

    python -m tests.torch_own /path/to/pytorch/test/inductor [--python PYTHON] [--out FILE]

Fetches nothing: the folder is one of PyTorch's, of the same version as the torch of PYTHON, which
needs torch, numpy, pytest, expecttest and hypothesis. What fails is run again, because some of
these tests race kernels against each other: on a busy machine the wrong one wins now and then.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

FILES: Mapping[str, str] = {
    "test_cpu_select_algorithm.py": " or ".join(
        f"({part})"
        for part in (
            "linear_static_shapes and batch_size_2 and in_features_1000 and out_features_1024"
            " and (float32 or bfloat16) and not dynamic",
            "linear_wgt_multi_users",
            "linear_input_transpose",
            "linear_with_pointwise and out_features_384 and bias_True and not dynamic"
            " and (epilogue_relu or epilogue_gelu or epilogue_sigmoid or epilogue_add)"
            " and (float32 or bfloat16)",
            "linear_with_transpose and out_features_128 and bias_True and epilogue_relu"
            " and float32",
            "linear_with_embedding and not dynamic",
            "bmm_self_permute",
            "bmm_self_square",
            "bmm_with_broadcasted_mat1",
            "bmm_with_pointwise and Ndim_64 and float32 and not dynamic"
            " and (epilogue_relu or epilogue_mul)",
            "bmm_with_fused_epilogues and float32",
            "bmm_with_y_storage_offset and bs_1 and float32",
            "bmm_flexible_layout",
        )
    ),
    "test_codecache.py": "(cache_load_function or cache_load_model) and cpu"
    " and not cuda and not True",
}
"""What exercises the selector and the caches on a CPU, as pytest's `-k` takes it: a part of each
file, or three ways of it would take a day."""

MODES: Mapping[str, Sequence[str]] = {
    "stock": (),
    "run": ("run",),
    "run --templates": ("run", "--templates"),
}
ROOT = Path(__file__).parents[1]
KERNELS = re.compile(r"counter|kernel|Scalars are not equal")


@dataclass(frozen=True)
class Result:
    """How one test ended; `reason` is the first line of its last failure."""

    outcome: str
    reason: str = ""
    tries: int = 1
    broken: int = 0
    """Choices that Inductor left out because their benchmark failed."""


Results = Mapping[str, Result]
"""By the test's id, `Class::name`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="PyTorch's test/inductor")
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch")
    parser.add_argument("--tries", type=int, default=3, help="how often a test may fail")
    parser.add_argument("--select", help="pytest's -k in place of the parts named in this file")
    parser.add_argument("--out", type=Path, help="a file for the table, beside the screen")
    words = parser.parse_args()
    found: dict[str, dict[str, Results]] = {}
    for file, select in FILES.items():
        if not (words.folder / file).is_file():
            print(f"{words.folder / file} is not there: left out", flush=True)
            continue
        found[file] = {
            mode: run(words.folder, file, words.select or select, mode, words.python, words.tries)
            for mode in MODES
        }
    if not found:
        sys.exit(f"none of PyTorch's tests is in {words.folder}: give the folder test/inductor")
    text = table(found)
    print(text)
    if words.out is not None:
        words.out.write_text(text)
    sys.exit(any(differing(results) for results in found.values()))


def run(folder: Path, file: str, select: str, mode: str, python: str, tries: int) -> Results:
    """Every selected test, in a cache dir of its own."""
    with tempfile.TemporaryDirectory(prefix="torch-own-") as scratch:
        results = dict(once(folder, [file, "-k", select], mode, python, Path(scratch)))
        for number in range(2, tries + 1):
            failed = [f"{file}::{test}" for test, r in results.items() if r.outcome == "failed"]
            if not failed:
                break
            again = once(folder, failed, mode, python, Path(scratch))
            results |= {
                t: replace(r, reason=r.reason or results[t].reason, tries=number)
                for t, r in again.items()
            }
    return results


def once(folder: Path, what: Sequence[str], mode: str, python: str, scratch: Path) -> Results:
    report = scratch / "report.xml"
    report.unlink(missing_ok=True)
    ours = [sys.executable, "-m", "rocm_tui", *MODES[mode], "--"] if MODES[mode] else []
    pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
    env = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "cache"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "ROCM_TUI_TEMPLATE_BUDGET": os.environ.get("ROCM_TUI_TEMPLATE_BUDGET", "2"),
    }
    pytest += ["-o", "junit_logging=all"]
    command = [*ours, *pytest, *what, f"--junitxml={report}"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if not report.is_file():
        sys.exit(f"{mode}: pytest wrote no report; it ended with {done.returncode}:\n{done.stderr}")
    results = read(report)
    print(f"{mode}: {what[0]}: {passed(results)} of {len(results)} passed", flush=True)
    return results


def read(report: Path) -> Results:
    """pytest's JUnit file. It was written by the tests of others, run by us."""
    results: dict[str, Result] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        test = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        logged = "".join(part.text or "" for part in case if part.tag.startswith("system"))
        broken = logged.count(" inf ms ")
        bad = next((c for c in case if c.tag in ("failure", "error")), None)
        if bad is not None:
            lines = [line.strip() for line in (bad.get("message") or "").splitlines()]
            reason = next(filter(None, lines), "no message")[:200]
            results[test] = Result("failed", reason, broken=broken)
        else:
            skipped = any(child.tag == "skipped" for child in case)
            results[test] = Result("skipped" if skipped else "passed", broken=broken)
    return results


def passed(results: Results) -> int:
    return sum(result.outcome == "passed" for result in results.values())


def differing(modes: Mapping[str, Results]) -> list[tuple[str, str, Result]]:
    """Test, mode and result of each that passes under stock PyTorch and not under ours."""
    stock = modes["stock"]
    return [
        (test, mode, results.get(test, Result("not run")))
        for mode, results in modes.items()
        for test, result in stock.items()
        if result.outcome == "passed" and results.get(test, Result("not run")).outcome != "passed"
    ]


def table(found: Mapping[str, Mapping[str, Results]]) -> str:
    lines = [
        "| file | tests | pass under stock | under `run` | under `run --templates` |",
        "|---|---|---|---|---|",
    ]
    notes: list[str] = []
    for file, modes in found.items():
        counts = " | ".join(str(passed(results)) for results in modes.values())
        ran = sum(result.outcome != "skipped" for result in modes["stock"].values())
        lines.append(f"| `{file}` | {ran} | {counts} |")
        for test, mode, result in differing(modes):
            kind = "a count of kernels" if KERNELS.search(result.reason) else "**not a count**"
            notes.append(f"- `{test}` under `{mode}`: {result.reason} ({kind})")
        for mode, results in modes.items():
            for test, result in results.items():
                if result.outcome == "failed" and mode == "stock":
                    notes.append(f"- `{test}` fails under stock PyTorch too: {result.reason}")
                elif result.outcome == "passed" and result.tries > 1:
                    why = f"before: {result.reason}"
                    notes.append(f"- `{test}` under `{mode}` passed at try {result.tries}; {why}")
                if result.broken:
                    what = f"{result.broken} choice(s) failed in their benchmark"
                    notes.append(f"- `{test}` under `{mode}`: {what}")
    return "\n".join([*lines, "", *(notes or ["No test differs."])]) + "\n"


if __name__ == "__main__":
    main()
