"""What is known of the machine that a tuning was made on: from sessions and the cache's header."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from backend.model.session import Session
from backend.wire.bounds import Name, Whole


@dataclass(frozen=True, slots=True)
class Machine:
    """What a tuning was made with, as far as it is known.

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
"""Triton's key is its version, with the digests of its files behind it."""


def machine_of(
    system_hash: str, system: Mapping[str, Any], sessions: Iterable[Session], tuned_by: str | None
) -> Machine:
    """The facts of one tuning, those of the cache file's header `system` included.

    The session `tuned_by` tells them if it wrote to that cache file, else the latest that did.
    """
    fitting = [session for session in sessions if session.system_hash == system_hash]
    own = [session for session in fitting if session.id == tuned_by]
    known = max(own or fitting, key=lambda session: session.started, default=Session(""))
    header = _header(system)
    return Machine(
        arch=_text(known.arch) or header.arch,
        compute_units=known.compute_units,
        device=_text(known.device) or header.device,
        torch=_text(known.torch),
        triton=header.triton,
        hip=header.hip,
        cuda=header.cuda,
        system_hash=system_hash,
        host=_text(known.host),
    )


def completed(machine: Machine, environment: Mapping[str, Any]) -> Machine:
    """`machine` with what it lacks from the `environment` job's result, if that is of the same
    system. The torch version stays unknown: another one may have tuned there."""
    here = machine_here(environment)
    if here.system_hash != machine.system_hash:
        return machine
    names = ("arch", "compute_units", "device", "triton", "hip", "cuda")
    missing = {name: getattr(here, name) for name in names if getattr(machine, name) is None}
    return replace(machine, **missing)


def machine_here(environment: Mapping[str, Any], host: str | None = None) -> Machine:
    """The facts of the machine whose worker gave `environment`."""
    units = environment.get("compute_units")
    names = ("arch", "device", "torch", "triton", "hip", "cuda", "system_hash")
    return Machine(
        compute_units=units if type(units) is int else None,
        host=host,
        **{name: _text(environment.get(name)) for name in names},
    )


def device_name(system: Mapping[str, Any]) -> str | None:
    """What Inductor calls the GPU: gcnArchName on ROCm, the product's name on CUDA."""
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
    """A printable text; nothing else."""
    return value if isinstance(value, str) and value and value.isprintable() else None
