"""What was done from the screen: a line each, newest last, and no more than the latest of them."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass

from backend.disk import safe
from backend.disk.layout import Layout
from backend.model.session import LATEST
from backend.pins.drift import default_who
from backend.wire.codec import WireError, read, to_json

KEPT = 1000
"""Lines that the file has at most."""
_MOST_BYTES = 4 << 20
_LONGEST = 500
"""Characters of an outcome that are kept."""


@dataclass(frozen=True, slots=True)
class Done:
    """`command` does the same in a shell; `outcome` is what came of it, `ok` whether that is what
    was wanted. `when` is Unix time, `who` is `user@host`."""

    when: float
    who: str
    command: str
    outcome: str
    ok: bool = True


def note_done(layout: Layout, command: str, outcome: str, ok: bool) -> None:
    """Add to the file what was done just now. Raises StoreErrors."""
    path = layout.done
    done = Done(time.time(), default_who(), command, outcome[:_LONGEST], ok)
    safe.make_folder(layout.root, path.parent)
    safe.check_file(layout.root, path)
    with safe.locked(layout.root, path):
        known = (*list_done(layout), done)[-KEPT:]
        lines = [json.dumps(to_json(one)) for one in known]
        safe.write_atomic(path, "".join(f"{line}\n" for line in lines).encode())


def list_done(layout: Layout) -> tuple[Done, ...]:
    """What was done, oldest first; lines that are none are left out. Raises CacheUnreadable."""
    path = layout.done
    if not safe.exists(path):
        return ()
    found = []
    for line in safe.read_bytes(path, _MOST_BYTES).splitlines():
        with contextlib.suppress(ValueError, WireError, RecursionError):
            one = read(Done, json.loads(line))
            if abs(one.when) <= LATEST:
                found.append(one)
    return tuple(found)
