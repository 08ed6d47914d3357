"""Pin a choice, take pins back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.inductor_kernel import is_kernel
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.model.tuning import Pin
from backend.pins.file import PinGroup, new_group
from backend.pins.plan import PinPlan, check_agreed
from backend.pins.state import PinReport
from backend.pins.store import PinStore
from rocm_tui.errors import NoSuchChoice, NotPinnable
from rocm_tui.session.find import find_device_choice, system_hash
from rocm_tui.session.model import Row
from rocm_tui.session.refusals import why_not_hashed, why_not_pinned_there, why_wrong


@dataclass(frozen=True, slots=True)
class Pinnable:
    """A choice of which enough is known to pin it."""

    row: Row
    choice: Choice
    key: TuningKey
    hash: str
    sessions: Mapping[str, Session]


@dataclass(frozen=True, slots=True)
class Pinned:
    """The state of a pin, as read back."""

    choice: Choice
    report: PinReport

    @property
    def state(self) -> str:
        return self.report.status.state if self.report.status else "active"

    @property
    def active(self) -> bool:
        return self.state == "active"

    @property
    def done(self) -> bool:
        """Whether all was done that a pin can do: only its program can prove a Triton kernel's."""
        alone = is_kernel(self.report.pin.op) and self.state == "unproven"
        return self.active or alone

    @property
    def detail(self) -> str:
        """Why it is not active; nothing if it is."""
        status = self.report.status
        return "" if status is None or self.active else status.detail


def pinnable(
    row: Row, choice: Choice | str, sessions: Mapping[str, Session], *, wrong: bool = False
) -> Pinnable:
    """May this choice, or the one that a person names so, be pinned? Reads no file. With `wrong`
    also one whose result was found to be wrong.

    Raises NotPinnable and NoSuchChoice if not.
    """
    key = row.tuning.key
    if key is None:
        raise NotPinnable(why_not_pinned_there(row.tuning) or "")
    if isinstance(choice, str):
        row, choice = find_device_choice(row, choice)
    if choice.hash is None:
        raise NoSuchChoice(why_not_hashed(row.id, [choice]) or "")
    if not wrong and (why := why_wrong(row, choice)):
        raise NotPinnable(f"{why}; `rocm-tui pin {row.id} CHOICE --wrong` pins it all the same")
    return Pinnable(row, choice, key, choice.hash, sessions)


def plan_pin(wanted: Pinnable, layout: Layout) -> PinPlan:
    """Plan what pinning it would change, changing nothing. Raises StoreError."""
    system = system_hash(wanted.row, wanted.sessions, layout)
    return PinStore(layout).plan(system, wanted.key, wanted.hash, wanted.choice.config)


def check_plan(wanted: Pinnable, plan: PinPlan, layout: Layout) -> None:
    """Check one of several pins before the first is made.

    Raises StoreError, also if it would now change something else than in `plan`.
    """
    check_agreed(plan, plan_pin(wanted, layout))


def pin_choice(
    wanted: Pinnable,
    layout: Layout,
    *,
    note: str = "",
    plan: PinPlan | None = None,
    group: PinGroup | None = None,
) -> Pinned:
    """Let the choice win for every later torch.compile; just as in `plan`, where a person agreed to
    that. `group` is the command that pins it among others: the first of them may change what the
    next does, so that only the cache file is that of `plan`. Raises StoreError, also where the
    plan is another by now."""
    system = plan.system_hash if plan else system_hash(wanted.row, wanted.sessions, layout)
    report = PinStore(layout).pin(
        system,
        wanted.key,
        wanted.hash,
        label=wanted.choice.label,
        note=note,
        config=wanted.choice.config,
        group=group,
        agreed=plan if group is None else None,
    )
    return Pinned(wanted.choice, report)


def take_back(pins: Sequence[Pin], layout: Layout) -> None:
    """Restore what these pins changed, all or nothing. Raises StoreError, also if another pin
    replaced one of them."""
    PinStore(layout).unpin_each(pins, new_group("unpin") if len(pins) > 1 else None)


def take_all_back(layout: Layout) -> list[Pin]:
    """Restore what any pin changed; the pins that were. Raises StoreError."""
    store = PinStore(layout)
    return [report.pin for report in store.unpin_all(group=new_group("unpin --all"))]
