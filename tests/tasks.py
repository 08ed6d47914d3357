"""What people come for, as keys in a real terminal: `python -m tests.tasks` prints a table.

A task is done when the screen itself says its answer. Keys are counted as they are typed, each
letter of a word too; seconds are those of this machine, from the first key to the answer, at a
person's pace of four keys a second.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import (
    ActivityChanged,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    GraphCompiled,
    TuningStarted,
)
from backend.model.graph import Graph
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.pins.store import PinStore
from backend.processes.tree import identity
from tests.support.terminal_lab import WATCH, Terminal

MOST_KEYS = 6
PACE = 0.25
"""Seconds between two keys."""
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Task:
    """A question, the keys that answer it (tmux's names; `=text` waits for the text, as a person
    does before they confirm), and a pattern of the words that answer it.

    `ready` is on the screen before the first key. `after` must hold once the answer is there.
    `fill` writes the cache directory that is watched; a `demo` starts with an empty one, and its
    program tunes with the real torch.
    """

    question: str
    keys: tuple[str, ...]
    answer: str
    ready: str = "IN USE"
    size: tuple[int, int] = (140, 40)
    after: Callable[[Path], bool] = field(default=lambda root: True)
    fill: Callable[[Path, ExitStack], None] = field(
        default=lambda root, stack: write_cache(root, stack)
    )
    demo: bool = False


SIZES = (256, 512, 1024, 2048)
"""Rows of the products that the program tuned."""


def count(task: Task) -> int:
    """Keys that a person presses."""
    return sum(not name.startswith("=") for name in task.keys)


def _has_pin(root: Path) -> bool:
    return bool(json.loads((root / "rocm_tui" / "pins.json").read_text())["pins"])


TASKS = (
    Task(
        "From the installation to the first verdict",
        ("=exit code 0", "m", "=Measur", "Enter"),  # a busy machine asks first
        r"→ measured, (fastest by|tied|unclear|#\d+ is)|→ measured alone",
        ready=r": press m to measure",
        demo=True,
    ),
    Task(
        "Why did this run record nothing?",
        (),
        "No tuning: 1 graph was compiled with max_autotune off",
        ready="No tuning yet",
        fill=lambda root, stack: write_untuned(root),
    ),
    Task("What is to be done about this row?", (), ": press m to measure"),
    Task(
        "What does LEAD mean, without the docs?",
        ("?", *"lead"),
        r"lead +how far the next choice lies behind",
        size=(80, 24),
    ),
    Task("Where does rank 3 gain most?", (*"/r", "Tab", "3", "Enter", "s"), r"▌.* 256×64×64"),
    Task(
        "Undo yesterday's pin",
        ("z", "=Remove the pin", "Enter"),
        "Undid",
        after=lambda r: not _has_pin(r),
    ),
    Task("Why did this choice fail?", ("Tab", "G"), "out of resource: shared memory"),
    Task("Which session is still compiling?", ("6",), r":\d\d  compiling .*serve\.py"),
    Task("Pin the fastest", ("p", "=Pin ", "Enter"), "Pinned", after=_has_pin),
    Task("The command that would pin it, to copy", ("p", "=y copies", "y"), "[Cc]opied"),
    Task("Only bf16 that is not pinned", (*"/d", "Tab", "b", "Tab", "Enter"), "dtype:bf16  4 of"),
    Task("What has this product been through?", ("i",), r"WHAT .*\n.*\btuned\b"),
    Task("What does one session's report say?", (*"6je",), r"Tuning saves|not measured"),
    Task("Which file says that?", ("7",), r"event log .*\.jsonl"),
    Task("No more writing from here", ("C-r",), "READ-ONLY"),
)


def write_untuned(root: Path) -> None:
    """A program that compiled a graph without max_autotune, and ended."""
    session = Session("plain", "box", 4000, argv=("python", "train.py"), started=time.time() - 60)
    writer = EventWriter(Layout(root), session)
    graph = Graph("abc1234", title="train.py:7 step", nodes=2, max_autotune=False)
    writer.write(GraphCompiled(1, time.time() - 50, graph))
    writer.close()


def write_cache(root: Path, stack: ExitStack) -> None:
    """Four ranks of one program that tuned, a program that compiles right now, a pin of
    yesterday."""
    now = time.time()
    for rank in range(4):
        _tuned(root, rank, now - 600)
    key = _write_inductors_cache(root)
    PinStore(Layout(root)).pin(None, key, "mm-bb")
    _date_back(root / "rocm_tui" / "pins.json", DAY)
    me = Path("/proc/self").resolve().name
    argv = ("python", "serve.py")
    session = Session(
        "c0ffee",
        socket.gethostname(),
        int(me),
        argv=argv,
        started=now - 9,
        locked=True,
        process=identity(int(me)),
    )
    writer = EventWriter(Layout(root), session)
    stack.callback(writer.close)
    writer.write(ActivityChanged(now - 9, "importing"))
    writer.write(ActivityChanged(now - 4, "compiling"))


def _dtype(m: int) -> str:
    return "torch.bfloat16" if m == 512 else "torch.float32"


def _inputs(m: int) -> str:
    """The key of an `m` x 64 by 64 x 64 product, as Inductor writes it."""
    return str([("cpu", _dtype(m), rows, 64, 64, 1, 0) for rows in (m, 64)])


def _times(m: int, rank: int) -> dict[str, float]:
    """Milliseconds by choice; the shorter a product, the larger its lead over ATen."""
    return {f"triton_mm_1-{m}": m / 4e4 * (1 + rank / 20), f"mm-{m}": m / 3e4 * (1 + 256 / m)}


def _tuned(root: Path, rank: int, started: float) -> None:
    argv = ("python", "train.py")
    session = Session(
        f"rank{rank}", "box", 4000 + rank, rank, argv, torch="2.13.0", device="cpu", started=started
    )
    writer = EventWriter(Layout(root), session)
    for n, m in enumerate(SIZES, 1):
        shapes, strides, dtypes = ((m, 64), (64, 64)), ((64, 1), (64, 1)), (_dtype(m),) * 2
        choices = (
            Choice("triton_mm_1", f"triton_mm_1-{m}", None, "BLOCK_M=16, num_warps=4"),
            Choice("mm", f"mm-{m}"),
            Choice("triton_mm_9", f"triton_mm_9-{m}", None, "BLOCK_M=256, num_warps=8"),
        )
        writer.write(
            TuningStarted(
                n, started + n, "mm", _inputs(m), "highest", shapes, strides, dtypes, "cpu", choices
            )
        )
        for hash, ms in _times(m, rank).items():
            writer.write(ChoiceTimed(n, hash, ms))
        reason = "out of resource: shared memory, Required: 131072, Hardware limit: 65536"
        writer.write(ChoiceFailed(n, choices[2].hash or "", "benchmark", reason))
        writer.write(
            ChoiceSelected(n, started + n + 0.5, choices[0].hash or "", "timing", 0.4, 0.1)
        )
    writer.close()


def _write_inductors_cache(root: Path) -> TuningKey:
    """What the program tuned, as stock PyTorch keeps it, and an older product."""
    path = root / "cache" / ("4" * 64)
    path.parent.mkdir(parents=True)
    entries = {_inputs(m): {"highest": _times(m, 0)} for m in SIZES}
    entries[_inputs(16)] = {"highest": {"triton_mm-aa": 0.01, "mm-bb": 0.02}}
    path.write_text(json.dumps({"system": {}, "cache": {"mm": entries}}))
    return TuningKey("mm", _inputs(16), "highest")


def _date_back(path: Path, seconds: float) -> None:
    """Take seconds from all times of the day in a JSON file."""
    text = path.read_text()
    path.write_text(
        re.sub(r"\b(1[789]\d{8})(\.\d+)?\b", lambda m: str(float(m[0]) - seconds), text)
    )


def run(task: Task, root: Path) -> tuple[float, str]:
    """Return the seconds until the answer, and the screen then; raises AssertionError."""
    with ExitStack() as stack:
        cache = root / "cache"
        cache.mkdir()
        if not task.demo:
            task.fill(cache, stack)
        command = [*WATCH[:-1], "demo" if task.demo else "watch", "--cache-dir", str(cache)]
        own = {"XDG_CONFIG_HOME": str(root / "config"), "XDG_STATE_HOME": str(root / "state")}
        terminal = stack.enter_context(Terminal(command, task.size, own))
        terminal.wait_for(task.ready)
        time.sleep(1.0)
        start = time.monotonic()
        for name in task.keys:
            if name.startswith("="):
                terminal.wait_for(name[1:])
            else:
                terminal.press(name)
            time.sleep(PACE)
        pattern = re.compile(task.answer)
        terminal.wait_until(lambda: pattern.search(terminal.screen()), task.answer)
        seconds = time.monotonic() - start
        terminal.wait_until(lambda: task.after(cache), "its effect")
        return seconds, terminal.screen()


def main() -> int:
    lines = ["| task | keys | count | seconds | the words that answer |", "|---|---|---|---|---|"]
    for task in TASKS:
        with tempfile.TemporaryDirectory(prefix="tasks-") as folder:
            seconds, screen = run(task, Path(folder))
        if "--show" in sys.argv:
            sys.stdout.write(f"{task.question}\n{screen}\n")
        keys = " ".join(f"`{name}`" for name in task.keys if not name.startswith("="))
        words = re.search(task.answer, screen)
        answer = " ".join(words[0].split()) if words else ""
        lines.append(f"| {task.question} | {keys} | {count(task)} | {seconds:.1f} | {answer} |")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
