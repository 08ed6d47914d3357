"""hipBLASLt's log: with HIPBLASLT_LOG_MASK=32 a line for each call, which is the command that makes
it again. Whether a tuning file had it, a line of HIPBLASLT_LOG_MASK=8 says, but not of which
product: the second below, or, with HIPBLASLT_TUNING_MODE of newer builds, the last, once each.

    hipblaslt-bench --api_method c -m 1024 -n 512 -k 1024 --lda 1024 ... --transA N --transB T ...
    ... No valid solution index found in override file.
    ... tuning-cache: cache-miss, no valid entry for this problem
"""

from __future__ import annotations

import re

from backend.tables.hipblaslt import KEY, WORD
from backend.tables.hipblaslt import TUNER as TABLES
from rocm_tui.ingest.asked.ask import Answer, Ask, Marker, Said

TUNER = TABLES.name
NAMELESS = (
    b"No valid solution index found in override file",
    b"No valid entries found in override file",
    b"tuning-cache: cache-miss",
)
_USUAL = {"transA": "N", "transB": "N", "batch_count": "1"}
_OPTION = re.compile(r"(?<= )--?([A-Za-z_]\w{0,30})(?: ([^\s-]\S{0,40}|-\d\S{0,40}))?")
_CHOSEN = re.compile(r" --(?:algo_method|solution_index|requested_solution) \S{1,40}")
_HARMLESS = re.compile(r"[\w .:+/=,-]{1,2000}", re.ASCII)


def said(text: str) -> Said | None:
    """A call; None for a sentence about the program."""
    call = _HARMLESS.match(text)
    words = dict(_OPTION.findall(call[0])) if call else {}
    if call is None or not all(words.get(name, "").isdigit() for name in "mnk"):
        return None
    values = {**_USUAL, **words}
    key = tuple((name, values[name]) for name in KEY if values.get(name))
    index = words.get("solution_index")
    # A run of the benchmark tries all solutions where none is named.
    again = " ".join(_CHOSEN.sub("", call[0]).split())
    way = f"solution {index}" if index else ""
    return Said(Ask(TUNER, "gemm", key), Answer.UNTOLD, way, call=again)


MARKERS = (Marker(f"{WORD} -".encode(), said),)
