"""Devices as people, tables and libraries name them, and which of these may be the same."""

from __future__ import annotations

import re
from functools import lru_cache

from backend.tables.model import TableDevice
from rocm_tui.errors import UsageError
from rocm_tui.session.devices import devices

_ARCH = re.compile(r"gfx[0-9a-f]{3,5}|sm_\d{2,3}")
_FEATURE = re.compile(r"[a-z]{1,20}[+-]")
_OTHERS = ("nvidia", "intel")
"""Makers whose devices are none of AMD's, whatever they are."""


def device_given(text: str) -> TableDevice:
    """Return the device that a person names.

    Forms: `gfx942`, `gfx942:304`, `gfx942:sramecc+:xnack-:304`, `MI300X`, `AMD_Instinct_MI300X` as
    in names of MoE tables, `MI300X:38` with other compute units. Raises UsageError.
    """
    first, *parts = text.strip().split(":")
    units = [int(part) for part in parts if part.isascii() and part.isdigit()]
    features = [part for part in parts if _FEATURE.fullmatch(part)]
    if len(units) < 2 and len(units) + len(features) == len(parts):
        if _ARCH.fullmatch(first):
            name = ":".join((first, *features)) if features else ""
            return TableDevice(first, units[0] if units else None, name)
        device = device_called(first)
        if device is not None and device.arch and not features:
            return TableDevice(device.arch, units[0] if units else device.units)
    raise UsageError(f"{text or 'that'} is no device that is known: write gfx942:304 or MI300X")


@lru_cache(maxsize=256)
def device_called(name: str) -> TableDevice | None:
    """Return the device with this name of a maker or a MoE table, such as `AMD_Instinct_MI300X`,
    `AMD Instinct MI300X OAM`, `MI300X`.

    If several fit, only their architecture; None if none does.
    """
    words = re.split(r"[ _/]+", name.strip().lower().removesuffix("oam").rstrip(" _"))
    matching = [device for device in devices() if _is_called(device.name.lower().split(), words)]
    arches, units = ({device.arch for device in matching}, {device.units[0] for device in matching})
    if len(arches) != 1:
        return None
    return TableDevice(arches.pop(), units.pop() if len(units) == 1 else None)


def _is_called(full: list[str], words: list[str]) -> bool:
    """Whether the words are a device's name or the end of the name.

    Drivers name MI250X and MI250 in one, and tables of vLLM the MI300X without its X.
    """
    model = full[-1]
    if words[:-1] == full[:-1]:
        return words[-1] in (model, model.removesuffix("x"))
    if words[-2:] == ["mi250x", "mi250"]:
        return model in words[-2:]
    return words == full[-len(words) :] and len(" ".join(words)) > 3


def may_be(own: TableDevice, device: TableDevice) -> bool:
    """Whether an entry for the device `own` may be meant for `device`; what is unknown may be
    any."""
    ours, theirs = _resolved(own), _resolved(device)
    if own.name.lower().startswith(_OTHERS) and theirs.arch.startswith("gfx"):
        return False
    if ours.arch and theirs.arch and ours.arch != theirs.arch:
        return False
    return ours.units is None or theirs.units is None or ours.units == theirs.units


def _resolved(device: TableDevice) -> TableDevice:
    """Return the architecture and units of a known name."""
    if device.arch or not device.name:
        return device
    return device_called(device.name) or device
