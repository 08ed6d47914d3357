"""`rocm-tui run`: exit codes, signals, stdin and terminal are the program's own."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from rocm_tui.launch.run import Child, RunOptions, run
from rocm_tui.launch.stderr import BoundedLog, TableFilter
from tests.support.hooked import LAUNCHER, launch
from tests.support.torch_models import child_env

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT)


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_exit_code_is_the_programs(tmp_path: Path, code: int) -> None:
    assert launch(["sh", "-c", f"exit {code}"], tmp_path).returncode == code


@pytest.mark.parametrize("name", ["TERM", "INT", "KILL", "SEGV", "ABRT"])
def test_death_by_signal_is_passed_on(tmp_path: Path, name: str) -> None:
    done = launch(["sh", "-c", f"kill -{name} $$"], tmp_path)
    assert done.returncode == -getattr(signal, f"SIG{name}")


def test_what_cannot_be_started(tmp_path: Path) -> None:
    missing = launch(["no-such-program"], tmp_path / "cache")
    assert missing.returncode == 127
    assert missing.stderr == "rocm-tui: no-such-program: no such command\n"
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    refused = launch([str(plain)], tmp_path / "cache")
    assert refused.returncode == 126 and refused.stderr.count("\n") == 1
    assert not (tmp_path / "cache").exists()


def test_stdin_stdout_and_stderr_pass_through(tmp_path: Path) -> None:
    done = launch(["sh", "-c", "cat; echo told >&2"], tmp_path, input="one\ntwo\n")
    assert (done.stdout, done.stderr) == ("one\ntwo\n", "told\n")
    (kept,) = Layout(tmp_path).sessions.glob("*.stderr.log")
    assert kept.read_text() == "told\n"


@pytest.mark.parametrize(
    ("writes", "out", "err"),
    [
        ("printf half", "half", ""),
        ("printf half >&2", "", "half\n"),
        ("echo whole >&2", "", "whole\n"),
    ],
)
def test_closing_lines_begin_a_line_and_stdout_stays_the_programs(
    tmp_path: Path, writes: str, out: str, err: str
) -> None:
    done = launch(["sh", "-c", writes], tmp_path, "--quiet")
    assert done.stdout == out
    assert done.stderr.startswith(f"{err}rocm-tui: nothing was recorded")


def test_closing_lines_begin_a_line_where_stdout_and_stderr_are_one_file(tmp_path: Path) -> None:
    words = [*LAUNCHER, "--quiet", "--", "sh", "-c", "printf half"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(words, env=child_env(tmp_path), check=True, text=True, **pipes)
    assert done.stdout.startswith("half\nrocm-tui: nothing was recorded")


def test_binary_stderr_is_passed_and_kept_exactly(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "data").write_bytes(data)
    done = subprocess.run(
        [*LAUNCHER, "--", "sh", "-c", f"cat {tmp_path / 'data'} >&2"],
        env=child_env(tmp_path),
        capture_output=True,
        timeout=180,
    )
    assert done.stderr == data
    (kept,) = Layout(tmp_path).sessions.glob("*.stderr.log")
    assert kept.read_bytes() == data


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_reach_the_program(tmp_path: Path, number: signal.Signals) -> None:
    """A program that handles the signal ends by its own will; both are gone then."""
    program = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: (print('caught'), sys.exit(9)))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [*LAUNCHER, "--", sys.executable, "-c", program],
        env=child_env(tmp_path),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        child.send_signal(number)
        assert child.wait(60) == 9
        assert child.stdout.read() == "caught\n"
        with pytest.raises(ProcessLookupError):
            os.killpg(child.pid, 0)


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """As after `nohup`: who started us promised it to the program."""
    program = (
        "import signal as s; "
        "print([s.getsignal(n) is s.SIG_IGN for n in (s.SIGHUP, s.SIGINT, s.SIGTERM)])"
    )
    command = [*LAUNCHER, "--", sys.executable, "-c", program]
    done = subprocess.run(
        ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", *command],
        env=child_env(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[True, True, False]\n"


def test_a_background_process_does_not_hold_us_up(tmp_path: Path) -> None:
    """It keeps stderr open for longer than `launch` waits."""
    done = launch(["sh", "-c", "sleep 1000 >/dev/null & echo $! && exit 4"], tmp_path)
    assert done.returncode == 4
    os.kill(int(done.stdout), signal.SIGKILL)


def test_nor_does_one_that_goes_on_writing(tmp_path: Path) -> None:
    """It is quiet for no moment, and ends when nobody reads it any more."""
    talks = "while echo more >&2; do :; done"
    done = launch(["sh", "-c", f"({talks}) >/dev/null & echo $! && exit 4"], tmp_path)
    assert done.returncode == 4 and "more" in done.stderr
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(done.stdout), signal.SIGKILL)


TALKS = """
import os, sys, time
os.write(1, b"ready")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
for n in range(4000):
    os.write(2, b"x" * 49 + b"\\n")
os.write(2, b"the end")
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=lambda how: how.name)
def test_a_run_that_is_killed_or_stopped_does_not_hinder_the_program(
    tmp_path: Path, how: signal.Signals
) -> None:
    """It writes more than a pipe holds, and all of it comes and is kept."""
    go_on = tmp_path / "go-on"
    words = [*LAUNCHER, "--", sys.executable, "-c", TALKS, str(go_on)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, env=child_env(tmp_path), **pipes) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.read(5) == b"ready"
        running.send_signal(how)
        go_on.touch()
        written = b""
        while not written.endswith(b"the end"):
            assert select.select([running.stderr], [], [], 60)[0], len(written)
            data = os.read(running.stderr.fileno(), 1 << 16)
            assert data, written[-100:]
            written += data
        assert len(written) == 4000 * 50 + len(b"the end")
        running.send_signal(signal.SIGCONT)
        assert running.wait(60) == (-9 if how == signal.SIGKILL else 0)
    (kept,) = Layout(tmp_path).sessions.glob("*.stderr.log")
    assert kept.read_bytes() == written


HOLDS = """
import os, sys
given = int(sys.argv[1])
os.write(given, b"data")
os.close(given)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_descriptor_of_the_caller_reaches_the_program_and_no_helper_of_ours(
    tmp_path: Path,
) -> None:
    """As of `<(...)`, of `3>file`, or of make's jobs. Its reader waits for all that have it."""
    reading, given = os.pipe()
    words = [*LAUNCHER, "--", sys.executable, "-S", "-c", HOLDS, str(given)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, env=child_env(tmp_path), pass_fds=[given], **pipes) as running:
        os.close(given)
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        running.kill()
        assert os.read(reading, 9) == b"data"
        assert select.select([reading], [], [], 60)[0] and os.read(reading, 9) == b""
        running.stdin.close()
    os.close(reading)


class _Broken:
    """A status line in which a method raises, as if by a fault of ours."""

    def __init__(self, method: str, raised: Path) -> None:
        self._method, self._raised = method, raised

    def _act(self, method: str) -> None:
        if method == self._method:
            self._raised.touch()
            raise ValueError("a fault of ours")

    def look(self) -> None:
        self._act("look")

    def wrote(self, data: bytes) -> None:
        self._act("wrote")

    def clear(self) -> None:
        pass


WRITES = """
import os, sys, time
os.write(2, b"AUTOTUNE")
time.sleep(0.01)
os.write(2, b" is a word\\none\\n")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os.write(2, b"two\\n")
"""


@pytest.mark.parametrize("part", ["look", "wrote", "filter", "log"])
def test_a_part_of_the_relay_that_raises_costs_the_program_nothing(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    raised = tmp_path / "raised"
    line = _Broken(part, raised)
    if part == "filter":
        monkeypatch.setattr(TableFilter, "_line", lambda *_: line._act(part))
    if part == "log":
        monkeypatch.setattr(BoundedLog, "write", lambda *_: line._act(part))
    command = [sys.executable, "-S", "-c", WRITES, str(raised)]
    status = run(
        command,
        RunOptions(cache_dir=tmp_path / "cache", quiet=part == "filter"),
        child_env(tmp_path / "cache"),
        make_line=lambda layout, run: line,
    )
    assert (status, capfd.readouterr().err) == (0, "AUTOTUNE is a word\none\ntwo\n")


def test_a_program_whose_stderr_is_not_relayed_gets_them_too() -> None:
    reading, given = os.pipe()
    os.set_inheritable(given, True)
    program = "import os, sys; os.write(int(sys.argv[1]), b'data')"
    assert Child().run([sys.executable, "-S", "-c", program, str(given)], os.environ) == 0
    os.close(given)
    assert os.read(reading, 9) == b"data"
    os.close(reading)


def _on_terminal(
    command: list[str], cache: Path, act: Callable[[int], None] | None = None
) -> tuple[int, str]:
    """Run on a terminal of 100 x 30; the wait status and all that it showed."""
    sized, told = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        os.read(sized, 1)
        os.execvpe(command[0], command, child_env(cache))
    termios.tcsetwinsize(terminal, (30, 100)) if sys.version_info >= (3, 11) else None
    os.write(told, b"!")
    os.close(told)
    os.close(sized)
    shown = b""
    acted = act is None
    while select.select([terminal], [], [], 60)[0]:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
        if not acted and b"ready" in shown and act is not None:
            act(terminal)
            acted = True
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return status, shown.decode()


def test_on_a_terminal_stderr_is_a_terminal_of_the_same_size(tmp_path: Path) -> None:
    program = (
        "import os, sys, time; time.sleep(0.5); "
        "print([os.isatty(i) for i in range(3)], os.get_terminal_size(2).columns == 100 "
        "or sys.version_info < (3, 11)); "
        "print('\\rbar 50%', end='\\r', file=sys.stderr); print('bar 100%', file=sys.stderr)"
    )
    start = [*LAUNCHER, "--", "sh", "-c", 'sleep 0.3; exec "$@"', "sh"]
    status, shown = _on_terminal([*start, sys.executable, "-c", program], tmp_path)
    assert os.waitstatus_to_exitcode(status) == 0
    assert "[True, True, True] True" in shown
    assert "bar 50%\rbar 100%\r\n" in shown
    assert "rocm-tui: nothing was recorded: no process was seen to import torch" in shown
    (kept,) = Layout(tmp_path).sessions.glob("*.stderr.log")
    assert kept.read_bytes() == b"\rbar 50%\rbar 100%\n"


def test_ctrl_c_reaches_the_program_once(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\n"
        "caught = []\n"
        "signal.signal(signal.SIGINT, lambda *_: caught.append(1))\n"
        "print('ready', flush=True)\n"
        "end = time.monotonic() + 60\n"
        "while not caught and time.monotonic() < end: time.sleep(0.05)\n"
        "time.sleep(1)\n"  # a second one would have come by now
        "sys.exit(len(caught))\n"
    )
    status, _ = _on_terminal(
        [*LAUNCHER, "--", sys.executable, "-c", program],
        tmp_path,
        lambda terminal: void(os.write(terminal, b"\x03")),
    )
    assert os.waitstatus_to_exitcode(status) == 1


def void(*_: object) -> None:
    return None
