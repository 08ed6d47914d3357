"""`rocm-tui lint TABLE...`: what is wrong with other tuners' tables."""

from __future__ import annotations

import argparse

from rocm_tui import say
from rocm_tui.actions.lint import device_here, lint_files
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.render.lint import lint_json, rules_text, text
from rocm_tui.tables.device import device_given
from rocm_tui.tables.lint import RULE_IDS

_LIBRARIES = ("torch", "hip", "rocm", "hipblaslt", "rocblas")


def add_lint(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check tuned tables of TunableOp, AITER, hipBLASLt, vLLM and SGLang: rows that can never "
        "match a device, that their library skips or refuses, that contradict each other, or that "
        "claim what the device cannot do. Each TABLE is a file, or a folder of them; AITER's "
        "tables of one name in a folder and in its model_configs are checked as one."
    )
    parser.epilog = (
        "exit codes: 0 nothing, or notes alone, 1 an error or a warning, 2 bad usage. --rules "
        "lists the rules with their levels."
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="file or folder")
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="check for this one: gfx942:304 (with its compute units), gfx942, or MI300X (default: "
        "this machine's; with none, only what no device decides)",
    )
    for library in _LIBRARIES:
        parser.add_argument(
            f"--{library}",
            metavar="VERSION",
            help=f"check for this version of {library}; 2.9 stands for every 2.9.x",
        )
    for option, help_text in (
        ("--rule", "check this rule alone (may be repeated)"),
        ("--ignore", "leave this rule out (may be repeated)"),
    ):
        parser.add_argument(
            option, action="append", default=[], metavar="RULE", choices=RULE_IDS, help=help_text
        )
    parser.add_argument(
        "--each", action="store_true", help="tell each row, not one line for all that are alike"
    )
    parser.add_argument(
        "--rules", action="store_true", help="list the rules, and where they are from"
    )
    common.add_arguments(parser, "--json")


def do_lint(args: argparse.Namespace) -> int:
    if args.rules:
        say.out(rules_text())
        return ExitCode.YES
    if not args.tables:
        raise UsageError("name the tables: files, or folders of them")
    device = device_here() if args.device is None else device_given(args.device)
    versions = {name: told for name in _LIBRARIES if (told := getattr(args, name)) is not None}
    linted = lint_files(args.tables, device, versions, args.rule, args.ignore, each=args.each)
    if args.json:
        say.out_json(lint_json(linted))
    else:
        say.out(text(linted))
    return ExitCode.of(not linted.fails)
