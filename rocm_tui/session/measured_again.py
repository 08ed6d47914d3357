"""Several measurements of the same choices, side by side: do they agree?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from backend.model.measurement import Measurement
from backend.model.tuning import Tuning
from rocm_tui import format as fmt
from rocm_tui.session import measured_text

HEADER = ("choice", "least", "most", "apart", "verdicts")
RIGHT = "lrrrl"


def line(tuning: Tuning, found: Measurement, at: int, of: int) -> str:
    """One of several, as it comes: `2 of 3: bmm is the fastest; ...`."""
    failed = [f"{len(found.failed)} failed"] if found.failed else []
    besides = "; ".join([*failed, *found.trouble])
    told = f"{at} of {of}: {measured_text.standing(tuning, found)}"
    return fmt.plain(f"{told} ({besides})" if besides else told)


def rows(tuning: Tuning, found: Sequence[Measurement]) -> list[list[str]]:
    """A line a choice, in the order of the last measurement: how far its medians lie apart, and
    how often it got which verdict."""
    lines = []
    for choice in found[-1].choices:
        told = [one for each in found if (one := each.of(choice.hash)) is not None]
        least, most = min(one.ms for one in told), max(one.ms for one in told)
        verdicts = Counter(one.verdict for one in told).most_common()
        lines.append(
            [
                measured_text.label(tuning, choice.hash, choice.name),
                fmt.duration(least),
                fmt.duration(most),
                fmt.percent(most / least - 1),
                ", ".join(f"{verdict} {times}×" for verdict, times in verdicts),
            ]
        )
    return lines
