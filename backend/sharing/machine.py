"""What is known of the machine that a tuning was made on: from sessions and the cache's header.

May a pin that was made on one machine be used on another? One rule a fact.

A choice hash is a digest of generated source, so it means the same kernel wherever it occurs; what
differs between machines is whether it occurs, and whether the times still hold. So only another
kind of device refuses, where no hash of the one is ever a good kernel for the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from backend.records import Session
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


_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?(?:\.post\d+)?(?:[+-].*)?$")


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that is not the same there (where the pins come from) and here, and what follows.

    `there` and `here` are None where it is not known.
    """

    field: str
    there: str | None
    here: str | None
    refuses: bool
    why: str

    @property
    def known(self) -> bool:
        return self.there is not None and self.here is not None

    @property
    def sentence(self) -> str:
        there, here = self.there or "not known", self.here or "not known"
        return f"{self.field}: {there} there, {here} here; {self.why}"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a difference of one field means. `alike` says of two known values, as text, whether
    they are as good as the same."""

    field: str
    alike: Callable[[str, str], bool]
    refuses: bool
    why: str


def target(arch: str) -> str:
    """`gfx942` of `gfx942:sramecc+:xnack-`."""
    return arch.partition(":")[0]


def minor(version: str) -> str:
    """`2.13` of `2.13.0+rocm7.1`; the whole text of what is no release, as nightly builds."""
    found = _RELEASE.match(version)
    return f"{found[1]}.{found[2]}" if found else version


def _same(there: str, here: str) -> bool:
    return there == here


def _same_target(there: str, here: str) -> bool:
    return target(there) == target(here)


def _same_features(there: str, here: str) -> bool:
    return there == here or target(there) != target(here)


def _same_minor(there: str, here: str) -> bool:
    return minor(there) == minor(here)


_TIMES = "the times were measured on another device: measure again before you rely on them"
_HASHES = "a choice's hash changes with the generated source, so the pin may never count here"
_COMPILER = "another compiler makes other machine code of the same choice: measure again"

RULES = (
    Rule("arch", _same_target, True, "kernels of one arch say nothing about another"),
    Rule("arch", _same_features, False, "another setting of the same arch: measure again"),
    Rule("device", _same, False, _TIMES),
    Rule("compute_units", _same, False, f"{_TIMES}; a Triton choice may have another hash"),
    Rule("torch", _same_minor, False, _HASHES),
    Rule("triton", _same, False, _COMPILER),
    Rule("hip", _same_minor, False, _COMPILER),
    Rule("cuda", _same_minor, False, _COMPILER),
)

_UNKNOWN = "it cannot be checked"


def differences(there: Machine, here: Machine) -> list[Difference]:
    """What differs, in the order of the rules; nothing if the machines are as good as the same.

    Where a field is known on one side only, that is said; where it is known on neither, or does
    not apply, nothing is.
    """
    found: dict[str, Difference] = {}
    runtimes = _runtime(there), _runtime(here)
    if None not in runtimes and runtimes[0] != runtimes[1]:
        why = "torch was built for another kind of GPU, and no choice is the same"
        return [Difference("runtime", *runtimes, refuses=True, why=why)]
    for rule in RULES:
        theirs, ours = _fact(there, rule.field), _fact(here, rule.field)
        if theirs is None and ours is None:
            continue
        if theirs is None or ours is None:
            found.setdefault(rule.field, Difference(rule.field, theirs, ours, False, _UNKNOWN))
        elif not rule.alike(theirs, ours):
            found[rule.field] = Difference(rule.field, theirs, ours, rule.refuses, rule.why)
    if not found and there.system_hash != here.system_hash:
        why = "some part that no version tells of is another; the pin may never count here"
        found[""] = Difference("system_hash", there.system_hash, here.system_hash, False, why)
    return list(found.values())


def refused(found: Iterable[Difference]) -> bool:
    return any(difference.refuses for difference in found)


def _runtime(machine: Machine) -> str | None:
    """`HIP`, `CUDA`, or None where no version of either is known."""
    return "HIP" if machine.hip else "CUDA" if machine.cuda else None


def _fact(machine: Machine, name: str) -> str | None:
    value = getattr(machine, name)
    return None if value is None else str(value)
