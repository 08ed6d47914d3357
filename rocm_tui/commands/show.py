"""`rocm-tui show ID [CHOICE]`: one tuning with all its choices, or the kernel of one of them."""

from __future__ import annotations

import argparse
from pathlib import Path

from rocm_tui import say
from rocm_tui.commands import common
from rocm_tui.harmless import plain, visible


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "show",
        help="show one tuning with all its choices",
        description="Show the latest tuning with that id: every choice, its time, its "
        "configuration, and why it failed if it did. The kernel of a CHOICE of our templates can "
        "be printed, or written as a folder that builds, runs, checks and times it.",
    )
    parser.add_argument("id", metavar="ID", help="a tuning's id, or its first digits")
    parser.add_argument(
        "choice", metavar="CHOICE", nargs="?", help="a name, a hash, a hash prefix, or #2"
    )
    kernel = parser.add_mutually_exclusive_group()
    kernel.add_argument("--source", action="store_true", help="print the kernel of CHOICE")
    kernel.add_argument(
        "--reproducer", type=Path, metavar="DIR", help="write a folder that runs CHOICE alone"
    )
    common.add_from(parser)
    common.add_cache_dir(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from rocm_tui.errors import UsageError
    from rocm_tui.session.find import find_choice

    if (args.source or args.reproducer) and args.choice is None:
        raise UsageError("--source and --reproducer need a CHOICE: show ID CHOICE --source")
    layout = common.layout_of(args)
    model = common.load(layout, [str(layout.root), *args.sources])
    row = common.find_row(model, args.id)
    choice = None if args.choice is None else find_choice(row.tuning, args.choice)
    if choice is not None and (args.source or args.reproducer):
        from rocm_tui.session.kernel_source import kernel_of, write_reproducer

        session = model.sessions.get(row.tuning.session or "")
        if args.source:
            _print_source(kernel_of(row.tuning, choice, session, layout))
        else:
            target = write_reproducer(args.reproducer, row.tuning, choice, session)
            path = plain(str(args.reproducer))
            say.out(f"wrote {path}; `make -C {path}` builds it for {target}")
        return 0
    from rocm_tui.render.resources import resources_json
    from rocm_tui.session.kernel_resources import KernelResources

    shown = row.tuning.choices if choice is None else (choice,)
    found = KernelResources(layout.root).of(shown)
    if args.json:
        from rocm_tui.render.tunings import choice_json, row_json
        from rocm_tui.session import stats

        value = (
            row_json(row)
            if choice is None
            else choice_json(choice, stats.measured(row.tuning, choice))
        )
        for one in value["choices"] if choice is None else [value]:
            one["resources"] = resources_json(found.get(one["hash"]))
        say.out_json(value)
        return 0
    from rocm_tui.render.detail import show_text
    from rocm_tui.render.resources import block

    say.out(show_text(row, choice))
    if taken := block(shown, found):
        say.out(f"\n{taken}")
    return 0


def _print_source(source: str) -> None:
    """As it is, but for what would be a command to the terminal."""
    say.out_text(source)
    changed = sum(map(str.__ne__, source, visible(source)))
    if changed:
        say.err(f"{changed} control or direction characters of this source are shown as pictures")
