"""A driver of a fleet on Ray that is there to be killed: `python -m tests.support.ray_driver
ADDRESS FOLDER RUN` lets all its agents wait, and says so."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rocm_tui.fleet.messages import Hello, Offer
from tests.support.ray_lab import hear, waiting_fleet
from tests.support.waiting_workers import log_of, waiting_units


def main(address: str, folder: Path, run: str) -> None:
    fleet = waiting_fleet(address, folder, run)
    said = hear(fleet, 240, Hello, len(fleet.agents))
    names = [each.agent for each in said if isinstance(each, Hello)]  # a heartbeat is none
    for name, unit in zip(names, waiting_units(len(names), 600), strict=True):
        fleet.offer(name, Offer(unit.id, unit))
    while len(log_of(folder)) < len(names):
        time.sleep(0.05)
    print("at work", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
