"""What is in a mega-cache file, which pins it would hide, what it would overwrite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend.disk.layout import Layout
from backend.errors import BundleInvalid, StoreError, brief
from backend.sharing.bundle import (
    Artifact,
    Bundle,
    Hiding,
    Overwriting,
    configurations,
    hidden_pins,
    read_bundle,
)
from rocm_tui.actions.doctor import Check, Verdict

_KINDS = {
    "inductor": "compiled graph",
    "aot_autograd": "companion of a graph",
    "autotune": "pointwise configuration",
    "pgo": "profile of dynamic shapes",
    "precompile": "precompiled function",
}
"""The types of artifacts that PyTorch writes, in words."""


@dataclass(frozen=True, slots=True)
class Examined:
    """One file: what the checks say, and what they were made from."""

    path: str
    checks: list[Check]
    bundle: Bundle | None = None
    hidden: Sequence[Hiding] = ()
    overwritten: Mapping[str, Overwriting] = field(default_factory=dict)


def examine_bundle(path: Path, layout: Layout) -> Examined:
    try:
        bundle = read_bundle(path)
        hidden = hidden_pins(bundle, layout)
        overwritten = {a.key: becomes for a, becomes in configurations(bundle, layout)}
    except BundleInvalid as error:
        advice = "write the bytes of torch.compiler.save_cache_artifacts()[0] to a file"
        return Examined(str(path), [Check("bundle", "bad", str(error), advice)])
    except StoreError as error:
        return Examined(str(path), [Check("pins", "bad", str(layout.pins), str(error))])
    checks = [
        Check("bundle", "ok", f"{path}: {_bytes(bundle.size)}, its checksum is right"),
        *_contents(bundle.artifacts),
        *_dangers(bundle.artifacts),
        *_overwriting(overwritten),
        *_hiding(hidden),
    ]
    return Examined(str(path), checks, bundle, hidden, overwritten)


def _contents(artifacts: Sequence[Artifact]) -> Iterator[Check]:
    if not artifacts:
        yield Check("artifacts", "note", "none")
    for kind in dict.fromkeys(artifact.type for artifact in artifacts):
        mine = [a for a in artifacts if a.type == kind and a.loaded]
        size = _bytes(sum(artifact.size for artifact in mine))
        name = brief(kind, 20)
        what = _KINDS.get(kind)
        if what is None:
            advice = "PyTorch refuses a file with a type that it does not know"
            yield Check(name, "note", f"{len(mine)} of an unknown type, {size}", advice)
        else:
            plural = what.replace(" of", "s of", 1) if " of" in what else f"{what}s"
            yield Check(name, "ok", f"{len(mine)} {what if len(mine) == 1 else plural}, {size}")
        passed_over = sum(artifact.type == kind for artifact in artifacts) - len(mine)
        if passed_over:
            value = f"{passed_over} more that PyTorch passes over when it loads the file"
            advice = "it was saved twice by one process; save once, after all is compiled"
            yield Check(name, "note", value, advice)


def _dangers(artifacts: Sequence[Artifact]) -> Iterator[Check]:
    odd = [artifact for artifact in artifacts if artifact.leads_out]
    if odd:
        value = f"{len(odd)} name(s) that PyTorch never gives, such as {brief(odd[0].key, 60)}"
        advice = "loading it may write outside of the cache dir: do not load it"
        yield Check("names", "bad", value, advice)


def _overwriting(overwritten: Mapping[str, Overwriting]) -> Iterator[Check]:
    if overwritten:
        counts = Counter(overwritten.values())
        value = f"{counts['new']} new, {counts['same']} as here, {counts['other']} would replace"
        yield Check("configurations", "note" if counts["other"] else "ok", f"{value} others")


def _hiding(hidden: Sequence[Hiding]) -> Iterator[Check]:
    for key, pin in {hiding.pin.key: hiding.pin for hiding in hidden}.items():
        mine = [hiding for hiding in hidden if hiding.pin.key == key]
        surely = [hiding for hiding in mine if hiding.verdict == "other"]
        count = f"{len(surely or mine)} graph{'s' * (len(surely or mine) != 1)}"
        value = f"{pin.id} ({brief(pin.label, 40)}) {'is' if surely else 'may be'} hidden"
        advice = "after loading it, run `rocm-tui pins --reconcile`; or save it again under the pin"
        if not surely:
            advice = "the text does not tell their choice; `rocm-tui verify` does, after loading"
        verdict: Verdict = "bad" if surely else "note"
        yield Check("pin", verdict, f"{value} by {count}: {mine[0].artifact.key[:12]}", advice)


def _bytes(count: int) -> str:
    """`512 B`, `175 kB`, `1.2 GB`."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            places = 1 if count < 100 * limit else 0
            return f"{count / limit:.{places}f} {unit}"
    return f"{count} B"
