"""Ranks on hosts of their own agree on their choices."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from backend.disk.layout import Layout
from tests.matrix.lab import PARTS, Lab, Ran, Tuning, must

RANKS = ("rank0", "rank1")
"""The cache dirs; each rank is on a host of its own."""


def agreed(lab: Lab, tuned: Path) -> None:
    """Two ranks that take different choices are told; pinned, they take one. `tuned` is the cache
    dir whose times they find."""
    hosts = [lab.cache(name) for name in RANKS]
    for host in hosts:
        shutil.copytree(Layout(tuned).autotune, Layout(host).autotune)
    _turn_round(Layout(hosts[1]))
    paths = [str(host) for host in hosts]
    tunings = lab.tunings(hosts[0])
    first, second = _called(lab, hosts, tunings)
    must(all(first[part] != second[part] for part in PARTS), f"both ranks call {first}")
    told = lab.asked(hosts[0], "agree", "--ranks", "2", *paths, codes=(1,))
    found = told["compared"], told["differ"], told["missing"]
    must(found == (len(PARTS), len(PARTS), []), f"of compared, differing, missing it says {found}")
    file = str(lab.folder / "agreed.json")
    lab.ask(hosts[0], "agree", *paths, "--pin", "--yes", "-o", file, torch=True)
    lab.ask(hosts[1], "import", file, "--yes", torch=True)
    pinned = {part: tuning.pinned for part, tuning in lab.tunings(hosts[0]).items()}
    called = _called(lab, hosts, tunings)
    must(called == [pinned, pinned], f"they call {called}, pinned are {pinned}")
    lab.ask(hosts[0], "agree", "--ranks", "2", *paths)


def _called(lab: Lab, hosts: list[Path], tunings: dict[str, Tuning]) -> list[dict[str, str]]:
    """What each rank calls, by part. All run at once, without graphs of earlier runs."""

    def run(rank: int) -> Ran:
        env = {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}
        return lab.program(hosts[rank], "run", env=env)

    with ThreadPoolExecutor(len(hosts)) as pool:
        every = list(pool.map(run, range(len(hosts))))
    return [{part: ran.calls(part, tunings[part].hashes) for part in PARTS} for ran in every]


def _turn_round(layout: Layout) -> None:
    """Let slower choices be the faster ones, as another tuning may find."""
    for file in layout.autotune.glob("[!.]*"):
        document = json.loads(file.read_text())
        _turn(document["cache"])
        file.write_text(json.dumps(document))


def _turn(table: dict[str, Any]) -> None:
    if all(isinstance(value, float) for value in table.values()):
        table.update(zip(table, reversed(list(table.values())), strict=True))
        return
    for inner in table.values():
        _turn(inner)
