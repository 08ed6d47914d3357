"""Devices as people, tables and drivers name them."""

from __future__ import annotations

import pytest

from backend.tables.model import TableDevice
from rocm_tui.errors import UsageError
from rocm_tui.tables.device import device_called, device_given, may_be


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("gfx942:304", TableDevice("gfx942", 304)),
        ("gfx90a", TableDevice("gfx90a")),
        ("gfx942:sramecc+:xnack-:304", TableDevice("gfx942", 304, "gfx942:sramecc+:xnack-")),
        ("MI300X", TableDevice("gfx942", 304)),
        ("MI300X:38", TableDevice("gfx942", 38)),
        ("mi355x", TableDevice("gfx950", 256)),
        ("AMD_Instinct_MI355X", TableDevice("gfx950", 256)),
        ("AMD Instinct MI300X OAM", TableDevice("gfx942", 304)),
        ("7900 XTX", TableDevice("gfx1100", 96)),
        ("AMD_Instinct_MI250X_MI250", TableDevice("gfx90a")),
        ("NVIDIA_H200", TableDevice("sm_90", 132)),
        ("sm_90:132", TableDevice("sm_90", 132)),
    ],
)
def test_a_person_names_a_device(text: str, device: TableDevice) -> None:
    assert device_given(text) == device


@pytest.mark.parametrize(
    "text",
    ["", "304", "gfx", "gfx942:304:304", "gfx942:many", "X", "00X", "MI9999X", "MI300X:xnack-"],
)
def test_what_is_no_device_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write gfx942:304 or MI300X"):
        device_given(text)


def test_tables_and_drivers_name_devices() -> None:
    assert device_called("AMD_Instinct_MI300") == TableDevice("gfx942", 304)
    assert device_called("AMD Instinct MI250X/MI250") == TableDevice("gfx90a")
    assert device_called("AMD_Instinct_MI308X") is None


def test_which_may_be_the_same() -> None:
    mi300x = TableDevice("gfx942", 304)
    for own in (
        TableDevice(),
        TableDevice("gfx942"),
        TableDevice(units=304),
        TableDevice(name="AMD_Instinct_MI300X"),
    ):
        assert may_be(own, mi300x)
    assert may_be(TableDevice(name="AMD_Instinct_MI308X"), mi300x), "a name that is not known"
    others = (
        TableDevice("gfx950"),
        TableDevice("gfx942", 80),
        TableDevice(name="AMD_Instinct_MI355X"),
        TableDevice(name="NVIDIA_A100-SXM4-80GB"),
    )
    assert not any(may_be(own, mi300x) for own in others)
    assert may_be(
        TableDevice(name="NVIDIA_A100-SXM4-80GB"), TableDevice(name="NVIDIA_A100-SXM4-80GB")
    )
