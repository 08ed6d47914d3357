"""The cell of a device: which changes are worth a repaint, and its readings in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.measure.devices import LatestReading, MachineDevice
from backend.measure.sensors import DeviceState, SensorReading, Usage
from rocm_tui.session.device_readings import (
    DeviceReading,
    device_in_words,
    memory,
    settled_reading,
    troubles,
)

GIB = float(1 << 30)
USAGE = Usage(50.0, 100.0 * GIB, 192.0 * GIB)
STATE = DeviceState(2000.0, 600.0, 60.0, ("power cap",))
WHOLE = SensorReading(USAGE, STATE)


def latest(reading: SensorReading | None, why: str = "", label: str = "3") -> LatestReading:
    device = MachineDevice(label, "MI300X", "0000:c1:00.0", lambda: WHOLE)
    return LatestReading(device, reading, why)


def test_a_cell_has_all_that_was_read() -> None:
    assert settled_reading(latest(WHOLE)) == DeviceReading(
        "3", "MI300X", 50.0, 100.0 * GIB, 192.0 * GIB, 600.0, 60.0, 2000.0, ("power cap",)
    )
    assert settled_reading(latest(None, "it hangs")) == DeviceReading("3", "MI300X", why="it hangs")


@pytest.mark.parametrize(
    ("cell", "field", "least", "before"),
    [
        ("busy", "busy", 3.0, 50.0),
        ("used", "memory_used", 0.75 * GIB, 100.0 * GIB),  # of 192 GiB
        ("power", "power_w", 4.0, 100.0),
        ("temperature", "temperature_c", 2.0, 60.0),
        ("clock", "clock_mhz", 50.0, 2000.0),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_stays_while_it_hardly_changes(
    cell: str, field: str, least: float, before: float, sign: int
) -> None:
    def at(value: float | None) -> LatestReading:
        usage = replace(USAGE, **{field: value}) if hasattr(USAGE, field) else USAGE
        state = replace(STATE, **{field: value}) if hasattr(STATE, field) else STATE
        return latest(SensorReading(usage, state))

    old = settled_reading(at(before))
    for part, shown in ((0.999, before), (1.001, before + 1.001 * sign * least)):
        now = before + part * sign * least
        assert getattr(settled_reading(at(now), old), cell) == shown
    assert getattr(settled_reading(at(None), old), cell) is None
    assert getattr(settled_reading(at(before), DeviceReading("3", "MI300X")), cell) == before


@pytest.mark.parametrize(("before", "now"), [(1.0, 0.0), (99.0, 100.0)])
def test_idle_and_fully_busy_are_shown_at_once(before: float, now: float) -> None:
    old = settled_reading(latest(SensorReading(replace(USAGE, busy=before), STATE)))
    new = latest(SensorReading(replace(USAGE, busy=now), STATE))
    assert settled_reading(new, old).busy == now


def test_a_large_power_changes_by_three_percent() -> None:
    old = DeviceReading("3", "MI300X", power=1000.0)
    for watts, shown in ((1030.0, 1000.0), (1031.0, 1031.0), (971.0, 1000.0), (970.0, 970.0)):
        new = latest(SensorReading(USAGE, replace(STATE, power_w=watts)))
        assert settled_reading(new, old).power == shown


def test_memory_of_a_device_of_unknown_size_changes_by_a_twentieth_of_a_gib() -> None:
    def at(used: float) -> LatestReading:
        return latest(SensorReading(Usage(None, used * GIB, None), DeviceState()))

    old = settled_reading(at(2.0))
    assert settled_reading(at(2.04), old).used == 2.0 * GIB
    assert settled_reading(at(2.06), old).used == 2.06 * GIB


@pytest.mark.parametrize(
    ("used", "total", "text"),
    [
        (9.94, 16.0, "9.9/16"),
        (9.96, 16.0, "10/16"),
        (0.0, 8.0, "0.0/8.0"),
        (None, 16.0, None),
        (1.0, None, None),
    ],
)
def test_memory_in_gib(used: float | None, total: float | None, text: str | None) -> None:
    sizes = [None if size is None else size * GIB for size in (used, total)]
    assert memory(DeviceReading("0", "", used=sizes[0], total=sizes[1])) == text


def test_a_device_in_words() -> None:
    assert device_in_words(latest(WHOLE)) == (
        "MI300X at 0000:c1:00.0: 50 % busy, 100/192 GiB in use, 600 W, 60 °C, 2000 MHz, "
        "throttled: power cap",
        "",
    )
    bare = replace(latest(None), device=MachineDevice("0", "", "", lambda: WHOLE))
    assert device_in_words(bare) == ("GPU: no readings", "")
    silent = SensorReading(Usage(0.0), DeviceState(), ("power: no such file", "clock: denied"))
    assert device_in_words(latest(silent)) == (
        "MI300X at 0000:c1:00.0: 0 % busy",
        "power: no such file; clock: denied",
    )


def test_each_reason_names_its_devices() -> None:
    silent = SensorReading(USAGE, DeviceState(), ("power: no such file",))
    one, *both = [latest(silent), latest(None, "it hangs", "0"), latest(None, "it hangs", "1")]
    assert [(fault.source, fault.what) for fault in troubles([one, *both, latest(WHOLE)])] == [
        ("device 3", "– in the strip: power: no such file"),
        ("devices 0, 1", "– in the strip: it hangs"),
    ]
