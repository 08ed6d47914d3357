"""Programs that compile small models with our templates on, and what their runs tell tests."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.disk.layout import Layout
from backend.model.events import ChoiceSelected, TuningStarted
from backend.model.inductor_kernel import is_inductors
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from tests.support.hooked import by_tuning, launch_program, sessions

ON = {"ROCM_TUI_TEMPLATES": "1", "ROCM_TUI_TEMPLATE_BUDGET": "1"}
"""One config of each template: most tests ask whether a kernel is called, not which one."""

FORKS = not any(Path(device).exists() for device in ("/dev/kfd", "/dev/nvidiactl"))
"""Whether a program is a fork of a process that has imported torch: half of what it takes. What
happens at `import torch` is asked in tests/torch/hooks; a GPU survives no fork."""

BEGIN = """
import os
import sys
import torch
import torch._inductor.config as config
config.max_autotune = True
config.max_autotune_gemm_backends = "ATEN"
torch.manual_seed(0)

def part(name):
    "What follows is another test's: a process that imports torch serves several."
    print("== part", name, flush=True)
    print("== part", name, file=sys.stderr, flush=True)
    with open(os.environ["COMPILE_LOG"], "a") as log:
        print("== part", name, file=log)

def agree(name, function, *inputs, grad=False, dynamic=None, tolerance=1e-4):
    "Compiled against eager, results and gradients; prints the largest error."
    torch._dynamo.reset()
    mine = [x.detach().clone().requires_grad_(grad) for x in inputs]
    theirs = [x.detach().clone().requires_grad_(grad) for x in inputs]
    got = torch.compile(function, dynamic=dynamic)(*mine)
    want = function(*theirs)
    pairs = [(got, want)]
    if grad:
        weights = torch.randn_like(want)
        got.backward(weights)
        want.backward(weights)
        pairs += [(a.grad, b.grad) for a, b in zip(mine, theirs)]
    error = max((a.double() - b.double()).abs().max().item() for a, b in pairs)
    assert error < tolerance, (name, error)
    print(name, "agrees", error, flush=True)
"""


@dataclass(frozen=True)
class Ran:
    """What a program printed, its generated code included, and the g++ commands that it ran."""

    stdout: str
    stderr: str
    commands: str

    def part(self, name: str) -> Ran:
        """What belongs to one `part` of the program alone."""

        def cut(text: str) -> str:
            (found,) = re.findall(rf"^== part {name}$(.*?)(?=^== part|\Z)", text, re.M | re.S)
            return str(found)

        return Ran(cut(self.stdout), cut(self.stderr), cut(self.commands))

    @property
    def kernels_compiled(self) -> list[str]:
        """Commands that compiled kernels of ours."""
        return [line for line in self.commands.splitlines() if "rocm_tui/code/" in line]

    @property
    def libraries(self) -> list[str]:
        """Commands that made a library, for us or for Inductor's own C++."""
        return [line for line in self.commands.splitlines() if "-shared" in line]

    @property
    def calls(self) -> list[str]:
        """The calls of our kernels in the generated code."""
        return re.findall(r"\b(rocm_\w+_\d+\(.*\))$", self.stderr, re.MULTILINE)

    @property
    def agreed(self) -> list[str]:
        """The names that `agree` was given."""
        return re.findall(r"^(\S+) agrees ", self.stdout, re.MULTILINE)


def run(
    program: str,
    cache: Path,
    env: Mapping[str, str] | None = None,
    *,
    code: bool = True,
    python: str = sys.executable,
    new: bool = False,
) -> Ran:
    """Run `program` after `BEGIN`, hooks and templates on; `code` prints the generated code; `new`
    is a process of its own even where a fork would do. What PyTorch reads of `env` while it is
    imported needs one."""
    log = cache.parent / "compiler.log"
    log.write_text("")
    more = {"COMPILE_LOG": str(log), **ON, **(env or {})}
    if code:
        more["TORCH_LOGS"] = "output_code"
    new = new or any(name.startswith(("TORCH", "PYTHON", "OMP")) for name in env or {})
    warm = FORKS and not new and python == sys.executable
    done = launch_program(BEGIN + program, cache, env=more, python=python, warm=warm)
    return Ran(done.stdout, done.stderr, log.read_text())


def last_session(cache: Path) -> list[tuple[TuningStarted, list[object]]]:
    """The tunings of the last process that tuned, without those of Inductor's own kernels."""
    tunings = by_tuning(sessions(cache)[-1])
    return [(start, events) for start, events in tunings if not is_inductors(start.op)]


def pin_ours(cache: Path, prefix: str = "rocm_") -> dict[str, str]:
    """Pin the first choice of ours that has a time, in every tuning; hashes by op and inputs."""
    store = PinStore(Layout(cache))
    pinned: dict[str, str] = {}
    for start, events in last_session(cache):
        name = f"{start.op} {start.inputs}"
        timed = {event.hash for event in events if type(event).__name__ == "ChoiceTimed"}
        if name in pinned and not timed:
            continue  # asked again, and answered from memory
        ours = next(
            (c for c in start.choices if c.hash in timed and c.name.startswith(prefix)), None
        )
        assert ours is not None, f"no choice of ours has a time: {name}, {events}"
        key = TuningKey(start.op, start.inputs, start.precision)
        store.pin(None, key, ours.hash, label=ours.name)
        pinned[name] = ours.hash
    return pinned


def selections(cache: Path) -> dict[str, tuple[str, str]]:
    """What was selected in the last session, and why, by op and inputs."""
    return {
        f"{start.op} {start.inputs}": (event.hash, event.by)
        for start, events in last_session(cache)
        for event in events
        if isinstance(event, ChoiceSelected)
    }
