"""Pins as one strict JSON document that another machine can check and import.

    {"format": "rocm-tui pins", "version": 1, "by": ..., "when": ...,
     "machines": [{"arch": ..., "torch": ..., ...}], "pins": [{..., "machine": 0}]}

A machine is described from sessions and the cache's header; unknown values are null. A failed
choice's time is also null, since JSON has no infinity. The file may be from a stranger: if any
member has a wrong type or is out of bounds, nothing is imported.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from backend.disk.safe import read_bytes
from backend.errors import CacheUnreadable, ShareInvalid, brief
from backend.model.choice import is_hash, is_kernel_time
from backend.model.origin import extern_name
from backend.model.session import Session
from backend.model.tuning import LATEST, PinnedKernel
from backend.wire.codec import Key, WireError, loads, read, to_json

FORMAT = "rocm-tui pins"
VERSION = 1
MAX_BYTES = 64 << 20
MAX_CONFIG = 100
MAX_VALUE = 1_000
"""Members of a choice's configuration, and characters of one; Triton's have some 30."""
MAX_DEVICES = 1_024
"""Devices that a pin may have hashes for."""
MAX_TEXT = 65_536
"""Characters of one text; an inputs key of 64 inputs has about 10,000."""


def is_text(text: str) -> str:
    """Check that a text has a bounded length and can be encoded."""
    if len(text) > MAX_TEXT:
        return "is too long"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half a character"
    return ""


def is_name(text: str) -> str:
    """Check for one printable line, not empty."""
    return "" if text and text.isprintable() else f"is not a name: {brief(text, 60)!r}"


def is_printable(text: str) -> str:
    """Check for one printable line, or an empty one: a Triton kernel has no precision."""
    return is_name(text) if text else ""


def is_choice(text: str) -> str:
    """Check for the hash of a choice, not empty."""
    return "" if text and is_hash(text) else f"is not a name: {brief(text, 60)!r}"


def is_whole(number: int) -> str:
    return "" if 0 <= number < 1 << 31 else "is not a whole number from 0 to 2147483647"


def is_moment(seconds: float) -> str:
    return "" if 0 <= seconds <= LATEST else f"is not a number from 0 to {LATEST:.0f}"


def is_named(members: Mapping[str, object]) -> str:
    return "" if all(map(str.isprintable, members)) else "is not an object of named members"


Text = Annotated[str, is_text]
Name = Annotated[str, is_text, is_name]
Hash = Annotated[str, is_text, is_choice]
Whole = Annotated[int, is_whole]
"""A small count or an index."""
Moment = Annotated[float, is_moment]
"""Unix seconds that a calendar can print."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a tuning, as far as it is known.

    `arch` is gcnArchName on ROCm, `sm_NN` on CUDA, the vector extension of a CPU; `device` the
    product's name; `hip` or `cuda` the version that torch was built for. `system_hash` is the name
    of Inductor's cache file.
    """

    arch: Name | None = None
    compute_units: Whole | None = None
    device: Name | None = None
    torch: Name | None = None
    triton: Name | None = None
    hip: Name | None = None
    cuda: Name | None = None
    system_hash: Name | None = None
    host: Name | None = None


_TRITON = re.compile(r"(\S{1,80}?)[0-9a-f]{64}(?:-|$)")
"""Triton's key: its version, followed by the digests of its files."""


def machine_of(
    system_hash: str, system: Mapping[str, Any], sessions: Iterable[Session], tuned_by: str | None
) -> Machine:
    """Describe the machine of one tuning from sessions and the cache file's header `system`. The
    session `tuned_by` counts if it wrote to that cache file, else the latest that did."""
    fitting = [session for session in sessions if session.system_hash == system_hash]
    own = [session for session in fitting if session.id == tuned_by]
    session = max(own or fitting, key=lambda session: session.started, default=Session(""))
    header = _header(system)
    return Machine(
        arch=_text(session.arch) or header.arch,
        compute_units=session.compute_units,
        device=_text(session.device) or header.device,
        torch=_text(session.torch),
        triton=header.triton,
        hip=header.hip,
        cuda=header.cuda,
        system_hash=system_hash,
        host=_text(session.host),
    )


def completed(machine: Machine, environment: Mapping[str, Any]) -> Machine:
    """Fill gaps of `machine` from the `environment` job's result, if that is of the same system.
    The torch version stays unknown: another one may have tuned there."""
    here = machine_here(environment)
    if here.system_hash != machine.system_hash:
        return machine
    names = ("arch", "compute_units", "device", "triton", "hip", "cuda")
    missing = {name: getattr(here, name) for name in names if getattr(machine, name) is None}
    return replace(machine, **missing)


def machine_here(environment: Mapping[str, Any], host: str | None = None) -> Machine:
    """Return the machine whose worker returned `environment`."""
    units = environment.get("compute_units")
    names = ("arch", "device", "torch", "triton", "hip", "cuda", "system_hash")
    return Machine(
        compute_units=units if type(units) is int else None,
        host=host,
        **{name: _text(environment.get(name)) for name in names},
    )


def device_name(system: Mapping[str, Any]) -> str | None:
    """Return Inductor's name of the GPU: gcnArchName on ROCm, the product's name on CUDA."""
    device = system.get("device")
    return _text(device.get("name")) if isinstance(device, dict) else None


def _header(system: Mapping[str, Any]) -> Machine:
    version = system.get("version")
    version = version if isinstance(version, dict) else {}
    hip, cuda = _text(version.get("hip")), _text(version.get("cuda"))
    key = _TRITON.match(_text(version.get("triton")) or "")
    name = device_name(system)
    return Machine(
        arch=name if hip else None,
        device=name if cuda else None,
        triton=key[1] if key else None,
        hip=hip,
        cuda=cuda,
    )


def _text(value: object) -> str | None:
    """Return a printable text, or None."""
    return value if isinstance(value, str) and value and value.isprintable() else None


@dataclass(frozen=True, slots=True)
class SharedPin(PinnedKernel):
    """A pin in transit. `timings` are milliseconds by precision and choice hash, `inf` if a choice
    failed, as measured on `machine` before the pin. `config` is the choice's (`BLOCK_M`, ...), as
    text, if known. `lists` are digests of the lists of configs that a kernel of Inductor was
    offered there, if its files had them. `variants` are the hashes of the same kernel by device
    index, as text; empty if `hash` is that of every device."""

    machine: Machine
    config: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    device: str | None = None
    who: str = ""
    when: float = 0.0
    note: str = ""
    lists: tuple[str, ...] = ()
    variants: Mapping[str, str] = field(default_factory=dict)

    @property
    def hashes(self) -> frozenset[str]:
        """The hashes of the pinned kernel on all devices, as far as the file has them."""
        return frozenset((self.hash, *self.variants.values()))


@dataclass(frozen=True, slots=True)
class PinExport:
    """The content of one file: the pins, who exported them and when, Unix seconds."""

    pins: tuple[SharedPin, ...]
    by: str = ""
    when: float = 0.0


def _is_format(text: str) -> str:
    return "" if text == FORMAT else f"is not {FORMAT!r}; `rocm-tui export` writes such files"


def _is_version(number: int) -> str:
    return "" if number == VERSION else f"is not {VERSION}; update rocm-tui"


def _is_config(config: Mapping[str, str]) -> str:
    fits = len(config) <= MAX_CONFIG and all(len(text) <= MAX_VALUE for text in config.values())
    return "" if fits else "is too big for a choice's"


def _are_times(times: Mapping[str, object]) -> str:
    """Check milliseconds by choice hash; null is a failed choice."""
    return next(
        (
            f"has no time for {brief(name, 60)}"
            for name, ms in times.items()
            if not is_hash(name) or not (ms is None or _is_time(ms))
        ),
        "",
    )


def _are_devices(variants: Mapping[str, object]) -> str:
    """Check hashes by device index."""
    if len(variants) > MAX_DEVICES:
        return f"has more than {MAX_DEVICES:,} devices"
    odd = (name for name in variants if not (name.isascii() and name.isdecimal() and len(name) < 5))
    return next((f"has no device {brief(name, 60)!r}" for name in odd), "")


def _is_time(ms: object) -> bool:
    try:
        return type(ms) in (int, float) and is_kernel_time(float(ms))  # type: ignore[arg-type]
    except OverflowError:
        return False


@dataclass(frozen=True, slots=True)
class _Row:
    """A pin as in the file: `machine` is an index into the list of machines."""

    op: Name
    inputs: Name
    precision: Annotated[str, is_text, is_printable]
    hash: Hash
    label: Text
    device: Name | None
    who: Text
    when: Moment
    note: Text
    config: Annotated[dict[str, Text], is_named, _is_config]
    timings: Annotated[dict[str, Annotated[dict[str, Any], _are_times]], is_named]
    machine: Whole
    lists: tuple[Name, ...] = ()
    variants: Annotated[dict[str, Hash], _are_devices] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Document:
    format: Annotated[str, _is_format]
    version: Annotated[Whole, _is_version]
    machines: tuple[Machine, ...]
    pins: tuple[_Row, ...]
    by: Text
    when: Moment


_SAME = (
    *("op", "inputs", "precision", "hash", "label"),
    *("device", "who", "when", "note", "config", "lists", "variants"),
)
"""Fields of a pin that its row has unchanged."""


def share_text(share: PinExport) -> str:
    """Return the text of the file, with its last newline."""
    machines = list(dict.fromkeys(pin.machine for pin in share.pins))
    document = {
        "format": FORMAT,
        "version": VERSION,
        "by": share.by,
        "when": share.when,
        "machines": [to_json(machine) for machine in machines],
        "pins": [to_json(_row(pin, machines.index(pin.machine))) for pin in share.pins],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def read_share(path: Path) -> PinExport:
    """Read the file `path`. Raises ShareInvalid for anything but a complete, valid export."""
    try:
        data = read_bytes(path, MAX_BYTES)
    except CacheUnreadable as error:
        raise ShareInvalid(str(error)) from error
    return parse_share(data, brief(str(path), 200))


def parse_share(data: bytes, source: str) -> PinExport:
    """Parse the content of the file `source`. Raises ShareInvalid."""
    try:
        document = read(_Document, loads(data))
        pins = tuple(_pin(row, number, document) for number, row in enumerate(document.pins))
    except WireError as error:
        raise ShareInvalid(f"{source}: {error}") from error
    return PinExport(pins, document.by, document.when)


def _row(pin: SharedPin, machine: int) -> _Row:
    timings = {
        precision: {name: ms if math.isfinite(ms) else None for name, ms in times.items()}
        for precision, times in pin.timings.items()
    }
    same = {name: getattr(pin, name) for name in _SAME}
    return _Row(**same, timings=timings, machine=machine)


def _pin(row: _Row, number: int, document: _Document) -> SharedPin:
    if row.machine >= len(document.machines):
        what = f"is none of the {len(document.machines)} in the file"
        raise WireError(what, "pins", number, "machine")
    odd = (index for index, name in row.variants.items() if not _is_like(name, row.hash))
    if (index := next(odd, None)) is not None:
        raise WireError("is a hash of another template", "pins", number, "variants", Key(index))
    timings = {
        precision: {name: math.inf if ms is None else float(ms) for name, ms in times.items()}
        for precision, times in row.timings.items()
    }
    same = {name: getattr(row, name) for name in _SAME}
    return SharedPin(**same, timings=timings, machine=document.machines[row.machine])


def _is_like(variant: str, hash: str) -> bool:
    """Return whether two hashes may be the same kernel on two devices."""
    return extern_name(variant) == extern_name(hash) and len(variant) == len(hash)


Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class Remark(Generic[Subject]):
    """The reason why a pin or choice is not in an export, or a limitation of its export."""

    subject: Subject
    text: str


class Inexpressible(ValueError):
    """A pin or choice cannot be written in the requested format; the message says why."""
