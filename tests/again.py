"""`make test`: the suite, and once more, alone, the few tests that failed beside others.

Some thousand tests wait for screens, processes and clocks that share two cores. One that fails
among them and passes alone has a race, or its program has: it is named, to be mended, and fails
nothing else. More than `FEW`, or one that fails twice, fail the suite.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FEW = 3
_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(words: list[str]) -> int:
    """`words` are pytest's own; returns its exit code."""
    _FAILED.unlink(missing_ok=True)  # of an earlier suite
    pytest = [sys.executable, "-m", "pytest"]
    code = subprocess.run([*pytest, *words]).returncode
    failed: list[str] = sorted(json.loads(_FAILED.read_text())) if _FAILED.exists() else []
    if code != 1 or not 0 < len(failed) <= FEW:
        return code
    print("once more, alone:", *failed, sep="\n  ", flush=True)
    code = subprocess.run([*pytest, "-n", "0", *failed]).returncode
    if not code:
        print("a race, to be mended: failed beside others, passed alone:", *failed, sep="\n  ")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
