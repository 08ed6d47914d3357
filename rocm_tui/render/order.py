"""The order of a table's lines by what stands in one of its columns."""

from __future__ import annotations

from collections.abc import Sequence

from rocm_tui.session.quantity import quantity


def lines_by(texts: Sequence[str], reverse: bool) -> list[int]:
    """The places of these cells in order: quantities the largest first, words by their letters, or
    `reverse`. Cells that say nothing stand last either way; equal ones keep their order."""
    known = [at for at, text in enumerate(texts) if text.strip(" –")]
    values = [quantity(texts[at]) for at in known]
    if known and all(value is not None for value in values):
        pairs = sorted(zip(values, known, strict=True), key=_quantity, reverse=not reverse)
        places = [at for _, at in pairs]
    else:
        places = sorted(known, key=lambda at: texts[at].casefold(), reverse=reverse)
    there = set(known)
    return [*places, *(at for at in range(len(texts)) if at not in there)]


def falls(texts: Sequence[str], reverse: bool) -> bool:
    """Whether the largest, or the last letter, is on top then."""
    known = [quantity(text) for text in texts if text.strip(" –")]
    numeric = bool(known) and all(value is not None for value in known)
    return numeric != reverse


def _quantity(pair: tuple[float | None, int]) -> float:
    return pair[0] or 0.0
