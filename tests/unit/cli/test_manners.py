"""How the commands behave as a person meets them: exit codes, errors, widths, Tab, the manual."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocm_tui.cli.entry import COMMANDS, build_parser, main
from rocm_tui.cli.parser import Parser
from rocm_tui.meant import nearest
from tests.support.log_lab import BMM
from tests.support.tools import needs_tool, require_tool

PROGRAM = [sys.executable, "-m", "rocm_tui"]
LONG = "conv_depthwise_backward_with_a_very_long_name_of_a_template_17"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log of two choices, an empty file, and a cache dir that is not there."""
    folder = tmp_path_factory.mktemp("manners")
    (folder / "a.log").write_text(BMM)
    (folder / "wide.log").write_text(BMM.replace("cpp_CppMicroGemmFP32Vec_0", LONG))
    (folder / "empty.log").touch()
    return folder


def env(place: Path) -> dict[str, str]:
    return {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(place / "cache")}


def ask(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, cwd=place, env=env(place), timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


NOT_THERE = """
ls missing.log; ls empty.log; show a72 --from missing.log; show zzz --from a.log
show a72 zzz --from a.log; pin zzz #1; pin a72 #9 --from a.log; unpin zzz; verify zzz; verify
tune zzz; tune --from-log missing.log; measure zzz; measure a72 --from missing.log
trial zzz; improve zzz; improve; prove zzz; prove; graphs zzz; graphs
compare missing.log a.log; compare a.log missing.log; compare a.log empty.log; compare missing.log
export zzz; export; import missing.json; import a.log; doctor missing.bin; watch missing.log
demo --python /no/such/python; sessions missing.log; undo; compare zzz
agree; agree missing.log; agree a.log; agree zzz; agree --run zzz
agent --python /no/such/python; fleet; fleet show zzz; fleet cancel zzz; tune --resume
lint missing.csv; lint a.log; cover missing.log; cover a.log; cover a.log --table a.log
"""
"""What is asked makes sense, and the answer is no: what is named is not there, or holds nothing."""

MISTYPED = """
whatch; ls --jsn; show; pin; pin a72; unpin; unpin --all a72; import; compare a b c; run
tune; tune mm; tune mm 8xa 3x4 --dtype f32; tune mm 8x4 4x4 --dtype zz --dry-run; tune mm 8x4 4x4
tune mmm 8x4 4x4 --dtype f32 --dry-run; tune mm 8x4 4x4 --dtype f32 --search-space ful
tune mm 8x4 4x4 --dtype f32 --backends ZZ; measure; measure a72 --budget never; measure --rounds x
trial; improve --budget x; prove --pairs 1; verify --timeout 0; compare a.log --markdown
prune --older-than x; export --json; graphs --text; watch --no-such; demo --no-such
doctor --no-such; pins --no-such; serve --port x; serve --host 0.0.0.0; config --no-such
show a72 --source; run --no-such; sessions --no-such; undo --no-such; agent --no-such
fleet --no-such; fleet lss; fleet cancel
tune zzz --fleet local --repeat 0; tune zzz --fleet local --device 0; tune zzz --resume
watch --read-only -- true; watch --
tail --no-such; ls ssh://-x; watch ssh://-oProxyCommand=x/p; show a72 --from ssh://b?x=y
agree --ranks x; agree --ranks 0; agree --no-such; agree --yes; agree --out x; agree --pin --out x
agree --budget 3; agree --force; agree --ranks 9999999999
lint; lint a.log --device X; lint a.log --rule zz
cover; cover a.log --force; cover a.log --device 304; cover a.log --device gfx942:
"""
"""Words that no command can make sense of."""


def asked(text: str) -> list[list[str]]:
    return [words.split() for line in text.splitlines() for words in line.split(";") if words]


def code_of(words: Sequence[str]) -> int:
    """The exit code of a command line, in this process."""
    try:
        return main(words)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize(("code", "text"), [(1, NOT_THERE), (2, MISTYPED)])
def test_one_rule_of_exit_codes(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    text: str,
) -> None:
    """0 yes, 1 no, 2 bad usage; bad usage is one line on stderr."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(place / "cache"))
    wrong = []
    for words in asked(text):
        got = code_of(words)
        out, err = capsys.readouterr()
        if got != code or (code == 2 and (out or err.count("\n") != 1)):
            wrong.append(f"{' '.join(words)}: {got}: {out}{err[-200:]}")
    assert wrong == []
    assert code_of(["ls", "a.log"]) == 0


def test_the_rule_was_asked_of_every_command() -> None:
    """Those without a file, an id or a choice cannot miss one."""
    nothing = {"run", "pins", "prune", "serve", "config", "tail"}
    assert set(COMMANDS) - {words[0] for words in asked(NOT_THERE)} <= nothing
    assert set(COMMANDS) - {words[0] for words in asked(MISTYPED)} == set()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("whatch", "no command 'whatch' (did you mean 'watch'?)"),
        ("ls --jsn", "rocm-tui ls: no option '--jsn' (did you mean '--json'?)"),
        ("compare a b c", "rocm-tui compare: one word too many: 'c'"),
        ("--print-completion fsh", "(did you mean 'fish'?)"),
        ("tune mm 4x4 4x4 --dtype f32 --search-space defult", "(did you mean 'default'?)"),
        ("tune mm 4x4 4x4 --dtype bfloat61", "bfloat61 is no type (did you mean 'bfloat16'?)"),
        ("tune bmmm 4x4 4x4 --dtype f32", "no op 'bmmm' is known (did you mean 'bmm'?)"),
        ("tune mm 8xa 3x4 --dtype f32", "8xa is no shape"),
        ("tune mm --dtype f32", "say the shapes of mm's operands"),
        ("tune a72 --dtype f32", "--dtype goes with OP SHAPE"),
        ("tune a72 --from a.log -o out.csv", "-o and --force go with --tunableop"),
        ("tune a72 --from a.log --force", "-o and --force go with --tunableop"),
        ("show a73 --from a.log", "no tuning has the id 'a73' (did you mean 'a72cedf'?)"),
        ("show a72 bmn --from a.log", "has no choice 'bmn' (did you mean 'bmm'?)"),
        ("show a72 --from missing.log", "missing.log: no such file"),
        ("import", "required: FILE;"),
        ("measure", "measure ID, or measure --suspects"),
    ],
)
def test_an_error_names_the_wrong_word(place: Path, words: str, said: str) -> None:
    done = ask(place, *words.split())
    assert done.returncode in (1, 2) and done.stdout == ""
    assert said in done.stderr and done.stderr.count("\n") == 1


def test_nothing_is_guessed_of_what_is_like_nothing() -> None:
    assert nearest("zzz", ("watch", "ls", "a72cedf")) is None
    assert nearest("mesure", COMMANDS) == "measure"
    assert nearest("a73c", ("b81729a", "a72cedf")) == "a72cedf"


def test_what_may_be_left_out_is_required_nowhere() -> None:
    parsers = [action.choices for action in build_parser()._actions if action.dest == "command"]
    named = dict(parsers[0] or {})
    assert set(named) == set(COMMANDS)
    for name, parser in named.items():
        assert isinstance(parser, Parser)
        for action in parser._actions:
            assert not (action.nargs == "*" and action.required), f"{name} {action.metavar}"


def on_terminal(place: Path, width: int, *words: str) -> list[str]:
    """The lines that a command prints on a terminal that wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *words], stdout=theirs, stdin=subprocess.DEVNULL, cwd=place, env=env(place)
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says so that nobody holds the other end
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait() == 0
    return shown.decode().splitlines()


@pytest.mark.parametrize("width", [72, 80, 100, 120])
def test_a_table_fits_the_terminal(place: Path, width: int) -> None:
    lines = on_terminal(place, width, "ls", "wide.log")
    assert max(map(len, lines)) <= width and len(lines) == 2
    assert "id" in lines[0].split() and "time" in lines[0].split() and "…" in lines[1]
    assert lines[1].startswith("a72cedf ") and "~300.0 µs" in lines[1]
    shown = on_terminal(place, width, "show", "a72", "--from", "wide.log")
    assert all(len(line) <= width for line in shown[-3:])


def test_a_pipe_gets_all_of_it(place: Path) -> None:
    """No narrower for a COLUMNS that a shell has exported."""
    done = subprocess.run(
        [*PROGRAM, "ls", "wide.log"], capture_output=True, text=True, cwd=place,
        env=env(place) | {"COLUMNS": "60"},
    )  # fmt: skip
    assert done.stdout.split("\n")[0].split()[-1] == "pin"
    assert len(done.stdout.split("\n")[1]) > 90


def test_the_manual_is_well_formed(place: Path) -> None:
    page = ask(place, "--print-man").stdout
    assert page.startswith(".TH ROCM-TUI 1 ") and page.isascii()
    for name in COMMANDS:
        assert f".SS {name}\n" in page
    assert r"\-\-allow\-actions" in page and r"\fB2\fR" in page
    assert all(len(line) < 200 for line in page.splitlines())


@pytest.mark.parametrize("checker", ["mandoc -T lint -W warning", "groff -man -ww -z"])
def test_the_manual_passes_a_checker(place: Path, checker: str) -> None:
    command = checker.split()
    require_tool(command[0])
    page = ask(place, "--print-man").stdout
    done = subprocess.run(command, input=page, capture_output=True, text=True)
    assert done.stdout + done.stderr == "" and done.returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_lists_commands_and_ids(place: Path, shell: str) -> None:
    script = ask(place, "--print-completion", shell).stdout
    listed = [name for name, command in COMMANDS.items() if not command.hidden]
    assert all(name in script for name in listed) and "--print-ids tunings" in script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_its_shell(place: Path, shell: str) -> None:
    require_tool(shell)
    script = ask(place, "--print-completion", shell).stdout
    subprocess.run([shell, "-n"], input=script, text=True, check=True)


def _tool(place: Path) -> dict[str, str]:
    """Where `rocm-tui` is on the PATH, with a cache dir of which a log is the tuning's source."""
    folder = place / "bin"
    folder.mkdir(exist_ok=True)
    tool = folder / "rocm-tui"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocm_tui "$@"\n')
    tool.chmod(0o755)
    sessions = place / "tabs"
    sessions.mkdir(exist_ok=True)
    (sessions / "train.log").write_text(BMM)
    path = f"{folder}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TORCHINDUCTOR_CACHE_DIR": str(sessions)}


def test_tab_knows_commands_options_and_ids_in_bash(place: Path) -> None:
    code = """
source <(rocm-tui --print-completion bash)
tab() {
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shtab_rocm_tui; echo "${COMPREPLY[@]}"
}
tab rocm-tui mea; tab rocm-tui ls --js; tab rocm-tui show a7; tab rocm-tui tune --search-space ex
"""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, env=_tool(place))
    assert done.stdout.split() == ["measure", "--json", "a72cedf", "exhaustive"], done.stderr


@needs_tool("fish")
def test_tab_knows_them_in_fish_and_says_what_they_are(place: Path) -> None:
    code = """
rocm-tui --print-completion fish | source
for line in 'mea' 'ls --js' 'show a7' 'tune --search-space ex'; complete -C "rocm-tui $line"; end
"""
    done = subprocess.run(
        ["fish", "--no-config", "-c", code], capture_output=True, text=True, env=_tool(place)
    )
    words = [line.split("\t") for line in done.stdout.splitlines()]
    assert [word[0] for word in words] == ["measure", "--json", "a72cedf", "exhaustive"]
    assert words[0][1] == COMMANDS["measure"].help and "8×128×192×256" in words[2][1]
