"""What cannot be done with a tuning or a choice, and why: a line, or None where it can.

The screen dims a key by these, and the actions refuse with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocm_tui.harmless import plain

if TYPE_CHECKING:  # types only: the keys of the first screen stand before these are loaded
    from backend.model.choice import Choice
    from backend.model.tuning import Tuning
    from rocm_tui.session.model import Row


def why_not_known(tuning: Tuning) -> str | None:
    """Of what needs the inputs key: a pin, a measurement, a trial."""
    if tuning.key is not None:
        return None
    return (
        f"tuning {tuning.id} is known from a log only, without its inputs key; run the program "
        "once with `rocm-tui run`, or point --cache-dir to the cache that it used"
    )


def why_not_hashed(id: str, choices: Sequence[Choice]) -> str | None:
    """Of what needs the hash of each of these choices."""
    unknown = next((choice for choice in choices if choice.hash is None), None)
    if unknown is None:
        return None
    return (
        f"the hash of {plain(unknown.label)} is not known, because no cache or session holds it; "
        f"`rocm-tui show {id}` prints those that are"
    )


def why_not_pinned(row: Row, choice: Choice | None) -> str | None:
    """Of a pin of this choice."""
    if choice is None:
        return f"tuning {row.id} has no choice to pin"
    if choice.failed:
        return f"{plain(choice.label)} failed, so no program could use it"
    return why_not_known(row.tuning) or why_not_hashed(row.id, [choice])


def why_not_alone(tuning: Tuning) -> str | None:
    """Of what runs a kernel without its program."""
    if tuning.op != "triton":
        return None
    return "a kernel of @triton.autotune runs in its own program alone; pin it and run that"


def why_not_measured(tuning: Tuning, choices: Sequence[Choice]) -> str | None:
    """Of a measurement of these choices."""
    if (alone := why_not_alone(tuning)) is not None:
        return alone
    if not choices:
        unknown = why_not_known(tuning)
        return unknown or f"tuning {tuning.id} has no choice with a time, so none is measured"
    return why_not_known(tuning) or why_not_hashed(tuning.id, choices)


def why_not_read(choice: Choice | None) -> str | None:
    """Of the source of a choice. No file is asked: that it is gone is found out when it is read."""
    from backend.model.origin import is_library, provider  # not before the first screen

    if choice is None:
        return "no choice of this tuning is known yet"
    label = plain(choice.label)
    if (choice.hash or "").startswith("triton_config-"):
        return f"{label} is a config of a kernel whose source is in its own program"
    if provider(choice) == "aten":
        whose = "oneDNN or MKL" if is_library(choice) else "ATen or of a library behind it"
        return f"{label} is a kernel of {whose}, whose source is in no cache"
    if choice.hash is None:
        return (
            f"the hash of {label} is not known, by which its source is found, because no cache or "
            "session holds it"
        )
    return None


def why_not_tuned(tuning: Tuning) -> str | None:
    """Of a tuning made again."""
    if (alone := why_not_alone(tuning)) is not None:
        return alone
    if tuning.key is None and not (tuning.shapes and tuning.dtypes):
        return f"{plain(tuning.op)} is known without its shapes and types, so it cannot be tuned"
    return None
