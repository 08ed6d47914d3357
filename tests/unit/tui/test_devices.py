"""The strip of devices: what stands in it, when it is there, and that nothing waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.measure import devices
from backend.measure.devices import LatestReading, MachineDevice
from backend.measure.sensors import DeviceState, SensorReading, Usage
from rocm_tui.actions import doctor
from rocm_tui.render.devices import cell, lines
from rocm_tui.session.device_readings import (
    DeviceReading,
    device_in_words,
    settled_reading,
    troubles,
)
from rocm_tui.tui.widgets import device_strip
from rocm_tui.tui.widgets.device_strip import DeviceStrip
from tests.support.fake_gpus import GIB, Card, cards
from tests.support.screen_lab import panes_of, running, screen_text, until, write_cache


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Card]]:
    """Eight GPUs that are this machine's, in a tree of files, and are read often."""
    root = tmp_path / "sys"
    found = cards(root, 8)
    real = devices.gpus
    for module in (devices, doctor):
        monkeypatch.setattr(module, "gpus", lambda: real(root))
    for name, seconds in (("EVERY", 0.4), ("SELDOM", 0.4), ("_SOON", 0.1)):
        monkeypatch.setattr(device_strip, name, seconds)
    yield found


def test_the_width_decides_what_is_told() -> None:
    one = DeviceReading("3", "MI300X", 87, 142 * GIB, 192 * GIB, 642, 78, 2100, ("power cap",))
    text = "".join(span[0] for span in cell(one, 38))
    assert text == " 3! ━━━━━─  87%  142/192G  642 W  78°" and len(text) <= 38
    assert (" 3! ", "warn") in cell(one, 38) and ("  642 W", "warn") in cell(one, 38)
    text = "".join(span[0] for span in cell(one, 100))
    assert text.endswith("142/192 GiB  642 W  78 °C  2100 MHz  power cap  MI300X")


def test_what_is_not_told_is_a_dash() -> None:
    text = "".join(span[0] for span in cell(DeviceReading("0", "", used=1.0), 60))
    assert text.count("–") == 5 and "━" not in text
    hung = DeviceReading("1", "MI300X", why="its driver has not answered for 12 s")
    assert cell(hung, 60)[1:] == (("– ", ""), ("its driver has not answered for 12 s", "warn"))


def test_each_reason_for_dashes_is_said_once_with_its_devices() -> None:
    whole = SensorReading(Usage(), DeviceState())

    def latest(label: str, reading: SensorReading | None, why: str = "") -> LatestReading:
        return LatestReading(MachineDevice(label, "", "", lambda: whole), reading, why)

    assert troubles([latest("0", whole)]) == []
    hung = [latest(label, None, "its driver hangs") for label in "13"]
    (fault,) = troubles([latest("0", whole), *hung])
    assert (fault.source, fault.what) == ("devices 1, 3", "– in the strip: its driver hangs")


@pytest.mark.parametrize(
    ("count", "size", "lines_", "hidden"),
    [
        (1, (80, 24), 1, 0),
        (4, (80, 24), 4, 0),
        (8, (80, 24), 4, 0),
        (16, (80, 24), 4, 9),
        (8, (220, 60), 4, 0),
        (16, (220, 60), 4, 0),
        (8, (60, 15), 2, 7),
    ],
)
def test_few_lines(count: int, size: tuple[int, int], lines_: int, hidden: int) -> None:
    drawn = lines([DeviceReading(str(n), "MI300X", 100.0) for n in range(count)], *size)
    texts = ["".join(text for text, _ in line) for line in drawn]
    assert len(drawn) == lines_ and all(len(text) <= size[0] for text in texts)
    assert ("more" in texts[-1]) == bool(hidden)
    assert not hidden or f"… {hidden} more, up to 100 % busy" in texts[-1]


def test_a_number_that_flickers_stays() -> None:
    device = MachineDevice("0", "", "", lambda: SensorReading(Usage(), DeviceState()))

    def at(busy: float, watts: float, hot: float, clock: float) -> LatestReading:
        usage = Usage(busy, 100.0 * GIB + watts, 192.0 * GIB)
        return LatestReading(device, SensorReading(usage, DeviceState(clock, watts, hot)))

    first = settled_reading(at(50, 140, 38, 132))
    assert settled_reading(at(52, 143, 39, 160), first) == first
    later = settled_reading(at(54, 145, 40, 190), first)
    assert (later.busy, later.power, later.temperature, later.clock) == (54, 145, 40, 190)
    assert settled_reading(at(0, 140, 38, 132), settled_reading(at(1, 140, 38, 132))).busy == 0


def test_what_doctor_says(gpus: list[Card]) -> None:
    gpus[0].tell(hwmon0__power1_average=None)
    device = devices.gpus()[0]
    text, why = device_in_words(LatestReading(device, device.read()))
    assert text == (
        "AMD Instinct MI300X at 0000:c1:00.0: 0 % busy, 2.0/192 GiB in use, 38 °C, 132 MHz"
    )
    assert why == "power: power1_average: No such file or directory"


def readers() -> list[str]:
    """The threads that read a device each."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("device ")]


@pytest.mark.parametrize("size", [(80, 24), (220, 60)])
async def test_the_key_shows_and_hides_it(
    tmp_path: Path, gpus: list[Card], size: tuple[int, int]
) -> None:
    write_cache(tmp_path, 8)
    gpus[5].work(80)
    async with running(tmp_path, size=size) as (app, pilot):
        panes = await panes_of(app, pilot, 1)
        assert not app.screen.query(DeviceStrip)
        await pilot.press("d")
        await until(pilot, lambda: app.screen.query(DeviceStrip))
        strip = app.screen.query_one(DeviceStrip)
        await until(pilot, lambda: "80%" in screen_text(strip))
        await until(pilot, lambda: screen_text(strip).count("/192") == 8)
        assert strip.size.height == 4 and app.focused is panes.table
        assert [f" {n} " in screen_text(strip) for n in range(8)] == [True] * 8
        before = strip.painted
        for index in (0, 5):
            gpus[index].tell(hwmon0__power1_average=142_000_000 + index // 5 * 480_000_000)
        same = strip._same
        await until(pilot, lambda: strip._same >= same + 2)  # it was read twice since
        assert strip.painted == before  # 2 W are worth no repaint
        gpus[5].work(20)
        await until(pilot, lambda: "20%" in screen_text(strip))
        assert 0 < strip.painted - before < 80
        assert len(readers()) == 8
        await pilot.press("d")
        await until(pilot, lambda: not app.screen.query(DeviceStrip))
        await until(pilot, lambda: not readers())
        assert app.workspace.recall("devices", "") == "off"


async def test_it_is_there_where_there_are_gpus(
    tmp_path: Path, gpus: list[Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCM_TUI_DEVICES")
    monkeypatch.setattr("rocm_tui.tui.widgets.device_strip.may_have_gpus", lambda: True)
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await until(pilot, lambda: app.screen.query(DeviceStrip))
        strip = app.screen.query_one(DeviceStrip)
        await until(pilot, lambda: "192G" in screen_text(strip))
        await pilot.press("7")
        await pilot.pause()
        assert not app.screen.query(DeviceStrip)  # of another screen
        await pilot.press("escape")
        await pilot.resize_terminal(50, 10)
        await until(pilot, lambda: not strip.display)
        await pilot.resize_terminal(200, 50)
        await until(pilot, lambda: strip.display and "MHz" in screen_text(strip))


async def test_before_the_first_tuning_and_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "gpus", list)
    async with running(tmp_path) as (app, pilot):
        await pilot.press("d")
        await until(pilot, lambda: app.screen.query(DeviceStrip))
        strip = app.screen.query_one(DeviceStrip)
        await until(pilot, lambda: "CPU" in screen_text(strip) and "GiB" in screen_text(strip))


async def test_a_driver_that_hangs_holds_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()

    def hang() -> SensorReading:
        free.wait(60)
        return SensorReading(Usage(), DeviceState())

    monkeypatch.setattr(devices, "gpus", lambda: [MachineDevice("0", "MI300X", "", hang)])
    monkeypatch.setattr(devices, "PATIENCE", 0.2)
    write_cache(tmp_path, 8, 16)
    async with running(tmp_path) as (app, pilot):
        panes = await panes_of(app, pilot, 2)
        await pilot.press("d")
        await until(pilot, lambda: app.screen.query(DeviceStrip))
        strip = app.screen.query_one(DeviceStrip)
        await until(pilot, lambda: "has not answered" in screen_text(strip))
        await pilot.press("j")
        assert panes.table.cursor == 1
        free.set()
        await until(pilot, lambda: "has not answered" not in screen_text(strip))


def test_doctor_has_a_line_for_each(gpus: list[Card]) -> None:
    gpus[3].tell(gpu_busy_percent=None)
    checks = list(doctor.gpu_checks())
    assert [check.name for check in checks] == [f"gpu {n}" for n in range(8)]
    assert [check.verdict for check in checks] == ["ok"] * 3 + ["note"] + ["ok"] * 4
    assert checks[3].advice == "use: gpu_busy_percent: No such file or directory"


async def test_the_sources_screen_says_why_there_are_dashes(
    tmp_path: Path, gpus: list[Card]
) -> None:
    for index in (3, 5):
        gpus[index].tell(hwmon0__power1_average=None)
    write_cache(tmp_path, 8)
    async with running(tmp_path) as (app, pilot):
        await panes_of(app, pilot, 1)
        await pilot.press("7")
        await until(pilot, lambda: "No problem." in screen_text(app.screen))
        await pilot.press("escape", "d")
        await until(pilot, lambda: app.screen.query(DeviceStrip))
        strip = app.screen.query_one(DeviceStrip)
        await until(pilot, lambda: strip.troubles())
        await pilot.press("7")
        await until(pilot, lambda: "devices 3, 5" in screen_text(app.screen))
        assert "– in the strip: power: power1_average: No" in screen_text(app.screen)
        assert "1 problem" in screen_text(app.screen)
