"""`rocm-tui bundle -o FILE`: what lets a service start warm, in one file;
`rocm-tui unbundle FILE`: check it against this box, and take it in."""

from __future__ import annotations

import argparse
import re
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backend.counted import counted
from backend.pins.state import PinStatus
from backend.sharing.bundle.arrive import Taken
from backend.sharing.bundle.examine import Hidden
from backend.sharing.bundle.manifest import Box, Manifest
from backend.sharing.bundle.pack import Packed
from backend.sharing.bundle.parts import PARTS, part_of
from backend.wire.codec import to_json
from rocm_tui import say
from rocm_tui.actions.bundle import (
    BundlePlan,
    apply_unbundle,
    pack_bundle,
    parts_of,
    plan_unbundle,
)
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.render.pins import step_json
from rocm_tui.render.table import table
from rocm_tui.session import numbers as fmt

_PARTS = ", ".join(PARTS)


def _add_parts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--with", dest="wanted", metavar="PARTS", help=f"only these: {_PARTS}; with commas between"
    )
    parser.add_argument("--without", metavar="PARTS", help="all but these, as in graphs,code")


def add_bundle(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Pack what the cache dir has of timings, pins, compiled graphs, generated code and "
        "Triton's kernels into one file, for a container or another node. The same files give the "
        "same bytes. Exit code 1 if there is nothing to pack."
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", required=True)
    _add_parts(parser)
    common.add_arguments(parser, "--python", "--cache-dir", "--json")


def do_bundle(args: argparse.Namespace) -> int:
    packed = pack_bundle(
        args.output, common.layout_of(args), args.python, parts_of(args.wanted, args.without)
    )
    for left in packed.left:
        say.err(f"left out: {plain(left.name)}: {plain(left.why)}")
    if args.json:
        say.out_json(_packed_json(packed, args.output))
    else:
        say.out(_packed_text(packed, args.output))
    if not packed.manifest.members:
        say.err("there is nothing to pack: run the program once with this cache dir")
    return ExitCode.of(bool(packed.manifest.members))


def add_unbundle(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say what of FILE fits this box, what is here already and which pins its graphs would "
        "hide; with --yes, take it in. Graphs, code, triton and templates are programs: they are "
        "taken in only with the --sha256 of the file that you mean. Exit code 1 if a part cannot "
        "be used here: then nothing is changed."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="what `rocm-tui bundle` wrote")
    _add_parts(parser)
    parser.add_argument(
        "--sha256", metavar="HEX", help="refuse any other file; its sender tells it"
    )
    parser.add_argument(
        "--no-device",
        action="store_true",
        help="this box has not the device of the service, as where an image is built: do not "
        "compare devices",
    )
    parser.add_argument("--yes", action="store_true", help="do it; without this nothing is changed")
    common.add_arguments(parser, "--python", "--cache-dir", "--json")


def do_unbundle(args: argparse.Namespace) -> int:
    digest = None if args.sha256 is None else args.sha256.strip().lower()
    if digest is not None and not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise UsageError("--sha256 takes 64 hexadecimal digits")
    layout = common.layout_of(args)
    asked = parts_of(args.wanted, args.without)
    plan = plan_unbundle(args.file, layout, args.python, asked, digest, args.no_device)
    for line in _warnings(plan):
        say.err(plain(line))
    if not args.json:
        say.out(_plan_text(plan))
    trusted = digest is not None or not plan.programs
    told: dict[str, Any] = {}
    if plan.fits and not plan.changes:
        say.err("all of it is here already")
    elif args.yes and plan.fits and trusted:
        taken, statuses = apply_unbundle(plan, layout)
        told = _taken_json(taken, statuses)
        say.err(
            f"{counted(taken.files, 'file')}, {counted(taken.tunings, 'tuning')} and "
            f"{counted(taken.pins, 'pin')} taken in"
        )
        for status in statuses:
            if status.state != "active":
                say.err(plain(f"{status.pin.id} is {status.state}: {status.detail}"))
    else:
        say.err(_why_not(plan, args.yes, trusted))
    if args.json:
        say.out_json({**_plan_json(plan), "applied": bool(told), **told})
    done = trusted or not args.yes or not plan.changes
    return ExitCode.of(plan.fits and done)


def _why_not(plan: BundlePlan, yes: bool, trusted: bool) -> str:
    if not plan.fits:
        refused = {misfit.part for misfit in plan.misfits}
        refused |= set() if plan.found.pins_fit else {"pins"}
        parts = ",".join(part for part in PARTS if part in refused)
        return f"nothing was changed; --without {parts} leaves that out"
    if trusted:
        return "nothing was changed; --yes does it"
    options = f"--sha256 {plan.found.sha256}" + ("" if yes else " --yes")
    return (
        f"nothing was changed. {', '.join(plan.programs)}: programs, which run as you, and from a "
        f"stranger a stranger's. If its sender told you this digest: {options}"
    )


def _packed_text(packed: Packed, path: Path) -> str:
    rows = [
        (name, str(count), fmt.size(size), PARTS[name].what)
        for name, (count, size) in _sums(packed.manifest).items()
    ]
    return "\n".join(
        [
            table(("part", "files", "size", ""), rows, "lrrl"),
            f"wrote {plain(str(path))}, {fmt.size(packed.size)}",
            f"sha256 {packed.sha256}",
        ]
    )


def _sums(manifest: Manifest) -> dict[str, tuple[int, int]]:
    """Files and bytes of each part that is in a bundle."""
    sums: dict[str, tuple[int, int]] = {}
    for member in manifest.members:
        if part := part_of(member.name):
            count, size = sums.get(part.name, (0, 0))
            sums[part.name] = count + 1, size + member.size
    return sums


def _packed_json(packed: Packed, path: Path) -> dict[str, Any]:
    return {
        "file": str(path),
        "size": packed.size,
        "sha256": packed.sha256,
        "pins": list(packed.manifest.pins),
        "parts": _parts_json(packed.manifest),
        "left_out": [{"name": left.name, "reason": left.why} for left in packed.left],
        "box": _box_json(packed.manifest.box),
    }


def _parts_json(manifest: Manifest) -> list[dict[str, Any]]:
    sums = _sums(manifest)
    return [{"part": part, "files": files, "size": size} for part, (files, size) in sums.items()]


def _box_json(box: Box) -> dict[str, Any]:
    return {key: value for key, value in to_json(box).items() if key != "flags"}


def _plan_text(plan: BundlePlan) -> str:
    """What is in it, what becomes of each part, what becomes of each pin."""
    manifest = plan.found.manifest
    lines = [
        f"{plain(str(plan.path))}: {fmt.size(plan.found.size)}, "
        f"{counted(len(manifest.members), 'file')}, {fmt.size(manifest.size)} unpacked",
        f"sha256 {plan.found.sha256}",
        _made(manifest),
        "",
        table(("part", "files", "size", "what", ""), list(_rows(plan)), "lrrll"),
    ]
    if plan.found.steps:
        cells = [
            (
                step.pin.id,
                plain(step.pin.op),
                fmt.shorten(plain(step.pin.label or step.pin.hash), 40),
                step.action,
                plain(step.detail),
            )
            for step in plan.found.steps
        ]
        lines += ["", table(("pin", "op", "choice", "what", ""), cells)]
    return "\n".join(lines)


def _made(manifest: Manifest) -> str:
    box = manifest.box
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(manifest.when))
    runtime = box.machine.hip or box.machine.cuda
    facts = [
        f"torch {box.machine.torch or '?'}",
        f"Triton {box.machine.triton}" if box.machine.triton else "",
        f"{'HIP' if box.machine.hip else 'CUDA'} {runtime}" if runtime else "",
        box.machine.arch or "",
        counted(box.machine.compute_units, "compute unit") if box.machine.compute_units else "",
        box.python or "",
        box.cpu or "",
    ]
    who = f"by {manifest.by or '?'} on {box.machine.host or '?'}, newest file of {day}"
    return plain(f"made {who}; {', '.join(fact for fact in facts if fact)}")


def _rows(plan: BundlePlan) -> Iterator[tuple[str, ...]]:
    why = {misfit.part: misfit.why for misfit in plan.misfits}
    for part, (count, size) in _sums(plan.found.manifest).items():
        if part not in plan.chosen:
            what, detail = "not asked for", ""
        elif part in why:
            what, detail = "refused", plain(why[part])
        elif part == "pins" and not plan.found.pins_fit:
            what, detail = "refused", "see below"
        else:
            what, detail = "fits", _detail(plan, part)
        yield part, str(count), fmt.size(size), what, detail


def _detail(plan: BundlePlan, part: str) -> str:
    found = plan.found
    if part == "pins":
        return counted(len(found.share.pins), "pin")
    if part == "timings":
        told = [
            f"{counted(t.new, 'new tuning')}, {t.wider} with more choices, {t.same} as here"
            for t in found.timings
        ]
        return "; ".join(told)
    counts = found.counts(part)
    words = [f"{counts['new']} new", f"{counts['same']} as here"]
    if counts["kept"]:
        words.append(f"{counts['kept']} differ from what is here, which stays")
    if part == "graphs" and (left := found.left_out()):
        words.append(f"{len(left)} left out: would hide a pin")
    return ", ".join(words)


def _warnings(plan: BundlePlan) -> list[str]:
    """What does not refuse, and should be known."""
    lines = []
    for there, differences in plan.differences.items():
        where = f"{there.host}: " if there.host else ""
        for difference in differences:
            if difference.known:
                kind = "refused" if difference.refuses else "warning"
                lines.append(f"{kind}: {where}{difference.sentence}")
    if plan.unchecked:
        unchecked = ", ".join(plan.unchecked)
        lines.append(f"warning: not known on both sides, so not checked: {unchecked}")
    lines += _hiding(plan.found.hidden)
    lines += _moved(plan.found.moved)
    if plan.unfinished:
        lines.append("warning: an unbundle was cut short here; --yes ends it first")
    return list(dict.fromkeys(lines))


def _hiding(hidden: Sequence[Hidden]) -> Iterator[str]:
    """A line for each pin that graphs hide, and one for each that they may hide."""
    for (id, label, surely), count in Counter((h.pin, h.label, h.surely) for h in hidden).items():
        pin = f"the pin {id} ({fmt.shorten(label, 40)})"
        graphs = counted(count, "graph")
        if surely:
            yield f"left out: {graphs}, which would hide {pin}: another choice is called there"
        else:
            yield f"warning: {graphs} may hide {pin}: the text does not tell which choice is called"


def _moved(moved: Mapping[str, str]) -> Iterator[str]:
    """A line for each cache dir that graphs are bound to."""
    for root, count in Counter(moved.values()).items():
        graphs = counted(count, "graph")
        yield (
            f"warning: {graphs} of this bundle will look in {root} for the best configs of "
            "kernels, tune those once more, and keep them there; where that path cannot be made, "
            f"PyTorch compiles anew. TORCHINDUCTOR_CACHE_DIR={shlex.quote(root)} avoids that"
        )


def _plan_json(plan: BundlePlan) -> dict[str, Any]:
    found = plan.found
    why = {misfit.part: misfit.why for misfit in plan.misfits}
    return {
        "file": str(plan.path),
        "size": found.size,
        "sha256": found.sha256,
        "fits": plan.fits,
        "changes": plan.changes,
        "box": _box_json(found.manifest.box),
        "here": _box_json(plan.here),
        "parts": [
            {
                **row,
                "asked": row["part"] in plan.chosen,
                "refused": why.get(row["part"]),
                **{key: found.counts(row["part"])[key] for key in ("new", "same", "kept")},
            }
            for row in _parts_json(found.manifest)
        ],
        "timings": [asdict(timings) for timings in found.timings],
        "pins": [step_json(step) for step in found.steps],
        "hidden": [asdict(hidden) for hidden in found.hidden],
        "moved": found.moved,
        "differences": [
            {"host": there.host, **asdict(difference)}
            for there, differences in plan.differences.items()
            for difference in differences
        ],
        "unchecked": list(plan.unchecked),
    }


def _taken_json(taken: Taken, statuses: Sequence[PinStatus]) -> dict[str, Any]:
    return {
        "taken": asdict(taken),
        "states": [{"id": s.pin.id, "state": s.state, "detail": s.detail} for s in statuses],
    }
