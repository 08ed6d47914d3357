"""The table of bench_templates.py: our choices beside torch on a GPU."""

from __future__ import annotations

import statistics
from typing import Any


def markdown(result: dict[str, Any]) -> str:
    """The table: torch's time over ours, of each run; above 1 ours is faster."""
    lines = [
        f"{result['device']}, {result['target']}, torch {result['torch']}, {result['dtype']}; "
        f"a copy moves {result['copy_gb_s']} GB/s",
        "",
        "| kind | M x N x K | W | then | us, ours cold | torch / ours, cold | hot | of a copy "
        "| choice | failed |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["shapes"]:
        failed = sum("error" in choice for choice in row["choices"])
        cells = [row["kind"], row["shape"], row["layout"], row["activation"]]
        if "best" in row:
            ours = statistics.median(row["ours_cold_us"])
            cells += [f"{ours:.1f}", _ratios(row, "cold"), _ratios(row, "hot")]
            cells += [f"{row['bytes'] / ours / 1e3 / result['copy_gb_s']:.2f}"]
            cells += [f"{row['template']}: {row['best']}"]
        else:
            cells += ["", "", "", "", "none is right"]
        lines.append(f"| {' | '.join([*cells, str(failed)])} |")
    return "\n".join(lines) + "\n"


def _ratios(row: dict[str, Any], name: str) -> str:
    pairs = zip(row[f"torch_{name}_us"], row[f"ours_{name}_us"], strict=True)
    return " ".join(f"{theirs / ours:.2f}" for theirs, ours in pairs)
