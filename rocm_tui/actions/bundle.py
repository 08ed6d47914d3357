"""A warm service in one file: packed with all that is known of where it was made; taken in after it
was checked against this box."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from backend.cache.autotune import cache_paths, read_caches
from backend.disk.layout import Layout
from backend.errors import BundleInvalid
from backend.pins.drift import default_who
from backend.pins.state import PinStatus
from backend.sharing.bundle.archive import Arrived
from backend.sharing.bundle.arrive import Taken, is_unfinished, take
from backend.sharing.bundle.examine import Examined, examine
from backend.sharing.bundle.fit import Misfit, misfits, seen_from, unchecked
from backend.sharing.bundle.manifest import Box, cpu_here, driver_here
from backend.sharing.bundle.pack import Packed, pack
from backend.sharing.bundle.parts import ELSEWHERE, PARTS, part_of, triton_elsewhere
from backend.sharing.plan import Difference, differences
from backend.sharing.share import Machine, Share, SharedPin, machine_here, machine_of
from backend.tables.keys import is_table
from backend.wire.jobs import Environment, EnvironmentJob
from rocm_tui.actions.pick import load_model
from rocm_tui.actions.pin import pin_states
from rocm_tui.actions.share import file_to_write, pins_to_share
from rocm_tui.environment import find_python
from rocm_tui.errors import UsageError
from rocm_tui.jobs.worker import run_job


def parts_of(wanted: str | None, without: str | None) -> frozenset[str]:
    """The parts that two lists of words ask for. Raises UsageError for a word that is none."""
    taken = _words(wanted) if wanted is not None else frozenset(PARTS)
    return taken - (_words(without) if without is not None else frozenset())


def _words(text: str) -> frozenset[str]:
    words = frozenset(word.strip() for word in text.split(",") if word.strip())
    if unknown := sorted(words - PARTS.keys()):
        raise UsageError(f"{unknown[0]!r} is no part of a bundle; parts are {', '.join(PARTS)}")
    return words


# Pack.


def pack_bundle(path: Path, layout: Layout, python: str | None, chosen: Collection[str]) -> Packed:
    """Write what is in the cache dir to the bundle `path`. Raises UsageError, NoTorchPython,
    JobError and StoreErrors."""
    real = file_to_write(path)
    pins = pins_to_share(layout, (), (), python) if "pins" in chosen else []
    pins = [pin for pin in pins if not is_table(pin.op)]  # they lie in files that are not in it
    box = _made_here(layout, box_here(layout, python))
    share = Share(
        tuple(_with_host(pin, box.machine.host) for pin in pins),
        default_who(),
        max((pin.when for pin in pins), default=0.0),
    )
    return pack(layout, real, share, box, default_who(), chosen)


def _with_host(pin: SharedPin, host: str | None) -> SharedPin:
    """Of a pin that no session tells of, the host that it is bundled on."""
    return replace(pin, machine=replace(pin.machine, host=pin.machine.host or host))


def box_here(layout: Layout, python: str | None) -> Box:
    """What the user's torch and this machine say of themselves."""
    job = EnvironmentJob(build=True)
    told: Environment = run_job(job, python=find_python(python), cache_dir=layout.root)
    cpu, flags = cpu_here()
    machine = machine_here(asdict(told), _host())
    return Box(machine, told.torch_key, told.python, cpu, flags, driver_here())


def _host() -> str:
    return "".join(c for c in socket.gethostname() if c.isprintable()) or "?"


def _made_here(layout: Layout, here: Box) -> Box:
    """`here`, or the machine that sessions tell of, where the cache files are of another system."""
    systems = [path.name for path in cache_paths(layout)]
    if not systems or here.machine.system_hash in systems:
        return here
    latest = max(cache_paths(layout), key=lambda path: path.stat().st_mtime).name
    headers = {file.system_hash: file.system for file in read_caches(layout)[0]}
    sessions = load_model(layout).sessions.values()
    return Box(machine_of(latest, headers.get(latest, {}), sessions, None))


# Take in.


@dataclass(frozen=True, slots=True)
class BundlePlan:
    """What taking a bundle in would do. `chosen` are the parts that are asked for and in it;
    `differences` are told by the machine that they were made on."""

    path: Path
    found: Examined
    here: Box
    chosen: frozenset[str]
    misfits: tuple[Misfit, ...]
    differences: Mapping[Machine, Sequence[Difference]]
    unchecked: tuple[str, ...]
    unfinished: bool

    @property
    def fits(self) -> bool:
        """Whether nothing that is asked for is refused."""
        return not self.misfits and self.found.pins_fit

    @property
    def changes(self) -> bool:
        """Whether anything of it is not here yet."""
        new = {name for name, state in self.found.states.items() if state == "new"}
        tunings = any(timings.new or timings.wider for timings in self.found.timings)
        pins = any(step.changes for step in self.found.steps)
        return self.unfinished or tunings or pins or bool(new - self.found.left_out())

    @property
    def programs(self) -> list[str]:
        """Those of the parts that are run once they are here."""
        return [name for name in PARTS if name in self.chosen and PARTS[name].program]


def plan_unbundle(
    path: Path,
    layout: Layout,
    python: str | None,
    asked: Collection[str],
    sha256: str | None,
    blind: bool,
) -> BundlePlan:
    """Check a bundle against this box; nothing is changed. `blind`: this box has not the device of
    the service. Raises BundleInvalid, also where it has not the digest `sha256`, ShareInvalid,
    NoTorchPython, JobError and CacheUnreadable."""
    with Arrived(path) as bundle:
        manifest = bundle.manifest
    here = box_here(layout, python)
    if blind:
        here = seen_from(manifest.box, here)
    elsewhere = triton_elsewhere(layout)
    found = examine(path, layout, here.machine, asked, elsewhere)
    if sha256 is not None and found.sha256 != sha256:
        raise BundleInvalid(
            f"{path} has the SHA-256 {found.sha256}, not the one that you gave; nothing was changed"
        )
    chosen = frozenset(
        part.name
        for member in manifest.members
        if (part := part_of(member.name)) and part.name in asked
    )
    against = [misfit for misfit in misfits(manifest, here, blind) if misfit.part in chosen]
    if "nowhere" in found.states.values():
        why = f"Triton's cache lay elsewhere: set {ELSEWHERE} to where it shall be"
        against.append(Misfit("triton", why))
    machines = dict.fromkeys([manifest.box.machine, *(p.machine for p in found.share.pins)])
    return BundlePlan(
        path,
        found,
        here,
        chosen,
        tuple(against),
        {there: differences(there, here.machine) for there in machines},
        tuple(unchecked(manifest.box, here, blind)),
        is_unfinished(layout),
    )


def apply_unbundle(plan: BundlePlan, layout: Layout) -> tuple[Taken, list[PinStatus]]:
    """Take in what the plan says, and how the pins are then. Raises BundleInvalid, StoreErrors."""
    machine = plan.here.machine
    taken = take(plan.path, plan.found, layout, machine, plan.chosen, triton_elsewhere(layout))
    return taken, pin_states(layout)
