"""`1 choice`, `2 choices`: whatever is counted is counted by one function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import backend
import rocm_tui
from backend.counted import counted, noun

NOUNS = frozenset(
    "actions arms calls choices cores elements errors events facts failures files folders graphs "
    "inputs jobs kernels lines links logs machines measurements names numbers operands ops others "
    "outputs pairs passes pins problems processes programs rivals rounds rows runs screens "
    "sessions settings sources spills steps suspects threads times trials tunings types verdicts "
    "watches".split()
)

SURE_TO_BE_MANY = {
    "others as fast", "processes: ", "measurements:", "times)", "others", "times ",
    "choices of addmm apart, and times them against it",
    "new processes of stock PyTorch compile it, half of them with the pins.",
}  # fmt: skip
"""What follows a number of which the code beside it says that it is two at least."""


def test_a_number_of_things() -> None:
    assert [counted(n, "choice") for n in (0, 1, 2)] == ["0 choices", "1 choice", "2 choices"]
    assert counted(1, "graph is", "graphs are") == "1 graph is"
    assert counted(12_345, "process", "processes") == "12,345 processes"
    assert [noun(1.0, "call"), noun(0.5, "call"), noun(None, "call")] == ["call", "calls", "calls"]


def _uncounted(path: Path) -> Iterator[str]:
    """Numbers in f-strings before a plural that is always one, and the `(s)` of those who do not
    count."""
    for string in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(string, ast.JoinedStr):
            continue
        for value, text in zip(string.values, string.values[1:], strict=False):
            words = text.value if isinstance(text, ast.Constant) else ""
            if "(s)" in words:
                yield f"{path.name}:{string.lineno}: {words}"
            first = words[1:].split(" ")[0].strip(".,:;)") if words[:1] == " " else ""
            fixed = isinstance(value, ast.FormattedValue) and ast.unparse(value.value).isupper()
            if first in NOUNS and not fixed and words[1:] not in SURE_TO_BE_MANY:
                yield f"{path.name}:{string.lineno}: {ast.unparse(value)}{words}"


def test_nothing_else_counts() -> None:
    ours, theirs = (Path(next(iter(package.__path__))) for package in (rocm_tui, backend))
    roots = [ours, *(theirs / room for room in ("measure", "pins", "sharing", "worker"))]
    files = [path for root in roots for path in root.rglob("*.py")]
    assert len(files) > 300
    assert [line for path in sorted(files) for line in _uncounted(path)] == []
