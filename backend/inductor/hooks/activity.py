"""What this process does, for those who wait for it: torch is imported, a graph is compiled.

An event at each change, a few a compile. Loads nothing of torch.
"""

from __future__ import annotations

import time

from backend.inductor.guard import shielded
from backend.inductor.hooks.recording import recorder
from backend.inductor.torch import dynamo
from backend.model.events import ActivityChanged

UNRECORDED = "what the process does is not recorded"


def imported() -> None:
    """torch is there."""
    recorder().begin(ActivityChanged(time.time(), "running"))


def watch_compiles() -> None:
    """Tell when torch compiles."""
    dynamo.watch_compiles(shielded(UNRECORDED, _begun), shielded(UNRECORDED, _ended))


def _begun() -> None:
    recorder().begin(ActivityChanged(time.time(), "compiling"))


def _ended() -> None:
    recorder().write(ActivityChanged(time.time(), "running"))
