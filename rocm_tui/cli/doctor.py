"""`rocm-tui doctor`: what is found, what is missing, what to do about it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rocm_tui import say
from rocm_tui.actions.doctor import Check, Examined, examine, examine_mega_cache
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.work import LiveLine
from rocm_tui.harmless import plain
from rocm_tui.render.table import hanging

MARKS = {"ok": "ok  ", "note": "note", "bad": "BAD "}


def add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check torch, device, cache dir, compilers, hooks and inotify; or say what is in each "
        "mega-cache FILE and which pins it would hide. Exit code 1 if something keeps the main job "
        "from working, or a FILE is none or would hide a pin."
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="the bytes that torch.compiler.save_cache_artifacts() gave, written to a file",
    )
    common.add_arguments(parser, "--python", "--cache-dir", "--json")


def do_doctor(args: argparse.Namespace) -> int:
    layout = common.layout_of(args)
    if args.files:
        examined = [examine_mega_cache(path, layout) for path in args.files]
        value: dict[str, Any] = {"bundles": [mega_cache_json(one) for one in examined]}
        groups = [one.checks for one in examined]
    else:
        line = LiveLine("doctor")  # torch, and a kernel for each target, take seconds
        line.show("asking torch and the compilers")
        checks = examine(layout, args.python)
        line.show("")
        value, groups = {"checks": [asdict(check) for check in checks]}, [checks]
    if args.json:
        say.out_json(value)
    else:
        for number, checks in enumerate(groups):
            if number:
                say.out()
            _print(checks)
    return ExitCode.of(all(check.verdict != "bad" for checks in groups for check in checks))


def mega_cache_json(examined: Examined) -> dict[str, Any]:
    artifacts = () if examined.mega is None else examined.mega.artifacts
    return {
        "path": examined.path,
        "size": None if examined.mega is None else examined.mega.size,
        "artifacts": [
            {"type": a.type, "key": a.key, "size": a.size, "loaded": a.loaded} for a in artifacts
        ],
        "hides": [
            {"pin": h.pin.id, "label": h.pin.label, "key": h.artifact.key, "verdict": h.verdict}
            for h in examined.hidden
        ],
        "configurations": dict(examined.overwritten),
        "checks": [asdict(check) for check in examined.checks],
    }


def _print(checks: Sequence[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        name = f"{plain(check.name):<{width}}"
        say.out(hanging(f"{MARKS[check.verdict]}  {name}  ", plain(check.value)))
        if check.advice:
            say.out(hanging(" " * (width + 8), plain(check.advice)))
