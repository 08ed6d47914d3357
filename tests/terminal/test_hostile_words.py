"""What a file, a name or a worker says is never a command to the terminal, whoever prints it."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unicodedata import category

import pytest
from textual.widgets import Input

from rocm_tui.harmless import cells, clean, plain, visible
from rocm_tui.tui.app import RocmTui
from rocm_tui.tui.screens.help import HelpScreen
from rocm_tui.tui.widgets.line_view import LineView
from tests.support import hostile_lab
from tests.support.drawing import lines_of
from tests.support.hostile_lab import EVIL, NAME, Planted, bytes_of, obeyed
from tests.support.screen_lab import panes_of, running, screen_text, until


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return hostile_lab.plant(tmp_path_factory.mktemp("hostile"))


COMMANDS = {
    "ls": "ls",
    "ls json": "ls --json",
    "ls of files": "ls {log} {mm_log} {mega_cache} {share} {name}",
    "show": "show {id}",
    "show json": "show {id} --json",
    "show one": "show {id} mm-c1",
    "show another": "show {id} {evil}",
    "show nothing": "show {evil}",
    "show from": "show {evil} --from {log} --from {name}",
    "source": "show {id} mm-c1 --source",
    "reproducer": "show {id} mm-c1 --reproducer {name}",
    "would pin": "pin {id} mm-c1 --dry-run",
    "pin again": "pin {id} mm-c1 --note {evil}",
    "pin nothing": "pin {id} {evil}",
    "pins": "pins --history",
    "pins json": "pins --history --json",
    "pins applied": "pins --reconcile",
    "unpin": "unpin {evil}",
    "verify": "verify --python {python}",
    "verify without": "verify --python {name}",
    "verify a program": "verify -- {evil}",
    "tune": "tune {id} --python {python}",
    "tune nothing": "tune {evil} {evil} --dtype {evil}",
    "tune a type": "tune mm 4x8 8x4 --dtype {evil} --device {evil}",
    "tune logs": "tune --dry-run --from-log {log} --from-log {mm_log} --from-log {name}",
    "measure": "measure {id} --python {python}",
    "measure nothing": "measure {id} {evil}",
    "report": "compare",
    "report json": "compare --json",
    "report of a log": "compare {log}",
    "compare": "compare {log} {log} --also-b {mm_log}",
    "compare markdown": "compare {log} {share} --markdown --fail-on-regression 5",
    "compare nothing": "compare {evil} {evil}",
    "agree": "agree {log} {mm_log} {share} --propose --force",
    "agree json": "agree --json --propose {share} {log}",
    "agree and pin": "agree {log} {share} --pin --yes --force -o {folder}/agreed{name}",
    "agree nothing": "agree {evil} --run {evil}",
    "compare badly": "compare a b --fail-on-regression {evil}",
    "export": "export --python {python}",
    "export to": "export -o {folder}/out{name} --python {python}",
    "export nowhere": "export -o {folder}/none{name}/x --python {python}",
    "export a table": "export --lookup-table --python {python}",
    "export options": "export --kernel-options --fastest --from {mm_log}",
    "export options json": "export --kernel-options --fastest --from {mm_log} --json",
    "import": "import {share} --python {python}",
    "import all": "import {share} --yes --python {python}",
    "import json": "import {share} --python {python} --json",
    "import nothing": "import {log}",
    "doctor": "doctor --python {python}",
    "prune": "prune --older-than 0",
    "doctor json": "doctor --python {python} --json",
    "doctor of files": "doctor {mega_cache} {log} {name}",
    "run": "run -- {evil}",
    "demo": "demo --python {name}",
    "no command": "{evil}",
    "no option": "ls --{evil}",
    "no choice": "completion {evil}",
}
HAVE_CACHE = set(COMMANDS) - {"run", "demo", "no command", "no option", "no choice"}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_sends_what_a_terminal_obeys(
    name: str, planted: Planted, tmp_path: Path
) -> None:
    files = ("log", "mm_log", "share", "mega_cache")
    places = {
        **{key: os.fspath(getattr(planted, key)) for key in files},
        "python": str(planted.python),
        "id": planted.id,
        "evil": EVIL.replace("\x00", "").replace("\ud800", "\udcff"),  # as argv can hold it
        "name": NAME,
        "folder": str(tmp_path),
    }
    words = [word.format(**places) for word in COMMANDS[name].split()]
    program = words[words.index("--") :] if "--" in words else []
    words = words[: len(words) - len(program)]
    if name in HAVE_CACHE:
        words += ["--cache-dir", str(planted.layout.root)]
    code, sent = bytes_of(
        [*words, *program], {"ROCM_TUI_HOME": str(tmp_path), "HOME": str(tmp_path)}
    )
    assert not obeyed(sent), sent
    assert code in (0, 1, 2, 127) and b"Traceback" not in sent, sent
    assert sent


def test_the_kernel_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A module of a Triton choice is what somebody wrote into the cache dir."""
    from rocm_tui.cli.common import print_source

    print_source("def kernel():\n\tpass  # \x1b]52;c;ZXZpbA==\x07\u202e\n")
    told = capsys.readouterr()
    assert told.out == "def kernel():\n\tpass  # ␛]52;c;ZXZpbA==␇\ufffd\n"
    assert told.err.startswith("rocm-tui: 3 control or direction characters of this source")
    print_source("x = 1\n")
    assert capsys.readouterr() == ("x = 1\n", "")


def test_what_a_mistake_of_ours_quotes() -> None:
    code = "from rocm_tui.cli import entry\nentry._prepare_streams()\n"
    code += "raise ValueError('\\x1b[2J\\x9b')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=180)
    assert b"ValueError" in done.stderr and not obeyed(done.stderr)


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}, {"LC_ALL": "POSIX"}])
def test_a_locale_without_letters(locale: dict[str, str], planted: Planted) -> None:
    """Neither a character that it lacks nor a byte of a file name that is no character."""
    env = {**os.environ, **locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for words in (["ls"], ["pins", "--history"], ["show", planted.id], ["ls", str(planted.log)]):
        done = subprocess.run(
            [sys.executable, "-m", "rocm_tui", *words, "--cache-dir", str(planted.layout.root)],
            env=env, capture_output=True, timeout=180,
        )  # fmt: skip
        assert done.returncode in (0, 1) and b"Traceback" not in done.stderr, done.stderr
        assert not obeyed(done.stdout + done.stderr)


SCREENS = ["3", "4", "7", "5", "question_mark", "ctrl+p"]


async def test_no_screen_draws_it(planted: Planted) -> None:
    async with running(planted.layout.root, planted.layout.root, planted.log, planted.mm_log,
                       planted.mega_cache, size=(160, 50)) as (app, pilot):  # fmt: skip
        await until(pilot, lambda: "3 with a single choice" in screen_text(app.screen))
        _look(app)
        await pilot.press("f")
        await panes_of(app, pilot, 6)
        _look(app)
        for key in ("c", "d", "escape", "j", "y", "t", "escape", "p", "escape", "u", "escape"):
            await pilot.press(key)
            _look(app)
        for key in SCREENS:
            await pilot.press(key, "j", "tab", "j", "tab")
            _look(app)
            await pilot.press("escape")
            if isinstance(app.screen, HelpScreen):  # the first one emptied its search
                await pilot.press("escape")
        app.notify(f"toast {EVIL}", title=EVIL, markup=False)
        app.query_one(LineView).tooltip = EVIL
        await pilot.pause(0.2)
        _look(app)
        await pilot.press("slash")
        app.screen.query_one(Input).value = "pasted \x1b[2J\x9b31m\u202e"
        await until(pilot, lambda: "pasted" in _drawn(app))
        _look(app)


def _drawn(app: RocmTui) -> str:
    return "\n".join("".join(text for _, text, *_ in line) for line in lines_of(app))


def _look(app: RocmTui) -> None:
    bad = [c for c in _drawn(app) if not c.isprintable() and c not in "\n\xa0"]
    assert not bad, (type(app.screen), bad)


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "2>log", "</dev/null"])
def test_a_screen_without_a_stream(closed: str, tmp_path: Path) -> None:
    """The keys come from the terminal itself; where there is nothing to draw on, one line."""
    (tmp_path / "cache").mkdir()
    command = f"exec {sys.executable} -m rocm_tui watch --cache-dir {tmp_path} {closed}"
    command = command.replace("2>log", f"2>{tmp_path}/log")
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv("/bin/sh", ["sh", "-c", command])
    sent, end = b"", time.monotonic() + 180
    while time.monotonic() < end and select.select([terminal], [], [], 60)[0]:
        try:
            sent += os.read(terminal, 1 << 16)
        except OSError:  # it has ended
            break
        if b"rocm-tui" in sent:
            os.write(terminal, b"q")
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert b"Traceback" not in sent, sent.decode(errors="replace")[-2000:]
    assert code == (1 if closed.startswith("2>") else 0)
    if closed == "2>log":
        (line,) = (tmp_path / "log").read_text().splitlines()
        assert line.startswith("rocm-tui: stderr, where the screen is drawn, is not a terminal")


@pytest.mark.parametrize("change", [clean, plain, visible, cells])
def test_each_way_leaves_nothing(change: Callable[[str], str]) -> None:
    every = "".join(
        map(chr, (*range(0x300), *range(0x2000, 0x2070), 0x180E, *range(0xFFF0, 0xFFFE)))
    )
    every += "\ufeff\ud800\udfff\U000e0001\U000e0041"
    kept = "\n\t" if change is visible else ""
    for text in (every, EVIL, EVIL * 3):
        left = change(text)
        kinds = {category(c) for c in left if c not in kept}
        assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"}, repr(left)
        assert change(left) == left


def test_json_is_ascii_and_strict(capsys: pytest.CaptureFixture[str]) -> None:
    from rocm_tui import say

    say.out_json({"a": [float("inf"), (float("nan"), -float("inf"), 1.5)], EVIL: EVIL})
    out = capsys.readouterr().out
    assert out.isascii() and not obeyed(out.encode())
    assert json.loads(out) == {"a": [None, [None, None, 1.5]], EVIL: EVIL}
