"""What cannot be done with a tuning or a choice, and why: a line, or None where it can.

The screen dims a key by these, and the actions refuse with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.model.choice import Choice
from backend.model.inductor_kernel import TRITON, is_inductors, is_kernel
from backend.model.origin import is_library, provider
from backend.model.tuning import TableEntry, Tuning
from rocm_tui.harmless import plain

if TYPE_CHECKING:
    from rocm_tui.session.model import Row

EDITED = frozenset(("tunableop", "aiter", "aiter triton", "moe"))
"""The tuners whose tables `rocm-tui pin` edits."""
WRONG = "wrong result"
"""How the reason of a choice begins whose result was compared and is another one."""


def why_not_inductors(tuning: Tuning) -> str | None:
    """Return why this is no tuning of Inductor's."""
    if tuning.entry is None:
        return None
    tune = f"; `rocm-tui tune {tuning.id}` (t) tunes the same product with Inductor"
    tuned = tune if tuning.shapes else ""
    whose = plain(tuning.entry.tuner)
    return f"{tuning.id} is an entry of a table of {whose}, and no tuning of Inductor's{tuned}"


def why_not_known(tuning: Tuning) -> str | None:
    """Return why there is no inputs key, which a pin, a measurement or a trial needs."""
    if tuning.key is not None:
        return None
    if (other := why_not_inductors(tuning)) is not None:
        return other
    return (
        f"tuning {tuning.id} is known from a log only, without its inputs key; run the program "
        "once with `rocm-tui run`, or point --cache-dir to the cache that it used"
    )


def why_not_hashed(id: str, choices: Sequence[Choice]) -> str | None:
    """Return why the hash of one of these choices is missing."""
    unknown = next((choice for choice in choices if choice.hash is None), None)
    if unknown is None:
        return None
    return (
        f"the hash of {plain(unknown.label)} is not known, because no cache or session holds it; "
        f"`rocm-tui show {id}` prints the known ones"
    )


def why_not_pinned_there(tuning: Tuning) -> str | None:
    """Return why it cannot be pinned in Inductor's cache: a table's entry is pinned in its file."""
    if tuning.entry is None:
        return why_not_known(tuning)
    place = f"{plain(tuning.sources[0])}:{tuning.entry.line}"
    does = f"`rocm-tui pin {place} SOLUTION` gives it another solution"
    return (
        f"{tuning.id} is an entry of a table of {plain(tuning.entry.tuner)}; "
        f"{does if tuning.entry.tuner in EDITED else 'such tables are only read'}"
    )


def why_not_pinned(row: Row, choice: Choice | None) -> str | None:
    """Return why this choice cannot be pinned."""
    if row.tuning.entry is not None:
        return why_not_pinned_there(row.tuning)
    if choice is None:
        return f"tuning {row.id} has no choice to pin"
    if choice.failed:
        return f"{plain(choice.label)} failed, so no program could use it"
    return why_not_known(row.tuning) or why_not_hashed(row.id, [choice])


def why_wrong(row: Row, choice: Choice) -> str | None:
    """Return that the latest measurement of its system found this choice's result wrong, if so."""
    measured = row.tuning.measured
    failed = measured.failed if measured is not None else ()
    reason = next((each.reason for each in failed if each.hash == choice.hash), None) or ""
    if choice.hash is None or not reason.startswith(WRONG):
        return None
    return f"{plain(choice.label)} computes a wrong result, as measuring found: {plain(reason)}"


INSIDE = "`rocm-tui run --measure-kernels --cache-dir NEW -- CMD` measures it there"
"""What measures a kernel whose program alone can run it: in NEW nothing is tuned yet."""
INSIDE_TRITON = "`TRITON_CACHE_DIR=NEW rocm-tui run --measure-kernels -- CMD` measures it there"
"""What measures a kernel of `@triton.autotune`, whose times Triton may keep."""
TRIED = "pin it and run `rocm-tui trial --step REGEX -- CMD`"
"""What tries it."""


def why_not_alone(tuning: Tuning, instead: str = "pin it and run that") -> str | None:
    """Return why a kernel cannot run without its program."""
    if not is_kernel(tuning.op):
        return None
    whose = "Inductor's own" if is_inductors(tuning.op) else "@triton.autotune"
    return f"a kernel of {whose} needs its own program to run; {instead}"


def why_not_tried(tuning: Tuning) -> str | None:
    """Return why a choice cannot be tried in its graph."""
    return why_not_alone(tuning, TRIED) or why_not_known(tuning)


def why_not_measured(tuning: Tuning, choices: Sequence[Choice]) -> str | None:
    """Return why these choices cannot be measured."""
    inside = INSIDE_TRITON if tuning.op == TRITON else INSIDE
    if (alone := why_not_alone(tuning, inside)) is not None:
        return alone
    if not choices:
        unknown = why_not_known(tuning)
        return unknown or f"tuning {tuning.id} has no choice with a time, so none is measured"
    return why_not_known(tuning) or why_not_hashed(tuning.id, choices)


def why_not_read(choice: Choice | None, tuning: Tuning | None = None) -> str | None:
    """Return why a choice's source cannot be read. No file is looked at: it may still be gone."""
    if choice is None:
        return "no choice of this tuning is known yet"
    if tuning is not None and tuning.entry is not None:
        whose = plain(tuning.entry.tuner)
        return f"{plain(choice.label)} is a solution of {whose}, whose source is in no cache"
    label = plain(choice.label)
    if tuning is not None and tuning.code:
        return None  # the file of a kernel that Inductor wrote, whatever the config
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
    """Return why this cannot be tuned again."""
    if (alone := why_not_alone(tuning)) is not None:
        return alone
    if tuning.entry is not None and tuning.entry.unread:
        why = f"{tuning.id} is no product that Inductor knows: {plain(tuning.entry.unread)}"
        return f"{why}; {_elsewhere(tuning, tuning.entry)}"
    if tuning.key is None and not (tuning.shapes and tuning.dtypes):
        return f"{plain(tuning.op)} is known without its shapes and types, so it cannot be tuned"
    return None


def _elsewhere(tuning: Tuning, entry: TableEntry) -> str:
    """What tunes an entry that Inductor cannot tune."""
    from shlex import quote  # the first screen needs neither of these

    from backend.tables.tunableop import UNSCALED

    path = quote(plain(tuning.sources[0])) if tuning.sources else "FILE"
    if entry.unread == UNSCALED:
        return "PYTORCH_TUNABLEOP_RECORD_UNTUNED=1 with a newer PyTorch records it with them"
    if entry.tuner == "tunableop" and not tuning.choices:
        return f"`rocm-tui tune --tunableop -o RESULTS.csv {path}` lets TunableOp tune it"
    if not tuning.choices:
        return f"`rocm-tui cover {path} --write LIST` says what tunes it"
    return f"the tuner of {plain(entry.tuner)} alone can tune it"
