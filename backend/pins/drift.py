"""Who does something to pins, and what others did to them."""

from __future__ import annotations

import os
import pwd
import time
from dataclasses import replace

from backend.pins.file import PinFile, Record


def default_who() -> str:
    """`user@host`."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"


def drifted(file: PinFile, record: Record) -> Record:
    """Count a drift, in the history too."""
    record = replace(record, drifts=record.drifts + 1)
    file.note("drift", record, default_who(), time.time())
    file.put(record)
    return record


def applied_again(file: PinFile, record: Record) -> Record:
    """The same of a pin that is applied again now."""
    return drifted(file, replace(record, applied=time.time()))
