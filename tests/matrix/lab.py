"""One torch on trial: its interpreter, folders of its own, and our commands run on them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.disk.layout import Layout
from backend.disk.sessions import read_log
from backend.model.events import Event
from rocm_tui.launch.run import RUN_LOG

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "program.py"
PARTS = ("bmm", "linear")
_PATIENCE = 600.0
_OURS = ("TORCH", "ROCM_TUI", "PYTHON")
_KEPT = ("TORCHINDUCTOR_VEC_ISA_OK", "TORCH_DYNAMO_RUN_GC_AFTER_COMPILE")
_OUTPUT = re.compile(r"^.*?\[__output_code\] ?(.*)$", re.MULTILINE)
_OWN = "# rocm-tui choice"
_CALLS = (
    ("bmm-", "extern_kernels.bmm("),
    ("_mkl_linear-", "._mkl_linear"),
    ("_linear_pointwise-", "._linear_pointwise"),
    ("CppMicroGemm", "micro_gemm"),
)
"""What generated code says where it calls a choice whose hash begins so."""


class No(Exception):
    """The feature does not work; one line says why."""


def must(condition: object, why: str) -> None:
    """Raises No."""
    if not condition:
        raise No(why)


@dataclass(frozen=True, slots=True)
class Tuning:
    """A row of `ls --json`: choices with hash and time, fastest first."""

    id: str
    op: str
    inputs: str
    choices: tuple[tuple[str, float], ...]
    pinned: str | None

    @property
    def hashes(self) -> list[str]:
        return [name for name, _ in self.choices]


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of the program: the generated code of each part, all of its stderr, and how many
    compiled graphs it did not find."""

    code: Mapping[str, str]
    stderr: str
    misses: int

    def calls(self, part: str, hashes: Collection[str]) -> str:
        """Which of the choices the code of a part calls. Raises No unless it is just one."""
        code = self.code.get(part, "")
        must(code, f"{part}: no generated code was seen")
        found = [name for name in hashes if _in_code(name) in code]
        must(len(found) == 1, f"{part}: the code calls {found or 'none'} of {sorted(hashes)}")
        return found[0]


def _in_code(name: str) -> str:
    if name.startswith("rocm_"):
        return f"{_OWN} {name} "
    return next((text for begin, text in _CALLS if name.startswith(begin)), name)


@dataclass(frozen=True, slots=True)
class Lab:
    """`python` has the torch to try; everything is written below `folder`."""

    python: str
    folder: Path

    def cache(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(exist_ok=True)
        return path

    def ask(
        self, cache: Path, *words: str, codes: Collection[int] = (0,), torch: bool = False
    ) -> str:
        """What a command prints; `torch` if it needs one."""
        python = ["--python", self.python] if torch else []
        done = _run([sys.executable, "-m", "rocm_tui", *words, *python], cache, ROOT)
        must(done.returncode in codes, f"`{words[0]}` ended with {done.returncode}: {_last(done)}")
        return done.stdout

    def asked(self, cache: Path, *words: str, **options: Any) -> Any:
        """The same as JSON."""
        text = self.ask(cache, *words, "--json", **options)
        try:
            return json.loads(text)
        except ValueError:
            raise No(f"`{words[0]} --json` printed no JSON: {text[:80]!r}") from None

    def tunings(self, cache: Path, *paths: str) -> dict[str, Tuning]:
        """The last tuning of each part. Raises No where one is missing."""
        found: dict[str, Tuning] = {}
        for row in self.asked(cache, "ls", *paths)["tunings"]:
            part = "bmm" if row["op"] == "bmm" else "linear"
            timed = tuple((c["hash"] or c["name"], c["ms"]) for c in row["choices"] if c["ms"])
            found[part] = Tuning(row["id"], row["op"], row["inputs_key"], timed, row["pinned"])
        for part in PARTS:
            must(part in found, f"`ls` has no tuning of {part}")
            count = len(found[part].choices)
            must(count > 1, f"`ls` has a time for {count} choices of {part}, not for two")
        return found

    def program(self, cache: Path, *run: str, env: Mapping[str, str] | None = None) -> Ran:
        """Run the program: stock, or under `rocm-tui run` with the flags `run`."""
        command = [self.python, "-W", "ignore", str(PROGRAM)]
        folder = self.folder
        if run:
            command = [sys.executable, "-m", "rocm_tui", *run, "--", *command]
            folder = ROOT
        done = _run(command, cache, folder, {"TORCH_LOGS": "output_code", **(env or {})})
        must(done.returncode == 0, f"the program fails: {_last(done)}")
        *right, last = done.stdout.splitlines() or [""]
        must(right == [f"{p} is right" for p in PARTS], "it says nothing")
        return Ran(_code(done.stderr), done.stderr, int(last.split()[0]))

    def events(self, cache: Path) -> list[Event]:
        """Those of the newest session. Raises No where there is none."""
        logs = [p for p in Layout(cache).sessions.glob("*.jsonl") if not p.name.endswith(RUN_LOG)]
        logs.sort(key=lambda p: p.stat().st_mtime_ns)
        must(logs, "no session was recorded")
        events, problems = read_log(logs[-1])
        must(not problems, f"the session's log has a bad line: {problems[:1]}")
        return list(events)


def _run(
    command: Sequence[str], cache: Path, folder: Path, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k in _KEPT or not k.startswith(_OURS)}
    env = {**kept, "TORCHINDUCTOR_CACHE_DIR": str(cache), **(more or {})}
    try:
        return subprocess.run(
            command, env=env, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE,
            errors="replace", stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise No(f"it did not end within {_PATIENCE:g} s") from None


def _last(done: subprocess.CompletedProcess[str]) -> str:
    """The line that says most of why it failed."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    telling = [
        line for line in lines if re.match(r"(rocm-tui: |[\w.]*(Error|Exception|Missing)\b)", line)
    ]
    return (telling or lines or ["it printed nothing"])[-1][:300]


def _code(stderr: str) -> dict[str, str]:
    parts = stderr.split("# compiling ")[1:]
    named = (part.partition("\n") for part in parts)
    return {name.strip(): "\n".join(_statements(rest)) for name, _, rest in named}


def _statements(text: str) -> list[str]:
    """The lines of generated code, without comments other than ours: those name ops too."""
    lines = (line.strip() for line in _OUTPUT.findall(text))
    return [line for line in lines if not line.startswith("#") or line.startswith(_OWN)]
