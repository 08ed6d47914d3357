"""Which sensor tells how a torch device is doing: its card is found by PCI address."""

from __future__ import annotations

import os

import torch

from backend.measure.sensors import AmdSensor, CpuSensor, NvidiaSensor, Sensor


def sensor_of(device: torch.device) -> Sensor | None:
    """None where nobody tells."""
    try:
        if device.type == "cpu":
            return CpuSensor(os.sched_getaffinity(0))
        if device.type != "cuda":
            return None
        properties = torch.cuda.get_device_properties(device)
        address = pci_address(properties)
        if torch.version.hip:
            return AmdSensor(address)
        return NvidiaSensor(address, str(getattr(properties, "uuid", "")) or None)
    except Exception:  # no library, no rights, a driver of another kind: that harms no measurement
        return None


def pci_address(properties: object) -> str | None:
    """Where torch tells it: older versions do not."""
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    numbers = [part for part in parts if isinstance(part, int)]
    return "{:04x}:{:02x}:{:02x}.0".format(*numbers) if len(numbers) == len(parts) else None
