"""How the commands behave as a person meets them: exit codes, errors, widths, Tab, the manual."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from rocm_tui.cli.entry import COMMANDS, main
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
demo --python /no/such/python; sessions missing.log; undo; pin --undo; compare zzz; report zzz
agree; agree missing.log; agree a.log; agree zzz; agree --run zzz
tune mm 8x4 4x4 --dtype f32 --fleet local --python /no/such/python
lint missing.csv; lint a.log; cover missing.log; cover a.log; cover a.log --table a.log
"""
"""What is asked makes sense, and the answer is no: what is named is not there, or holds nothing."""

MISTYPED = """
completion; completion tcsh
whatch; ls --jsn; show; pin --wrong; pin a72; unpin; unpin --all a72; import; compare a b c; run
tune; tune mm; tune mm 8xa 3x4 --dtype f32; tune mm 8x4 4x4 --dtype zz --dry-run; tune mm 8x4 4x4
tune mmm 8x4 4x4 --dtype f32 --dry-run; tune mm 8x4 4x4 --dtype f32 --search-space ful
tune mm 8x4 4x4 --dtype f32 --backends ZZ; measure; measure a72 --budget never; measure --rounds x
trial; trial --dry-run -- true; verify --dry-run -- true; unpin --dry-run
improve --budget x; prove --pairs 1; verify --timeout 0; compare a.log --markdown
prune --older-than x; export --json; graphs --text; watch --no-such; demo --no-such
doctor --no-such; pins --no-such; serve --port x; serve --host 0.0.0.0; config --no-such
show a72 #1 --source --stage ptx; show a72 #1 --from a.log --source --json
compare a.log a.log --json --markdown; config --write --check
mcp --x
schema sl; show a72 --source; run --no-such; sessions --no-such; undo --no-such; report --markdown
tune zzz --fleet local --repeat 0; tune zzz --fleet local --device 0; tune zzz --missing
watch --read-only -- true; watch --
tail; ls ssh://gpu1; watch ssh://gpu1/p; show a72 --from ssh://b; compare a.log --also-a ssh://b
agree a.log ssh://b; serve ssh://b; tune --from-log ssh://b
agree --ranks x; agree --ranks 0; agree --no-such; agree --yes; agree -o x; agree --pin --output x
agree --budget 3; agree --force; agree --ranks 9999999999
lint; lint a.log --device X; lint a.log --rule zz
cover; cover a.log --force; cover a.log --device 304; cover a.log --device gfx942:
"""
"""Words that no command can make sense of."""


def asked(text: str) -> list[list[str]]:
    return [words.split() for line in text.splitlines() for words in line.split(";") if words]


@pytest.mark.parametrize(("code", "text"), [(1, NOT_THERE), (2, MISTYPED)])
def test_one_rule_of_exit_codes(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    text: str,
) -> None:
    """0 yes, 1 no, 2 bad usage; bad usage is one line on stderr, and a document with --json."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(place / "cache"))
    wrong = []
    for words in asked(text):
        got = main(words)
        out, err = capsys.readouterr()
        lines = (int("--json" in words), 1)
        if got != code or (code == 2 and (out.count("\n"), err.count("\n")) != lines):
            wrong.append(f"{' '.join(words)}: {got}: {out}{err[-200:]}")
    assert wrong == []
    assert main(["ls", "a.log"]) == 0


def test_the_rule_was_asked_of_every_command() -> None:
    """Those without a file, an id or a choice cannot miss one."""
    nothing = {"run", "prune", "serve", "config", "completion", "schema", "mcp"}
    assert set(COMMANDS) - {words[0] for words in asked(NOT_THERE)} <= nothing
    assert set(COMMANDS) - {words[0] for words in asked(MISTYPED)} == set()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("whatch", "No such command 'whatch'. Did you mean 'watch'?"),
        ("ls --jsn", "No such option '--jsn'. Did you mean '--json'? Try 'rocm-tui ls --help'."),
        ("compare a b c", "extra argument (c) Try 'rocm-tui compare --help'."),
        ("completion fsh", "'fsh' is not one of 'bash', 'zsh', 'fish'."),
        (
            "tune mm 4x4 4x4 --dtype f32 --search-space defult",
            "'defult' is not one of 'default', 'exhaustive'.",
        ),
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
        (
            "watch a.log ssh://gpu1/logs",
            "reading over ssh was removed: run `ssh HOST -t rocm-tui watch` there, or copy the "
            "folder\n",
        ),
        ("compare a.log ssh://gpu1", "reading over ssh was removed"),
        ("import", "Missing argument 'FILE'."),
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_its_shell(place: Path, shell: str) -> None:
    require_tool(shell)
    script = ask(place, "completion", shell).stdout
    assert "rocm-tui" in script
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


LINES = ("mea", "ls --js", "show a7", "tune --search-space ex")
WORDS = ["measure", "--json", "a72cedf", "exhaustive"]


def test_tab_knows_commands_options_and_ids_in_bash(place: Path) -> None:
    code = """
eval "$(rocm-tui completion bash)"
tab() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
  _rocm_tui_completion rocm-tui; echo "${COMPREPLY[@]}"; }
""" + "".join(f"tab rocm-tui {line}\n" for line in LINES)
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, env=_tool(place))
    assert done.stdout.split() == WORDS, done.stderr


def test_the_answer_for_zsh_says_what_each_word_is(place: Path) -> None:
    for line, word in zip(LINES, WORDS, strict=True):
        words = f"rocm-tui {line}"
        asked = {
            "_ROCM_TUI_COMPLETE": "zsh_complete", "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }  # fmt: skip
        done = subprocess.run(
            ["rocm-tui"], capture_output=True, text=True, env=_tool(place) | asked
        )
        kind, value, about = done.stdout.splitlines()[:3]
        assert (kind, value) == ("plain", word)
        assert about or line.startswith("tune")


@needs_tool("fish")
def test_tab_knows_them_in_fish_and_says_what_they_are(place: Path) -> None:
    lines = " ".join(f"'{line}'" for line in LINES)
    code = "rocm-tui completion fish | source\n"
    code += f'for line in {lines}; complete -C "rocm-tui $line"; end'
    done = subprocess.run(
        ["fish", "--no-config", "-c", code], capture_output=True, text=True, env=_tool(place)
    )
    words = [line.split("\t") for line in done.stdout.splitlines()]
    assert [word[0] for word in words] == WORDS
    assert words[0][1] == COMMANDS["measure"].help and "8×128×192×256" in words[2][1]


def test_tab_in_a_cache_dir_that_cannot_be_read_offers_nothing(place: Path) -> None:
    broken = place / "broken"
    broken.mkdir()
    (broken / "rocm_tui").write_text("not a folder")
    asked = {
        "_ROCM_TUI_COMPLETE": "zsh_complete",
        "COMP_WORDS": "rocm-tui unpin ",
        "COMP_CWORD": "2",
    }
    env_of_tab = _tool(place) | asked | {"TORCHINDUCTOR_CACHE_DIR": str(broken)}
    done = subprocess.run(["rocm-tui"], capture_output=True, text=True, env=env_of_tab)
    assert (done.stdout.strip(), done.stderr) == ("", "")
