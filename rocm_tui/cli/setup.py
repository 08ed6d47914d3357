"""`rocm-tui doctor`, `prune` and `completion`."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from backend.counted import counted
from backend.pins.leftovers import DAYS, Leftover, leftovers, remove
from rocm_tui import say
from rocm_tui.actions.doctor import DoctorCheck, Examined, examine, examine_mega_cache
from rocm_tui.cli import common
from rocm_tui.cli.common import COMPLETE_VARIABLE, PROGRAM, ExitCode
from rocm_tui.cli.work import LiveLine
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render.table import hanging, plain_table
from rocm_tui.session import numbers as fmt

MARKS = {"ok": "ok  ", "note": "note", "bad": "BAD "}


@click.command()
@click.argument("files", metavar="[FILE]...", type=common.FILE, nargs=-1)
@common.worker_options
def doctor_command(
    files: Sequence[Path], python: str | None, cache_dir: Path | None, json: bool
) -> int:
    """Check torch, device, cache directory, compilers, hooks and inotify.

    FILE holds the bytes of torch.compiler.save_cache_artifacts(): its contents are listed, and the
    pins that it would hide. Exit code 1 if something is broken, or if a FILE cannot be read or
    hides a pin.

    Example: rocm-tui doctor
    """
    layout = common.layout_at(cache_dir)
    value: JsonObject
    if files:
        examined = [examine_mega_cache(path, layout) for path in files]
        value = MegaCachesJson(bundles=[MegaCacheJson.of(each) for each in examined])
        groups = [each.checks for each in examined]
    else:
        with LiveLine().during("doctor", "asking torch and the compilers"):  # takes seconds
            checks = examine(layout, python)
        value, groups = ChecksJson(checks=checks), [checks]
    if json:
        say.out_json(value)
    else:
        for number, checks in enumerate(groups):
            if number:
                say.out()
            _print_checks(checks)
    return ExitCode.of(all(check.verdict != "bad" for checks in groups for check in checks))


class ChecksJson(Document, tag="rocm-tui/doctor/1"):
    checks: Sequence[DoctorCheck]


class ArtifactJson(JsonObject):
    type: str
    key: str
    size: int
    loaded: bool


class HiddenPinJson(JsonObject):
    pin: str
    label: str
    key: str
    verdict: str


class MegaCacheJson(JsonObject):
    """A file of PyTorch's mega-cache: its contents, and the pins that it would hide."""

    path: str
    size: int | None
    artifacts: list[ArtifactJson]
    hides: list[HiddenPinJson]
    configurations: dict[str, str]
    checks: Sequence[DoctorCheck]

    @classmethod
    def of(cls, examined: Examined) -> MegaCacheJson:
        artifacts = () if examined.mega is None else examined.mega.artifacts
        return fill(
            cls,
            examined,
            size=None if examined.mega is None else examined.mega.size,
            artifacts=[fill(ArtifactJson, artifact) for artifact in artifacts],
            hides=[
                fill(HiddenPinJson, each, each.pin, pin=each.pin.id, key=each.artifact.key)
                for each in examined.hidden
            ],
            configurations=dict(examined.overwritten),
        )


class MegaCachesJson(Document, tag="rocm-tui/doctor-mega-caches/1"):
    bundles: list[MegaCacheJson]


def _print_checks(checks: Sequence[DoctorCheck]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        name = f"{plain(check.name):<{width}}"
        say.out(hanging(f"{MARKS[check.verdict]}  {name}  ", plain(check.value)))
        if check.advice:
            say.out(hanging(" " * (width + 8), plain(check.advice)))


@click.command()
@click.option(
    "--older-than",
    type=float,
    default=DAYS,
    metavar="DAYS",
    help=f"Take only files not used for this long (default: {DAYS:g}).",
)
@common.flag("--yes", "Remove them.")
@common.output_options
def prune_command(older_than: float, yes: bool, cache_dir: Path | None, json: bool) -> int:
    """List old files of rocm-tui in the cache directory; remove them with --yes.

    These are sessions, captured graphs, caches of trials and compiled kernels. All files of
    Inductor stay, and so does what is needed to undo a pin.

    Example: rocm-tui prune --older-than 90
    """
    if not (math.isfinite(older_than) and older_than >= 0):
        raise UsageError(f"--older-than is a number of days, from 0 on: {older_than}")
    layout, now = common.layout_at(cache_dir), time.time()
    files = leftovers(layout, now, older_than)
    removed = [old for old in files.old if yes and remove(layout, old, now, older_than)]
    if json:
        old = [LeftoverJson.of(each, each in removed) for each in files.old]
        say.out_json(PrunedJson(leftovers=old, kept=files.kept))
    elif not files.old:
        say.out("Nothing is old: nothing to remove.")
    elif yes:
        say.out(f"Removed {_total(removed)}.")
    else:
        say.out(_leftovers_text(files.old, now))
        say.out(f"\n{_total(files.old)} in all; --yes removes it.")
    for line in files.kept:
        say.err(plain(line))
    return ExitCode.YES


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> int:
    """Print the completion script of SHELL, which also completes the ids of your tunings.

    Example: rocm-tui completion bash

    \b
    bash: eval "$(rocm-tui completion bash)" in ~/.bashrc
    zsh:  eval "$(rocm-tui completion zsh)" in ~/.zshrc
    fish: rocm-tui completion fish > ~/.config/fish/completions/rocm-tui.fish
    """
    script_of = get_completion_class(shell)
    assert script_of is not None
    say.out_text(script_of(click.Command(PROGRAM), {}, PROGRAM, COMPLETE_VARIABLE).source())
    return ExitCode.YES


def _total(leftovers: Sequence[Leftover]) -> str:
    """`12 things, 3.4 MiB`."""
    count = len(leftovers)
    size = sum(leftover.size for leftover in leftovers)
    return f"{counted(count, 'thing')}, {fmt.size(size)}"


def _leftovers_text(leftovers: Sequence[Leftover], now: float) -> str:
    """A line a kind: how many, how much, how long the last one was not used."""
    rows = []
    for kind in dict.fromkeys(leftover.kind for leftover in leftovers):
        group = [leftover for leftover in leftovers if leftover.kind == kind]
        size = fmt.size(sum(leftover.size for leftover in group))
        latest = max(leftover.used for leftover in group)
        rows.append([kind, fmt.count(len(group)), size, fmt.age(latest, now)])
    return plain_table(["WHAT", "COUNT", "SIZE", "LAST USED"], rows, "lrrr")


class LeftoverJson(JsonObject):
    """Old files below the cache directory."""

    kind: str
    paths: list[str]
    bytes: int
    last_used: float
    removed: bool

    @classmethod
    def of(cls, leftover: Leftover, removed: bool) -> LeftoverJson:
        return cls(
            kind=leftover.kind,
            paths=[str(path) for path in leftover.files],
            bytes=leftover.size,
            last_used=leftover.used,
            removed=removed,
        )


class PrunedJson(Document, tag="rocm-tui/prune/1"):
    leftovers: list[LeftoverJson]
    kept: tuple[str, ...]
