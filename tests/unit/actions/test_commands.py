"""The shell commands of the screen's actions, word by word, and the log of what was done."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.model.choice import Choice
from backend.model.tuning import Pin, Tuning
from rocm_tui.actions.commands import ShellCommands, read_commands, record_command
from rocm_tui.ingest.records import STDIN
from rocm_tui.jobs.tune import TuneOptions
from rocm_tui.session.model import Row

LONG = "triton_mm-0123456789abcdef0123"
TUNING = Tuning(
    "mm",
    choices=(Choice("mm", "mm-1", 1.0), Choice("triton_mm_1", LONG, 2.0)),
    sources=("/cache/cache/hash",),
)
ROW = Row("k", "abc1234", 1, TUNING)
PIN = Pin("mm", "[]", "highest", "mm-1", "mm", "s", {})


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> ShellCommands:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    return ShellCommands(Layout(Path("/cache")), ("/cache", "/logs", STDIN), "/its/python")


def words(command: str) -> list[str]:
    """Without the program and the cache dir."""
    first, *rest = shlex.split(command)
    assert first == "rocm-tui" and rest[-2:] == ["--cache-dir", "/cache"]
    return rest[:-2]


PYTHON = ["--python", "/its/python"]


def test_each_action_has_its_command(shell: ShellCommands) -> None:
    mm, triton = TUNING.choices
    short = "triton_mm-0123456789ab"
    assert words(shell.pin(ROW, triton)) == ["pin", "abc1234", short]
    assert words(shell.pin(ROW, mm, "a note")) == ["pin", "abc1234", "mm-1", "--note", "a note"]
    assert words(shell.unpin(PIN)) == ["unpin", PIN.id]
    assert words(shell.undo()) == ["pin", "--undo"]
    assert words(shell.reapply()) == ["pin", "--reconcile"]
    assert words(shell.verify(PIN)) == ["verify", PIN.id, *PYTHON]
    measure = ["measure", "abc1234", "mm-1", short, *PYTHON]
    assert words(shell.measure(ROW, [mm, triton])) == measure
    assert words(shell.measure_suspects()) == ["measure", "--suspects", "--from", "/logs", *PYTHON]
    trial = ["trial", "abc1234", short, "--graph", "aaaaaa1", *PYTHON]
    assert words(shell.trial(ROW, [triton], "aaaaaa1")) == trial
    assert words(shell.improve("aaaaaa1")) == ["improve", "aaaaaa1", *PYTHON]
    assert words(shell.prove("aaaaaa1")) == ["prove", "aaaaaa1", *PYTHON]


@pytest.mark.parametrize(
    ("options", "device", "more"),
    [
        (TuneOptions(), None, []),
        (TuneOptions(backends=("ATEN", "CK")), None, ["--backends", "ATEN,CK"]),
        (TuneOptions(search_space="exhaustive"), None, ["--search-space", "exhaustive"]),
        (TuneOptions(templates=True), None, ["--templates"]),
        (TuneOptions(budget=2.0), "1", ["--budget", "2", "--device", "1"]),
    ],
)
def test_a_tuning_has_the_options_that_differ(
    shell: ShellCommands, options: TuneOptions, device: str | None, more: list[str]
) -> None:
    assert words(shell.tune(ROW, options, device)) == ["tune", "abc1234", *more, *PYTHON]


def test_kernels_of_ours_are_offered_again_unless_it_says_otherwise(shell: ShellCommands) -> None:
    ours = replace(TUNING, choices=(*TUNING.choices, Choice("rocm_gemm_0", "rocm_gemm-c1", 3.0)))
    row = replace(ROW, tuning=ours)
    assert words(shell.tune(row, TuneOptions(templates=True), None))[2:] == PYTHON
    without = words(shell.tune(row, TuneOptions(), None))
    assert without[2:] == ["--no-templates", *PYTHON]


def test_a_list_of_products_is_tuned_into_a_file(shell: ShellCommands) -> None:
    command = ["tune", "/u.csv", "--tunableop", "-o", "/r.csv"]
    assert words(shell.tune_list("/u.csv", "/r.csv", None, None)) == [*command, *PYTHON]
    more = ["--budget", "2.5", "--device", "1", *PYTHON]
    assert words(shell.tune_list("/u.csv", "/r.csv", 2.5, "1")) == [*command, *more]


def test_sources_outside_the_cache_dir_are_named_where_the_tuning_is_there(
    shell: ShellCommands,
) -> None:
    outside = replace(ROW, tuning=replace(TUNING, sources=("/cache/cache/hash", "/logs/a.log")))
    assert words(shell.pin(outside, TUNING.choices[0]))[3:] == ["--from", "/logs"]
    bare = replace(shell, paths=("/cache/a", "/cache"), python=None)
    assert words(bare.measure_suspects()) == ["measure", "--suspects"]


def test_the_default_cache_dir_is_not_named(
    shell: ShellCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("LOGNAME", "USER"):
        monkeypatch.setenv(name, "ann")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/another")
    default = replace(shell, layout=Layout(tmp_path / "torchinductor_ann"))
    assert default.undo() == "rocm-tui pin --undo"


def test_a_hash_is_cut_unless_that_means_another_choice_too(shell: ShellCommands) -> None:
    twin = Choice("triton_mm_2", LONG + "ff", 3.0)
    both = replace(ROW, tuning=replace(TUNING, choices=(*TUNING.choices, twin)))
    assert words(shell.pin(both, twin))[2] == LONG + "ff"
    named = Choice("triton_mm-0123456789ab", "x-1", 3.0)
    both = replace(ROW, tuning=replace(TUNING, choices=(*TUNING.choices, named)))
    assert words(shell.pin(both, TUNING.choices[1]))[2] == LONG


def test_what_was_done_is_kept_in_its_order(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert read_commands(layout) == ()
    begun = time.time()
    record_command(layout, "rocm-tui pins", "done", True)
    record_command(layout, "rocm-tui undo", "x" * 600, False)
    first, second = read_commands(layout)
    assert (first.command, first.outcome, first.ok) == ("rocm-tui pins", "done", True)
    assert (second.command, second.outcome, second.ok) == ("rocm-tui undo", "x" * 500, False)
    assert begun <= first.when <= second.when <= time.time() and "@" in first.who
    text = layout.done.read_text()
    late = text.splitlines()[0].replace(str(first.when), "1e300")
    layout.done.write_text(f"{late}\n" + "[" * 99_999 + f"\n{{}}\n{text}")
    assert read_commands(layout) == (first, second)
    layout.done.unlink()
    layout.done.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        record_command(layout, "rocm-tui pins", "done", True)
