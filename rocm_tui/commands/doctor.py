"""`rocm-tui doctor`: what is found, what is missing, what to do about it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_tui import say
from rocm_tui.commands import common

if TYPE_CHECKING:
    from rocm_tui.doctor import Check

MARKS = {"ok": "ok  ", "note": "note", "bad": "BAD "}


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check the installation, or mega-cache files",
        description="Check torch, device, cache dir, compilers, hooks and inotify; or say what is "
        "in each mega-cache FILE and which pins it would hide. Exit code 1 if something keeps the "
        "main job from working, or a FILE is none or would hide a pin.",
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="the bytes that torch.compiler.save_cache_artifacts() gave, written to a file",
    )
    common.add_python(parser)
    common.add_cache_dir(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    if args.files:
        return _examine_files(args)
    from rocm_tui.doctor import examine

    checks = examine(common.layout_of(args), args.python)
    if args.json:
        say.out_json({"checks": [asdict(check) for check in checks]})
    else:
        _print(checks)
    return _code(checks)


def _examine_files(args: argparse.Namespace) -> int:
    from rocm_tui.actions.bundle import examine_bundle

    found = [examine_bundle(path, common.layout_of(args)) for path in args.files]
    if args.json:
        say.out_json({"bundles": [examined.as_json() for examined in found]})
    else:
        for number, examined in enumerate(found):
            if number:
                say.out()
            _print(examined.checks)
    return max(_code(examined.checks) for examined in found)


def _print(checks: Sequence[Check]) -> None:
    from rocm_tui.harmless import plain

    width = max(len(check.name) for check in checks)
    for check in checks:
        name = f"{plain(check.name):<{width}}"
        say.out(f"{MARKS[check.verdict]}  {name}  {plain(check.value)}")
        if check.advice:
            say.out(f"{'':<{width + 8}}{plain(check.advice)}")


def _code(checks: Sequence[Check]) -> int:
    return 1 if any(check.verdict == "bad" for check in checks) else 0
