"""The choices of our templates that win in a model: measured cold, tried in its graph, pinned.

For `bench_model.py --templates`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

TUI = [sys.executable, "-m", "rocm_tui"]
RIVALS = 2
"""Of ours and of the others, the fastest ones when they were tuned."""


@dataclass(frozen=True)
class Steps:
    """Runs commands by name on one cache dir, and reads what they print as JSON."""

    run: Callable[[str, list[str]], str]
    where: list[str]

    def __call__(self, step: str, *words: str) -> dict[str, Any]:
        text = self.run(step, [*TUI, *words, "--json", *self.where])
        try:
            value = json.loads(text)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


def chosen(steps: Steps, end: float) -> dict[str, Any]:
    """What was found and pinned; `in_use` says it in words. No step begins after `end`."""
    found: list[dict[str, Any]] = []
    tunings = sorted(_tunings(steps), key=lambda tuning: -(tuning["share"] or 0.0))
    for tuning in tunings:
        if time.monotonic() < end:
            found.append(_measured(steps, tuning))
    won = sorted((one for one in found if one["wins"]), key=_gain, reverse=True)
    for one in won:
        if time.monotonic() < end:
            one["trial"] = _tried(steps, one)
    pinned = [one for one in won if _lets_pin(one.get("trial"))]
    for one in pinned:
        steps(f"pin {one['id']}", "pin", one["id"], one["ours"]["hash"])
    names = [f"{one['ours']['name']} ({one['shapes']})" for one in pinned]
    return {"found": found, "in_use": ", ".join(names) or "none of ours won"}


def _tunings(steps: Steps) -> Iterator[dict[str, Any]]:
    """Of the program, each once, where a choice of ours has a time."""
    seen = set()
    for tuning in steps("ls", "ls").get("tunings", []):
        key = tuning["op"], tuning["inputs_key"]
        if key not in seen and any(_is_ours(choice) for choice in tuning["choices"]):
            seen.add(key)
            yield tuning


def _is_ours(choice: dict[str, Any]) -> bool:
    return choice["ms"] is not None and str(choice["name"]).startswith("rocm_")


def _measured(steps: Steps, tuning: dict[str, Any]) -> dict[str, Any]:
    """The best of ours against the best of the others; `wins` if it is clear that ours is."""
    timed = sorted((c for c in tuning["choices"] if c["ms"] is not None), key=lambda c: c["ms"])
    ours = [choice for choice in timed if _is_ours(choice)][:RIVALS]
    others = [choice for choice in timed if not _is_ours(choice)][:RIVALS]
    aten = [c for c in timed if not str(c["name"]).startswith(("rocm_", "triton_"))][:1]
    asked = list(dict.fromkeys(choice["hash"] for choice in (*ours, *others, *aten)))
    words = [tuning["id"], *asked, "--cold", "--budget", "6"]
    rows = steps(f"measure {tuning['id']}", "measure", *words).get("measurement") or {}
    choices = rows.get("choices", [])
    best = next((row for row in choices if str(row["name"]).startswith("rocm_")), None)
    rival = next((row for row in choices if not str(row["name"]).startswith("rocm_")), None)
    wins = bool(best and rival and (rival["ratio_low"] or 0.0) > 1.0 and best is choices[0])
    return {
        "id": tuning["id"],
        "shapes": " ".join("x".join(map(str, shape)) for shape in tuning["shapes"]),
        "share": tuning["share"],
        "ours": best,
        "rival": rival,
        "wins": wins,
        "rounds": rows.get("rounds"),
        "trouble": rows.get("trouble"),
    }


def _gain(one: dict[str, Any]) -> float:
    """What the graph would gain if the choice is as much faster in it as when measured."""
    return float((one["share"] or 0.0) * (1.0 - 1.0 / one["rival"]["ratio"]))


def _tried(steps: Steps, one: dict[str, Any]) -> dict[str, Any] | None:
    words = [one["id"], one["ours"]["hash"], "--yes", "--budget", "12"]
    trial = steps(f"trial {one['id']}", "trial", *words).get("trial")
    if not isinstance(trial, dict):
        return None
    keys = (
        "verdict",
        "ms",
        "ratio",
        "ratio_low",
        "ratio_high",
        "kernels",
        "gone",
        "added",
        "failed",
    )
    arms = [{key: arm.get(key) for key in keys} for arm in trial["arms"]]
    return {**{key: trial[key] for key in ("graph", "rounds", "by", "trouble")}, "arms": arms}


def _lets_pin(trial: dict[str, Any] | None) -> bool:
    """Unless a trial says that the graph is slower with it."""
    if trial is None:
        return True
    return all(arm["verdict"] != "slower" and not arm["failed"] for arm in trial["arms"])
