"""vLLM's and SGLang's logs: which file of Triton configs a fused mixture of experts, or a product
with scales of blocks, was looked up in, once a process.

    Using default MoE config. Performance might be sub-optimal! Config file not found at .../E=8,...
    Using configuration from .../E=8,N=7168,device_name=AMD_Instinct_MI300X.json for MoE layer.
    Using MoE kernel config from .../E=8,N=7168,device_name=AMD_Instinct_MI300X.json.
    Config file not found at ... Fallback to triton version 3.2.0 and use MoE kernel config from ...

vLLM breaks the first line behind `sub-optimal!` in some releases: the path alone counts.
"""

from __future__ import annotations

import re

from backend.tables.ladder import BLOCKS, MOE_OP, moe_name
from backend.tables.ladder import MOE as TABLES
from backend.tables.model import Device
from rocm_tui.ingest.asked.ask import Answer, Ask, Marker, Said

TUNER = TABLES.name
_PATH = re.compile(
    r"((?:[^\s'\"]{0,400}/)?)((?:E=\d{1,6},N=|N=\d{1,9},K=)\d{1,9},device_name=[^/\n]{1,200}?\.json)"
)
_UP = "reusing the tuned up-projection config"
_OLDER = re.compile(r"Fallback to triton version (\S{1,20}) ")


def _said(text: str, answer: Answer, way: str) -> Said | None:
    found = _PATH.search(text)
    told = moe_name(found[2]) if found else {}
    if found is None or not told:
        return None
    device = Device(name=told.pop("device_name", ""))
    op = BLOCKS if "K" in told else MOE_OP
    return Said(Ask(TUNER, op, tuple(told.items()), device), answer, way, found[0], device)


def _missed(text: str) -> Said | None:
    older = _OLDER.search(text)
    way = f"the file of Triton {older[1]}" if older else "default config"
    return _said(text, Answer.MISSED, "the file of the first product" if _UP in text else way)


def _found(text: str) -> Said | None:
    return _said(text, Answer.FOUND, "")


MARKERS = (
    Marker(b"onfig file not found at ", _missed),
    Marker(b"Using configuration from ", _found),
    Marker(b"Using MoE kernel config from ", _found),
)
