"""Registers, LDS, spills and occupancy in words, and as columns. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backend.model.choice import Choice
from backend.toolchain.resources import Occupancy, Unknown
from rocm_tui.harmless import plain
from rocm_tui.render.choices import RESOURCES, Footprint
from rocm_tui.render.table import attributes, table
from rocm_tui.session.kernel_resources import Known


def tell(answers: Mapping[str, Known | Unknown]) -> dict[str, Footprint]:
    return {hash_: Footprint(cells(answer), sentence(answer)) for hash_, answer in answers.items()}


def cells(known: Known | Unknown) -> dict[str, str]:
    """A text for each of RESOURCES; none if it is unknown."""
    if isinstance(known, Unknown):
        return {}
    taken, held = known.resources, known.occupancy
    waves = (f"{held.waves_per_simd}/{held.of}", _limit(held)) if held else ("?", "?")
    counts = [_count(number) for number in (taken.vgprs, taken.agprs, taken.sgprs)]
    texts = (*counts, size(taken.lds), size(taken.scratch), _count(_spills(known)), *waves)
    return dict(zip((column.key for column in RESOURCES), texts, strict=True))


def sentence(known: Known | Unknown) -> str:
    """All that is known, on one line."""
    if isinstance(known, Unknown):
        return f"registers and LDS unknown: {known.reason}"
    taken, held = known.resources, known.occupancy
    nvidia = known.target.kind == "cuda"
    # The most telling first: a narrow screen cuts the end.
    waves = f"{held.waves_per_simd}/{held.of} waves a SIMD ({_limit(held)})" if held else None
    facts = [waves or "occupancy unknown"]
    vectors = f"{_count(taken.vgprs)} {'registers' if nvidia else 'VGPR'}"
    facts.append(vectors + (f" ({taken.agprs} AGPR)" if taken.agprs else ""))
    facts.append(f"{size(taken.lds)} {'shared memory' if nvidia else 'LDS'}")
    facts.append(f"{_count(_spills(known))} spills" if _spills(known) != 0 else "no spills")
    facts.append(f"{size(taken.scratch)} scratch" if taken.scratch != 0 else "no scratch")
    facts += [] if nvidia else [f"{_count(taken.sgprs)} SGPR"]
    return f"{known.target.arch or known.target}: {', '.join(facts)}"


def block(choices: Sequence[Choice], answers: Mapping[str, Known | Unknown]) -> str:
    """What `show` prints of those choices that `found` tells of; empty if it tells of none.

    A table of those that are known, then why the others are not.
    """
    ours = [(c, answer) for c in choices if (answer := answers.get(c.hash or "")) is not None]
    known = [
        [plain(c.label), *cells(known).values()] for c, known in ours if isinstance(known, Known)
    ]
    header = ("a kernel takes", *(column.title for column in RESOURCES))
    lines = [table(header, known, "l" + "r" * len(RESOURCES))] if known else []
    reasons = [answer.reason for _, answer in ours if isinstance(answer, Unknown)]
    for reason in dict.fromkeys(reasons):
        names = [c.label for c, answer in ours if answer == Unknown(reason)]
        which = f"{len(names)} choices" if len(names) > 1 else names[0]
        lines.append(plain(f"registers and LDS of {which} unknown: {reason}"))
    return "\n".join(lines)


def resources_json(known: Known | Unknown | None) -> dict[str, Any] | None:
    """LDS and scratch in bytes; numbers that are not known are null, as is all of a foreign one."""
    if known is None:
        return None
    if isinstance(known, Unknown):
        return {"unknown": known.reason}
    taken, held = known.resources, known.occupancy
    return {
        "target": str(known.target),
        **attributes(taken, "vgprs agprs sgprs lds scratch vgpr_spills sgpr_spills"),
        "waves_per_simd": held.waves_per_simd if held else None,
        "most_waves_per_simd": held.of if held else None,
        "limited_by": held.limited_by if held else None,
    }


def size(number: int | None) -> str:
    """Bytes: `0`, `512 B`, `34 KiB`, `16.5 KiB`."""
    if number is None:
        return "?"
    if number < 1024:
        return f"{number} B" if number else "0"
    return f"{number / 1024:.1f}".removesuffix(".0") + " KiB"


def _limit(held: Occupancy) -> str:
    return "full" if held.limited_by == "waves" else held.limited_by


def _spills(known: Known) -> int | None:
    taken = known.resources
    if taken.vgpr_spills is None:
        return None
    return taken.vgpr_spills + (taken.sgpr_spills or 0)


def _count(number: int | None) -> str:
    return "?" if number is None else str(number)
