"""A problem on several devices of one box: what each device uses, and whether that is the same
kernel. Pure functions; nothing is taken across devices."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from backend.counted import device_ranges
from backend.model.choice import Choice
from rocm_tui.session.in_use import in_use
from rocm_tui.session.model import Row


def device_name(row: Row) -> str:
    """`cuda:1`, of several devices `cuda:0-3`; empty where nothing shows the index."""
    rows = row.devices or (row,)
    if rows[0].tuning.device_index is None:  # most of them
        return ""
    indices = [r.tuning.device_index for r in rows if r.tuning.device_index is not None]
    return f"{row.tuning.device or 'cuda'}:{device_ranges(indices)}"


def each_device(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows, and a row for each device in the place of those of several devices."""
    for row in rows:
        yield from row.devices or (row,)


def kernel(choice: Choice) -> Hashable:
    """What a choice is called on every device of a kind: its hash on device 0; where that is not
    known, its template and configuration, of a choice without these its own hash or name."""
    if choice.identity or choice.hash is None:
        return choice.identity or choice.name
    template = choice.hash.partition("-")[0]
    return (template, choice.description) if choice.description else choice.hash


def by_kernel(row: Row) -> list[tuple[Choice | None, list[Row]]]:
    """The choices in use, each with the devices that use this kernel; None where none is known."""
    kernels: dict[Hashable, tuple[Choice | None, list[Row]]] = {}
    for device in row.devices:
        choice = in_use(device)
        name = None if choice is None else kernel(choice)
        kernels.setdefault(name, (choice, []))[1].append(device)
    return list(kernels.values())


def differs(row: Row) -> str:
    """`differs (2)` where devices use so many kernels, nothing where all use the same."""
    count = len(by_kernel(row))
    return f"differs ({count})" if count > 1 else ""


def used_by_all(row: Row) -> str:
    """What the choice in use is called on all devices of a row, else that they differ. The number
    in a name is another one in each process, so a name counts only where all devices have it."""
    used = [in_use(device) for device in row.devices]
    first = used[0]
    if (several := differs(row)) or first is None:
        return several
    names = {choice.name for choice in used if choice}
    return first.label if len(names) == 1 or not first.hash else replace(first, name=None).label
