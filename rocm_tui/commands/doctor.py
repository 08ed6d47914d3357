"""`rocm-tui doctor`: what is found, what is missing, what to do about it."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rocm_tui.commands import common

MARKS = {"ok": "ok  ", "note": "note", "bad": "BAD "}


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check the installation",
        description="Check torch, device, cache dir, compilers, hooks and inotify. Exit code 1 if "
        "something keeps the main job from working.",
    )
    common.add_python(parser)
    common.add_cache_dir(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from rocm_tui import format as fmt
    from rocm_tui.doctor import examine

    checks = examine(common.layout_of(args), args.python)
    if args.json:
        common.print_json({"checks": [asdict(check) for check in checks]})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(f"{MARKS[check.verdict]}  {check.name:<{width}}  {fmt.plain(check.value)}")
            if check.advice:
                print(f"{'':<{width + 8}}{fmt.plain(check.advice)}")
    return 1 if any(check.verdict == "bad" for check in checks) else 0
