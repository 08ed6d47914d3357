"""Which tables a library reads as one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from rocm_tui.tables.sheet import Sheet

FAMILIES = (
    "a4w4_blockscale_tuned_gemm",
    "a8w8_tuned_gemm",
    "a8w8_bpreshuffle_tuned_gemm",
    "a8w8_blockscale_tuned_gemm",
    "a8w8_blockscale_bpreshuffle_tuned_gemm",
    "a8w8_tuned_batched_gemm",
    "bf16_tuned_batched_gemm",
    "batched_gemm_a8w8_blockscale_mxscale_tuned",
    "bf16_tuned_gemm",
    "tuned_fmoe",
    "tuned_fhmoe",
    "tuned_grouped_fmoe",
    "chunk_gdn_h_opt_tuned",
)
"""The names of AITER's default tables; each is merged with those of `model_configs` that have it in
their names."""
BY_NAME = ("moe", "aiter triton", "miopen")
"""Tuners whose loaders choose one file of many by the device in its name."""


def families(sheets: Iterable[Sheet]) -> list[list[Sheet]]:
    """AITER's of one name and one folder, that of the models counted with the one it is in; of the
    tuners whose loaders choose a file by name all; any other table by itself."""
    found: dict[tuple[str, str], list[Sheet]] = {}
    for sheet in sheets:
        path = PurePath(sheet.table.path)
        key = (sheet.tuner, "" if sheet.tuner in BY_NAME else str(path))
        name = next((one for one in FAMILIES if one in path.name), "")
        if sheet.tuner == "aiter" and name and "untuned" not in path.name:
            folder = path.parent
            root = folder.parent if folder.name == "model_configs" else folder
            key = (name, str(root))
        found.setdefault(key, []).append(sheet)
    return [sorted(family, key=lambda one: one.table.path) for family in found.values()]
