"""Devices as people, tables and drivers name them."""

from __future__ import annotations

import pytest

from backend.tables.model import Device
from rocm_tui.errors import UsageError
from rocm_tui.tables.device import device_called, device_given, may_be


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("gfx942:304", Device("gfx942", 304)),
        ("gfx90a", Device("gfx90a")),
        ("gfx942:sramecc+:xnack-:304", Device("gfx942", 304, "gfx942:sramecc+:xnack-")),
        ("MI300X", Device("gfx942", 304)),
        ("MI300X:38", Device("gfx942", 38)),
        ("mi355x", Device("gfx950", 256)),
        ("AMD_Instinct_MI355X", Device("gfx950", 256)),
        ("AMD Instinct MI300X OAM", Device("gfx942", 304)),
        ("7900 XTX", Device("gfx1100", 96)),
        ("AMD_Instinct_MI250X_MI250", Device("gfx90a")),
        ("NVIDIA_H200", Device("sm_90", 132)),
        ("sm_90:132", Device("sm_90", 132)),
    ],
)
def test_a_person_names_a_device(text: str, device: Device) -> None:
    assert device_given(text) == device


@pytest.mark.parametrize(
    "text",
    ["", "304", "gfx", "gfx942:304:304", "gfx942:many", "X", "00X", "MI9999X", "MI300X:xnack-"],
)
def test_what_is_no_device_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write gfx942:304 or MI300X"):
        device_given(text)


def test_tables_and_drivers_name_devices() -> None:
    assert device_called("AMD_Instinct_MI300") == Device("gfx942", 304)
    assert device_called("AMD Instinct MI250X/MI250") == Device("gfx90a")
    assert device_called("AMD_Instinct_MI308X") is None


def test_which_may_be_the_same() -> None:
    mi300x = Device("gfx942", 304)
    for own in (Device(), Device("gfx942"), Device(units=304), Device(name="AMD_Instinct_MI300X")):
        assert may_be(own, mi300x)
    assert may_be(Device(name="AMD_Instinct_MI308X"), mi300x), "a name that is not known"
    others = (
        Device("gfx950"),
        Device("gfx942", 80),
        Device(name="AMD_Instinct_MI355X"),
        Device(name="NVIDIA_A100-SXM4-80GB"),
    )
    assert not any(may_be(own, mi300x) for own in others)
    assert may_be(Device(name="NVIDIA_A100-SXM4-80GB"), Device(name="NVIDIA_A100-SXM4-80GB"))
