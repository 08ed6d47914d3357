"""Measured times of kernels on AMD GPUs, of public logs and tables, for predicted_times.py."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MM = (
    "64.64.32.4 64.128.32.4 128.64.32.4 64.128.32.8 128.64.32.8 64.32.32.8 32.64.32.8 128.128.32.8 \
64.64.64.8 64.64.16.4 32.32.16.2"
)
CONV = "64.256.16.4 256.64.16.4 1024.16.16.8 128.128.32.8 64.64.32.4 64.256.32.8 256.64.32.8"
"""BLOCK_M, N, K and warps: `mm_kernel_configs` and `kernel_configs` of torch 2.3.1 for ROCm."""

DEVICES = {80: "gfx942", 304: "gfx942", 256: "gfx950"}
"""Architectures by compute units, for tables without a column of them."""

TILES = (
    r"_t(\d+)x(\d+)x(\d+)_",  # flydsl
    r"flydsl_bpresh\w+?_(\d+)x(\d+)x(\d+)_F8",
    r"cktile_(?:(?:\dx){9}\d_)?(\d+)x(\d+)x(\d+)_",
    r"_(?:64|128|256|512)x(\d+)x(\d+)x(\d+)_",  # Composable Kernel and opus: threads first
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A product. `transposed` says that K is contiguous in A; in B it always is."""

    arch: str
    units: int
    type: str
    out: int
    m: int
    n: int
    k: int
    batch: int = 1
    transposed: bool = True
    op: str = "inductor"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A tile, and the number of parts of K that different work groups compute."""

    m: int
    n: int
    k: int
    split: int = 1


Tuning = tuple[Problem, list[tuple[Kernel, float]]]
"""Choices in the order in which they were offered, each with its measured microseconds."""
Row = tuple[Problem, str, str, Kernel, float]
"""Problem, library, the kernel's name, its tile, and measured microseconds."""


def offered(conv: bool, m: int, n: int, k: int) -> list[Kernel]:
    """Return Triton's choices in order: tiles are cut to the problem, each comes with two MFMAs."""
    top = [max(16, 1 << (size - 1).bit_length()) for size in (m, n, k)]
    configs = []
    for text in (CONV if conv else MM).split():
        *sizes, warps = map(int, text.split("."))
        tile = [min(size, limit) for size, limit in zip(sizes, top, strict=True)]
        configs.append((*tile, min(warps, tile[0] * tile[1] // 256)))
    return [Kernel(*config[:3]) for config in dict.fromkeys(configs) for _ in range(2)]


def inductor(folder: Path, kind: str) -> Iterator[Tuning]:
    """Yield the tunings of ResNet-50 and ViT in logs of an MI200.

    The logs show up to ten choices by number. Numbers go on from tuning to tuning, so each has to
    fit the choices that Inductor offers for the shape.
    """
    for log in sorted(folder.glob("amd_mi200*.log")):
        command = [sys.executable, "-m", "rocm_tui", "ls", "--json", str(log)]
        listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        tunings = [
            ({int(c["name"].rpartition("_")[2]): c["ms"] * 1e3 for c in choices}, tuning)
            for tuning in listed["tunings"]
            if (choices := [c for c in tuning["choices"] if c["name"].startswith("triton_")])
        ]
        start = -1000
        for times, tuning in sorted(tunings, key=lambda item: min(item[0])):
            if conv := tuning["op"] == "convolution":
                (batch, channels, height, width), (n, _, side, _) = tuning["shapes"]
                kernels = offered(True, batch * height * width, n, channels)
                # Strides are not in the log: these are ResNet-50's and ViT's.
                halved = side == 7 or (n == 2 * channels if side == 1 else height * n == 7168)
                stride = 16 if side == 16 else 1 + halved
                m, k = batch * (height // stride) * (width // stride), channels * side**2
            else:
                (m, k), (_, n) = tuning["shapes"][-2:]
                kernels = offered(False, m, n, k)
            if not start <= min(times) < start + len(kernels):
                start = max(times) + 1 - len(kernels)
            if not start <= min(times) <= max(times) < start + len(kernels):
                sys.exit(f"{log.name}: {tuning['op']} {tuning['shapes']} has other choices")
            problem = Problem("gfx90a", 104, kind, int(kind[1:]), m, n, k, transposed=not conv)
            yield problem, [(kernels[i - start], us) for i, us in sorted(times.items())]
            start += len(kernels)


@cache
def tile(name: str) -> tuple[int, int, int] | None:
    """Read the tile from a kernel's name."""
    match = next(filter(None, (re.search(pattern, name) for pattern in TILES)), None)
    return match and (int(match[1]), int(match[2]), int(match[3]))


def tables(repository: Path, history: bool) -> list[Row]:
    """Read AITER's tuned tables, of the newest commit or of all, without repetitions.

    Only kernels are taken whose name has the tile in all three directions.
    """
    git = ["git", "-C", str(repository)]
    log = ["log", "--reverse", "--format=", "--raw", "--no-abbrev", "--", "*tuned*.csv"]
    command = [*git, *(log if history else ("ls-tree", "-r", "HEAD"))]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    fields = [line.split() for line in listing.splitlines()]
    rows: dict[Row, None] = {}
    seen: set[tuple[str, str, str]] = set()
    for blob, path in dict.fromkeys((field[3 if history else 2], field[-1]) for field in fields):
        op = re.fullmatch(r".*/\w*?((a4w4|a8w8|bf16)\w*?)_tuned[\w.]*\.csv", path)
        if op is None or "moe" in path or not blob.strip("0"):
            continue
        text = subprocess.run([*git, "show", blob], check=True, capture_output=True).stdout
        head, *lines = text.decode().splitlines()
        new = dict.fromkeys(line for line in lines if (op[1], head, line) not in seen)
        seen.update((op[1], head, line) for line in new)
        for row in csv.DictReader([head, *new]):
            name, units = row.get("kernelName") or "", int(row.get("cu_num") or 0)
            arch = row.get("gfx") or DEVICES.get(units, "")
            us = float(row.get("us") or 0)
            if DEVICES.get(units) != arch or not (sizes := tile(name)) or not 0 < us < 1e6:
                continue
            split = int(row.get("splitK") or 0)  # Composable Kernel's is a power of two
            split = max(1, split) if re.match("flydsl|opus", name) else 1 << split
            int8 = "int8" in (row.get("q_dtype_w") or ("int8" if op[1] == "a8w8" else ""))
            kind = {"a4w4": "f4", "bf16": "bf16", "a8w8": "i8" if int8 else "f8"}[op[2]]
            out = 32 if "32" in (row.get("outdtype") or "") else 16
            m, n, k, batch = (int(row.get(key) or 1) for key in ("M", "N", "K", "B"))
            problem = Problem(arch, units, kind, out, m, n, k, batch, op=op[1])
            library = row.get("libtype") or ("cktile" if "cktile" in name else "ck")
            rows[problem, library, name, Kernel(*sizes, split), us] = None
    return list(rows)
