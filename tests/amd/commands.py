"""Commands of a run, each in a process that cannot harm the run: it may fail, crash or hang."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.processes import tree

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("program.py")
_DROPPED = ("TORCHINDUCTOR_", "TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_DEBUG", "ROCM_TUI_")
_KEPT = ("TORCHINDUCTOR_VEC_ISA_OK",)
_LAST_LINES, _LAST_CHARACTERS = 40, 4000
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?<>=]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()].|.)")
_OUTPUT_CODE = re.compile(r"^.*?\[__output_code\] ?(.*)$", re.MULTILINE)


class Failed(Exception):
    """A part does not work. `outcome` is a word, `tail` the end of what a command printed."""

    def __init__(self, why: str, outcome: str = "failed", tail: str = "") -> None:
        super().__init__(why)
        self.outcome, self.tail = outcome, tail


@dataclass(frozen=True)
class Finished:
    """A command that has ended by itself."""

    stdout: str
    stderr: str
    code: int

    @property
    def tail(self) -> str:
        """The ends of what it printed, without generated code."""
        texts = []
        for text in (self.stdout, self.stderr):
            lines = [line for line in text.splitlines() if "[__output_code]" not in line]
            texts.append("\n".join(lines[-_LAST_LINES:])[-_LAST_CHARACTERS:].strip())
        return "\n--- stderr ---\n".join(filter(None, texts))

    @property
    def reason(self) -> str:
        """The line that most likely says why it failed."""
        lines = [line.strip() for line in (self.tail or "it printed nothing").splitlines()]
        telling = [x for x in lines if re.match(r"rocm-tui: |[\w.]*(Error|Exception)\b", x)]
        return (telling or [line for line in lines if line])[-1][:300]


@dataclass
class Commands:
    """Run commands of one part until `end`, in folders below `folder`.

    `python` has torch. Each command is added to `log` with its seconds and how it ended.
    """

    python: str
    folder: Path
    kind: str
    end: float
    log: list[dict[str, Any]] = field(default_factory=list)

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def cache(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(exist_ok=True)
        return path

    def tui(
        self,
        cache: Path,
        *words: str,
        codes: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        """Run a command of rocm-tui. Raises Failed."""
        return self.run([self.python, "-m", "rocm_tui", *words], cache, codes=codes, env=env)

    def tui_json(
        self,
        cache: Path,
        command: str,
        *words: str,
        codes: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the document that a command prints last. Raises Failed."""
        finished = self.tui(cache, command, "--json", *words, codes=codes, env=env)
        try:
            return json.loads(finished.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            raise Failed(f"`{command} --json` printed no JSON", tail=finished.tail) from None

    def program(self, *words: str) -> list[str]:
        """Return the command line of the program that has products to tune."""
        return [self.python, "-W", "ignore", str(PROGRAM), self.kind, *words]

    def run(
        self,
        command: Sequence[str],
        cache: Path | None = None,
        *,
        codes: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        """Run a command in the checkout until the part's time is up. Raises Failed."""
        if self.left < 1:
            raise Failed("no time was left", "time limit")
        entry: dict[str, Any] = {"command": _readable(command)}
        self.log.append(entry)
        begin = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env=self.environment(cache, env), start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = child.wait(self.left)
            except subprocess.TimeoutExpired:
                tree.end(child.pid, bury=False)
                child.wait()
                code = None
            except BaseException:
                tree.end(child.pid)
                raise
            finished = Finished(_text(out), _text(err), code or 0)
        entry["seconds"] = round(time.monotonic() - begin, 1)
        name = _name(command)
        if code is None:
            entry["ended"] = "time limit"
            why = f"`{name}` did not end within {entry['seconds']:.0f} s"
            raise Failed(why, "time limit", finished.tail)
        entry["ended"] = code
        if code < 0 or code in _BY_SIGNAL:
            entry["ended"] = signal_name = _BY_SIGNAL.get(code) or signal.Signals(-code).name
            raise Failed(f"`{name}` crashed: {signal_name}", "crashed", finished.tail)
        if code not in codes:
            why = f"`{name}` ended with {code}: {finished.reason}"
            raise Failed(why, tail=finished.tail)
        return finished

    def environment(
        self, cache: Path | None = None, more: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if k in _KEPT or not k.startswith(_DROPPED)}
        # The user's own settings and memory are neither read nor changed.
        env |= {name: str(self.folder) for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME")}
        if cache is not None:
            env["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
        if self.kind == "cpu":
            env |= {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
        return {**env, **(more or {})}

    @contextlib.contextmanager
    def screen(self, cache: Path) -> Iterator[Screen]:
        """Run the screen on a cache directory in a terminal of its own."""
        command = [self.python, "-m", "rocm_tui", "watch"]
        self.log.append({"command": _readable(command)})
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        child = subprocess.Popen(
            command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env=self.environment(cache, {"TERM": "xterm-256color"}),
        )  # fmt: skip
        os.close(theirs)
        try:
            yield Screen(child, ours)
        finally:
            tree.end(child.pid, bury=False)
            child.wait()
            os.close(ours)


class Screen:
    """What the screen has painted so far, and its keys."""

    def __init__(self, child: subprocess.Popen[bytes], terminal: int) -> None:
        self._child, self._terminal = child, terminal
        self._painted = bytearray()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            while data := os.read(self._terminal, 1 << 16):
                self._painted += data

    @property
    def text(self) -> str:
        return _ESCAPES.sub(" ", bytes(self._painted).decode(errors="replace"))

    def wait_for(self, words: Sequence[str], seconds: float) -> None:
        """Wait until the screen has painted one of the words. Raises Failed."""
        end = time.monotonic() + seconds
        while not any(re.search(rf"\b{word}\b", self.text) for word in words):
            if self._child.poll() is not None:
                raise Failed(f"the screen ended with {self._child.returncode}", tail=self._tail)
            if time.monotonic() > end:
                raise Failed(f"the screen does not show {' or '.join(words)}", tail=self._tail)
            time.sleep(0.1)

    def quit(self, seconds: float = 10) -> None:
        """Press q. Raises Failed if the screen does not end."""
        os.write(self._terminal, b"q")
        try:
            code = self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed("the screen does not end at q", tail=self._tail) from None
        if code:
            raise Failed(f"the screen ended with {code}", tail=self._tail)

    @property
    def _tail(self) -> str:
        return " ".join(self.text.split())[-_LAST_CHARACTERS:]


_BY_SIGNAL = {
    128 + number: signal.Signals(number).name
    for number in (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV, signal.SIGKILL)
}
"""How `rocm-tui run` and `verify` end where their program was ended by a signal."""


def generated_code(stderr: str) -> dict[str, str]:
    """Return the generated code of each product, as TORCH_LOGS=output_code printed it."""
    code: dict[str, str] = {}
    for part in stderr.split("# product ")[1:]:
        name, _, rest = part.partition("\n")
        code[name.strip()] = "\n".join(_OUTPUT_CODE.findall(rest))
    return code


def _name(command: Sequence[str]) -> str:
    """Return the words by which a reader recognises a command."""
    words = [word for word in command if word not in (sys.executable, "-m", "-W", "ignore")]
    if words[0] == "rocm_tui":
        return f"rocm-tui {words[1]}"
    return Path(words[0]).name


def _readable(command: Sequence[str]) -> str:
    return shlex.join("python" if word == sys.executable else word for word in command)


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace"))
