"""What is shown of a device: numbers that keep still while they hardly change, and in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from backend.counted import noun
from backend.measure.devices import NOTHING, LatestReading
from backend.model.session import Fault
from rocm_tui.harmless import plain

_GIB = float(1 << 30)


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """The content of a device's cell: numbers that change by less than is worth a repaint stay.
    None is unknown; `why` gives the reason if everything is."""

    label: str
    name: str
    busy: float | None = None
    used: float | None = None
    total: float | None = None
    power: float | None = None
    temperature: float | None = None
    clock: float | None = None
    throttled: tuple[str, ...] = ()
    why: str = ""


def settled_reading(seen: LatestReading, before: DeviceReading | None = None) -> DeviceReading:
    """Return the cell of a device with this reading, given the cell `before`."""
    device, reading = seen.device, seen.reading or NOTHING
    old = before or DeviceReading("", "")
    usage, state = reading.usage, reading.state
    total = usage.memory_total
    return DeviceReading(
        device.label,
        device.name,
        _settled(old.busy, usage.busy, 3, whole=(0, 100)),
        _settled(old.used, usage.memory_used, max(0.05 * _GIB, (total or 0) / 256)),
        total,
        _settled(old.power, state.power_w, max(4, (state.power_w or 0) * 0.03)),
        _settled(old.temperature, state.temperature_c, 2),
        _settled(old.clock, state.clock_mhz, 50),
        state.throttled,
        seen.why,
    )


def _settled(
    before: float | None, now: float | None, least: float, whole: tuple[float, ...] = ()
) -> float | None:
    """Return `before` if `now` differs by less than `least` and is none of `whole`."""
    if before is None or now is None or now in whole:
        return now
    return before if abs(now - before) < least else now


def memory(reading: DeviceReading) -> str | None:
    """GiB in use and all: `142/192`."""
    if reading.used is None or reading.total is None:
        return None
    return f"{_gib(reading.used)}/{_gib(reading.total)}"


def _gib(count: float) -> str:
    value = count / _GIB
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def device_in_words(seen: LatestReading) -> tuple[str, str]:
    """Return for `doctor` what a device reports, and why it does not report the rest."""
    settled = settled_reading(seen)
    place = f" at {seen.device.place}" if seen.device.place else ""
    facts = [
        f"{settled.busy:.0f} % busy" if settled.busy is not None else "",
        f"{memory(settled)} GiB in use" if memory(settled) else "",
        f"{settled.power:.0f} W" if settled.power is not None else "",
        f"{settled.temperature:.0f} °C" if settled.temperature is not None else "",
        f"{settled.clock:.0f} MHz" if settled.clock is not None else "",
        *(f"throttled: {reason}" for reason in settled.throttled),
    ]
    text = ", ".join(filter(None, facts)) or "no readings"
    return plain(f"{settled.name or 'GPU'}{place}: {text}"), plain(_missing(seen))


def troubles(devices: Iterable[LatestReading]) -> list[Fault]:
    """Why there are dashes in the strip: each reason once, with the devices that have it."""
    labels: dict[str, list[str]] = {}
    for seen in devices:
        if why := _missing(seen):
            labels.setdefault(why, []).append(seen.device.label)
    return [
        Fault(f"{noun(len(of), 'device')} {', '.join(of)}", f"– in the strip: {why}")
        for why, of in labels.items()
    ]


def _missing(seen: LatestReading) -> str:
    """Return why a device reports nothing, or not all."""
    return seen.why or "; ".join((seen.reading or NOTHING).unread)
