"""TunableOp's log: PYTORCH_TUNABLEOP_VERBOSE=2 tells what it tunes, 3 each look-up.

    missing params_signature, returning null ResultEntry for GemmTunableOp_Half_TN,tn_64_8_32_ld_...
    ResultEntry found for GemmTunableOp_Half_TN,tn_64_8_32_ld_32_32_64
    finding fastest for GemmTunableOp_Half_TN(tn_64_8_32_ld_32_32_64) out of 1068 candidates
    └──found fastest for GemmTunableOp_Half_TN(tn_64_8_32_ld_32_32_64) Gemm_Hipblaslt_1104

Older releases end the first line at `ResultEntry`: a miss, of what is not said.
"""

from __future__ import annotations

import re

from rocm_tui.ingest.asked.ask import Answer, Ask, Marker, Said

TUNER = "tunableop"
NAMELESS = b"returning null ResultEntry"
_SIGNATURE = r"([A-Za-z0-9]{1,40}TunableOp_[\w:<>]{1,100})"
_PARAMS = r"([nt]{2}_\w{1,200})"
_LOOKED_UP = re.compile(rf"{_SIGNATURE},{_PARAMS}")
_TUNED = re.compile(rf"{_SIGNATURE}\({_PARAMS}\)(?: (\w{{1,100}}))?")


def ask_of(op: str, params: str) -> Ask:
    return Ask(TUNER, op, (("params", params),))


def _missing(text: str) -> Said | None:
    found = _LOOKED_UP.match(text, len("returning null ResultEntry for "))
    return found and Said(ask_of(found[1], found[2]), Answer.MISSED)


def _found(text: str) -> Said | None:
    found = _LOOKED_UP.match(text, len("ResultEntry found for "))
    return found and Said(ask_of(found[1], found[2]), Answer.FOUND)


def _tuned(text: str) -> Said | None:
    """What a run tunes it has missed: a look-up comes first."""
    found = _TUNED.match(text, len("finding fastest for "))
    return found and Said(ask_of(found[1], found[2]), Answer.NOTED)


def _fastest(text: str) -> Said | None:
    found = _TUNED.match(text, len("found fastest for "))
    if found is None or not found[3]:
        return None
    return Said(ask_of(found[1], found[2]), Answer.NOTED, way=f"tuned then: {found[3]}")


MARKERS = (
    Marker(b"returning null ResultEntry for ", _missing),
    Marker(b"ResultEntry found for ", _found),
    Marker(b"finding fastest for ", _tuned),
    Marker(b"found fastest for ", _fastest),
)
