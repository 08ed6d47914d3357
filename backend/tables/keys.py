"""What an entry of a tuned table is called where pins are kept: an op, inputs and a file, as a
tuning of Inductor's is, so that all pins have one list, one history and one undo.

    op `table:tunableop:GemmTunableOp_Half_TN`, inputs `params=tn_32000_64_8192 @ gfx942`
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from backend.model.problem import TuningKey

if TYPE_CHECKING:  # few pins are of entries
    from backend.tables.model import Entry

_PREFIX = "table:"
_FILE = "table-"


def is_table(op: str) -> bool:
    """Whether an op is that of an entry; no op of PyTorch has a colon."""
    return op.startswith(_PREFIX)


def name_of(op: str) -> str:
    """What a person calls the op of a pin."""
    return op.split(":", 2)[2] if is_table(op) else op


def key_of(tuner: str, entry: Entry) -> TuningKey:
    """The same for all entries that the tuner takes for one, in any file."""
    inputs = ", ".join(f"{name}={value}" for name, value in entry.key)
    device = str(entry.device)
    return TuningKey(
        f"{_PREFIX}{tuner}:{entry.op}", f"{inputs} @ {device}" if device else inputs, ""
    )


def system_of(path: Path) -> str:
    """What pins call the file: a digest of where it lies."""
    import hashlib  # loads OpenSSL, for which the first screen does not wait

    return _FILE + hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def is_system(system: str) -> bool:
    """Whether that is a table, and no cache file."""
    return system.startswith(_FILE)
