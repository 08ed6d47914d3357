"""`rocm-tui pin ID CHOICE`: let a choice win, from now on, for every torch.compile."""

from __future__ import annotations

import argparse

from rocm_tui import say
from rocm_tui.commands import common


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "pin",
        help="pin a choice",
        description="Pin CHOICE of tuning ID: every later torch.compile uses it until `unpin`.",
    )
    parser.add_argument("id", metavar="ID", help="a tuning's id, or its first digits")
    parser.add_argument(
        "choice", metavar="CHOICE", help="a name, a hash, a hash prefix, or #2 for the second best"
    )
    parser.add_argument("--note", default="", help="why, for those who come after")
    parser.add_argument("--dry-run", action="store_true", help="say what would change, change none")
    common.add_from(parser)
    common.add_cache_dir(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from backend.pins.store import PinStore
    from rocm_tui import format as fmt
    from rocm_tui.errors import NoSuchChoice, NotPinnable
    from rocm_tui.harmless import plain
    from rocm_tui.render.pins import pin_report_json, pin_warning, plan_json
    from rocm_tui.session.find import find_choice, system_hash

    layout = common.layout_of(args)
    model = common.load(layout, [str(layout.root), *args.sources])
    row = common.find_row(model, args.id)
    key = row.tuning.key
    if key is None:
        raise NotPinnable(
            f"tuning {row.id} is known from a log only, and a pin needs its entry in the "
            f"persistent cache; point --cache-dir to the one that the program used"
        )
    choice = find_choice(row.tuning, args.choice)
    if choice.hash is None:
        raise NoSuchChoice(
            f"the hash of {choice.label} is not known, because no cache or session holds it; "
            f"pin by a hash that `rocm-tui show {row.id}` prints"
        )
    store, system = PinStore(layout), system_hash(row, model.sessions, layout)
    if args.dry_run:
        plan = store.plan(system, key, choice.hash, choice.config)
        if args.json:
            say.out_json(plan_json(plan))
        else:
            say.out(
                f"would pin {plain(choice.label)} for {row.id}: {plan.numbers} number(s) are "
                f"raised out of reach in {plain(str(plan.path))}, {len(plan.graphs)} compiled "
                f"graph(s) are moved aside"
            )
        return 0
    report = store.pin(
        system, key, choice.hash, label=choice.label, note=args.note, config=choice.config
    )
    warning = pin_warning(row.tuning, choice)
    if warning:
        say.err(warning)
    state = report.status.state if report.status else "active"
    if args.json:
        say.out_json(pin_report_json(report))
    else:
        say.out(
            f"pinned {plain(choice.label)} for {row.id}, {state}: {report.numbers} number(s) "
            f"raised out of reach, {report.moved} compiled graph(s) moved aside"
        )
    return 0 if state == "active" else 1
