"""AITER's log: a line for each product that its tables lack, once a process; with
AITER_LOG_TUNED_CONFIG=1 also for each that they have. Fused MoE tells of both always.

    shape is M:64, N:1536, K:7168, not found tuned config in /tmp/aiter_configs/a8w8..., will use...
    shape is M:1, N:32, K:4096 dtype='torch.bfloat16' otype=... bias=False, scaleAB=False,
        bpreshuffle=False, not found tuned config in ..., will use default config! using torch ...
    [fused_moe] using 2stage default for ('gfx942', 304, 64, 4096, 1536, 128, 8, 'Activation...
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from backend.tables.aiter import op_of
from backend.tables.model import Device
from rocm_tui.ingest.asked.ask import Answer, Ask, Marker, Said

TUNER = "aiter"
FUSED = "fused_moe"
FUSED_KEY = (
    "token",
    "model_dim",
    "inter_dim",
    "expert",
    "topk",
    "act_type",
    "dtype",
    "q_dtype_a",
    "q_dtype_w",
    "q_type",
    "use_g1u1",
    "doweight_stage1",
)
"""What fused MoE looks up by, behind the device."""
TYPED = ("bias", "dtype", "outdtype", "scaleAB", "bpreshuffle")
"""What the table of plain products looks up by, behind the sizes."""
_SIZES = re.compile(r"shape (?:is )?(?:B:(\d{1,15}), )?M:(\d{1,15}), N:(\d{1,15}), K:(\d{1,15})")
_FACTS = re.compile(
    r"\b(dtype|otype|bias|scaleAB|bpreshuffle|q_dtype_w)[=:]\s?'?([\w.]{1,40})'?", re.ASCII
)
_MISSED = re.compile(r"not found tuned config in (\S{1,300}?),? ")
_DEFAULT = re.compile(r" using (\w{1,40}) solution:(-?\d{1,9})")
_TUNED_IN = re.compile(r" is tuned(?: on cu_num = (\d{1,6}))?,? in (\S{1,300}?)[,!]* ")
_KERNEL = re.compile(r"(?:kernel name is|kernelName is) (\S{1,300}?)[,!]*(?: |$)")
_LIBRARY = re.compile(r"libtype is (\w{1,40})")
_FUSED = re.compile(
    r"\[fused_moe\] using ([12]stage(?: xbf16)?) (default|\(.{1,1000}?\)) for \((.{20,600}?)\)\s*$"
)
_UNTUNED = re.compile(r"\[fused_moe\] no tuned (\w{1,20}) config for \((.{20,600}?)\), using ")
_ENUM = re.compile(r"<([\w.]{1,60}): -?\d{1,6}>")


def plain_value(value: str) -> str:
    """As a table and a log agree on: booleans as 0 and 1, no blanks."""
    value = value.strip()
    return {"true": "1", "false": "0"}.get(value.lower(), value)


def _gemm(text: str, table: str) -> Ask | None:
    sizes = _SIZES.match(text)
    if sizes is None:
        return None
    batch, *rest = sizes.groups()
    told = dict(_FACTS.findall(text[sizes.end() : sizes.end() + 400]))
    key: list[tuple[str, str]] = [] if batch is None else [("B", batch)]
    key += zip("MNK", rest, strict=True)
    name = PurePosixPath(table).name
    if batch is not None:  # older lines name no file
        name = "bf16" if "dtype is bf16" in text[: sizes.end() + 20] else "a8w8"
    if "otype" in told:
        told["outdtype"] = told["otype"]
        key += ((name, told.get(name, "False")) for name in TYPED)
    elif "q_dtype_w" in told:
        key.append(("q_dtype_w", told["q_dtype_w"]))
    return Ask(TUNER, op_of([name for name, _ in key], name), tuple(key))


def _missed(text: str) -> Said | None:
    found = _MISSED.search(text + " ")
    ask = found and _gemm(text, found[1])
    if found is None or ask is None:
        return None
    way = _DEFAULT.search(text, found.end() - 1)
    default = "default config" if way is None else f"{way[1]}, solution {way[2]}"
    return Said(ask, Answer.MISSED, default, found[1])


def _tuned(text: str) -> Said | None:
    found = _TUNED_IN.search(text + " ")
    ask = found and _gemm(text, found[2])
    if found is None or ask is None:
        return None
    kernel, library = _KERNEL.search(text, found.end() - 1), _LIBRARY.search(text)
    way = " ".join(match[1] for match in (library, kernel) if match)
    device = Device(units=int(found[1])) if found[1] else Device()
    return Said(ask, Answer.FOUND, way, found[2], device)


def _fused(text: str) -> Said | None:
    found = _FUSED.match(text)
    ask = found and _experts(found[3])
    if found is None or ask is None:
        return None
    missed = found[2] == "default"
    answer = Answer.MISSED if missed else Answer.FOUND
    return Said(ask, answer, f"{found[1]} {found[2]}", device=ask.device)


def _fallback(text: str) -> Said | None:
    found = _UNTUNED.match(text)
    ask = found and _experts(found[2])
    if found is None or ask is None:
        return None
    return Said(ask, Answer.NOTED, f"a default without {found[1]}")


def _experts(printed: str) -> Ask | None:
    """A Python tuple: the key behind the architecture, which older releases leave out, and
    the number of compute units."""
    values = [_ENUM.sub(r"\1", value).strip().strip("'\"") for value in printed.split(",")]
    units, key = values[-len(FUSED_KEY) - 1 : -len(FUSED_KEY)], values[-len(FUSED_KEY) :]
    arch = values[: -len(FUSED_KEY) - 1]
    if len(arch) > 1 or not all(value.isdigit() for value in (*units, *key[:5])) or not units:
        return None
    device = Device("".join(arch), int(units[0]))
    return Ask(TUNER, FUSED, tuple(zip(FUSED_KEY, key, strict=True)), device)


MARKERS = (
    Marker(b"not found tuned config in ", _missed, b"shape "),
    Marker(b" is tuned", _tuned, b"shape "),
    Marker(b"[fused_moe] using ", _fused),
    Marker(b"[fused_moe] no tuned ", _fallback),
)
