"""Facts that need torch or a driver, each in a process of its own: a line of JSON.

python -m tests.amd.facts torch|product|sensors
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

from backend.measure import devices
from backend.measure.sensors import SYSFS

_PACKAGES = ("triton", "pytorch-triton-rocm", "ck4inductor", "amd-aiter", "flydsl", "rocm")
_SETTINGS = ("AMD_", "CUDA_VISIBLE", "GPU_", "HIP_", "HSA_", "MIOPEN_", "PYTORCH_", "ROCR_")
_FILES = {
    "amdgpu": "/sys/module/amdgpu/version",
    "rocm": "/opt/rocm/.info/version",
    "nvidia": "/proc/driver/nvidia/version",
}


def machine() -> dict[str, Any]:
    """Return facts that need neither torch nor a driver."""
    packages: dict[str, str] = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        "drivers": {name: text for name, path in _FILES.items() if (text := _first_line(path))},
        "packages": packages,
        "settings": {
            name: value if re.fullmatch(r"[\w.,:;+=-]{0,60}", value) else "is set"
            for name, value in sorted(os.environ.items())
            if name.startswith(_SETTINGS)
        },
    }


def _first_line(path: str) -> str:
    try:
        return (Path(path).read_text(errors="replace").splitlines() or [""])[0][:200]
    except OSError:
        return ""


def of_torch() -> dict[str, Any]:
    import torch

    gpus = []
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        gpus.append(
            {
                "name": facts.name,
                "arch": getattr(facts, "gcnArchName", f"sm_{facts.major}{facts.minor}"),
                "compute_units": facts.multi_processor_count,
                "memory_gib": round(facts.total_memory / 2**30, 1),
            }
        )
    return {
        "torch": str(torch.__version__),
        "hip": torch.version.hip,
        "cuda": torch.version.cuda,
        "libraries": {"miopen or cudnn": torch.backends.cudnn.version()},
        "available": bool(torch.cuda.is_available()),
        "kfd": _kfd(),
        "gpus": gpus,
    }


def _kfd() -> str:
    """Return whether this user may use AMD GPUs: the device belongs to a group such as `render`."""
    if not Path("/dev/kfd").exists():
        return "absent"
    return "open" if os.access("/dev/kfd", os.R_OK | os.W_OK) else "no permission"


def product() -> dict[str, Any]:
    """Return how far a product on the first GPU is from the CPU's."""
    import torch

    a = torch.randn(256, 256)
    there = (a.cuda() @ a.cuda()).cpu()
    return {"error": ((there - a @ a).abs().max() / (a @ a).abs().max()).item()}


def sensors() -> dict[str, Any]:
    """Return the readings of each GPU, or of the CPU, and those of torch's device under load."""
    found = devices.gpus() or [devices.processor()]
    rows: list[dict[str, Any]] = []
    for device in found:
        row: dict[str, Any] = {"label": device.label, "name": device.name, "address": device.place}
        try:
            row["idle"] = dataclasses.asdict(device.read())
        except Exception as error:  # any driver
            row["error"] = f"{type(error).__name__}: {error}"
        row.update(_amd_files(device.place))
        if rows and "gpu_metrics" in row:
            del row["gpu_metrics"]["bytes"]  # some kilobytes: those of one GPU are enough
        rows.append(row)
    return {"devices": rows, "under_load": _under_load()}


def _amd_files(address: str) -> dict[str, Any]:
    """Return the revision and the bytes of `gpu_metrics`, and the partition, of an AMD GPU."""
    folder = SYSFS / "bus/pci/devices" / (address or "none")
    row: dict[str, Any] = {}
    for name in ("current_compute_partition", "current_memory_partition"):
        if text := _first_line(str(folder / name)):
            row[name] = text
    try:
        data = (folder / "gpu_metrics").read_bytes()[:8192]
        size, *revision = struct.unpack_from("<HBB", data)
    except (OSError, struct.error):
        return row
    return {**row, "gpu_metrics": {"size": size, "revision": revision, "bytes": data.hex()}}


def _under_load() -> dict[str, Any]:
    import torch

    from backend.inductor.sampling import sensor_of

    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    sensor = sensor_of(device)
    if sensor is None:
        return {"error": "torch's device has no sensor"}
    over = threading.Event()

    def work() -> None:
        a = torch.randn(2048, 2048, device=device)
        while not over.is_set():
            for _ in range(20):
                a @ a
            if device.type == "cuda":
                torch.cuda.synchronize()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        time.sleep(2)
        return dataclasses.asdict(sensor())
    finally:
        over.set()
        worker.join()


if __name__ == "__main__":
    answer = {"torch": of_torch, "product": product, "sensors": sensors}[sys.argv[1]]
    print(json.dumps(answer(), default=str))
