"""A person's own program as the proof of pins: it runs as it would by itself, and afterwards the
code that it compiled, or found compiled, says which choices it calls."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.pin import Pin
from rocm_tui import environment as hook_env
from rocm_tui.actions.pick import load_model
from rocm_tui.actions.verify import Asked
from rocm_tui.actions.witness import Finding, TraceFolder, Witness
from rocm_tui.errors import RocmTuiError
from rocm_tui.ingest.formats.torch_trace import TraceCode
from rocm_tui.launch.child import Child


@dataclass(frozen=True, slots=True)
class ProgramProof:
    """What the processes of a program compiled, pin by pin.

    `status` is the program's exit code, or minus the signal that ended it. Of `graphs` compiled
    graphs `unread` are of a form that is not understood; `damaged` more were cut off. `full` tells
    that the trace reached its limit, so that not all was kept.
    """

    argv: Sequence[str]
    status: int
    processes: int
    graphs: int
    unread: int
    damaged: int
    full: bool
    findings: Sequence[Finding]

    @property
    def complete(self) -> bool:
        """Whether all code was heard of."""
        return not (self.full or self.damaged)

    @property
    def proved(self) -> bool:
        """Whether the program ended well and calls every pinned choice."""
        called = all(finding.answer == "called" for finding in self.findings)
        return self.status == 0 and self.complete and called


def prove_by_program(
    argv: Sequence[str], pins: Sequence[Pin], layout: Layout, cache_dir: Path | None
) -> ProgramProof:
    """Run a program, on `cache_dir` if a person named one; then read what it compiled.

    Raises RocmTuiError if it cannot be run.
    """
    env = hook_env.unhooked(os.environ)
    if cache_dir is not None:
        env["TORCHINDUCTOR_CACHE_DIR"] = str(layout.root)
    with TraceFolder(env) as folder:
        try:
            status = Child(look=folder.look).run(argv, {**env, **folder.env})
        except OSError as error:
            raise RocmTuiError(f"{argv[0]}: cannot be run: {error.strerror}") from error
        return _read_trace(folder, argv, status, Witness(pins, _known_choices(layout)))


def _read_trace(
    folder: TraceFolder, argv: Sequence[str], status: int, witness: Witness
) -> ProgramProof:
    files, damaged = folder.files(), 0
    for path, most in files:
        reader = TraceCode()
        with path.open("rb") as stream:
            for data in reader.read(stream, most):
                witness.hear(data)
        damaged += reader.damaged
    return ProgramProof(
        argv=argv,
        status=status,
        processes=len(files),
        graphs=witness.graphs,
        unread=witness.unread,
        damaged=damaged,
        full=folder.full,
        findings=witness.findings,
    )


def _known_choices(layout: Layout) -> Mapping[object, Mapping[str, Choice]]:
    """What is known of the choices of each key: an older row says less of them."""
    choices: dict[object, dict[str, Choice]] = {}
    for row in load_model(layout).rows():
        known = choices.setdefault(row.tuning.key, {})
        for choice in row.tuning.choices:
            if choice.hash and (choice.config or choice.hash not in known):
                known[choice.hash] = choice
    return choices


def with_threads(pins: Sequence[Pin], layout: Layout) -> list[Asked]:
    """Pins with as many threads as the process had that tuned what is pinned, where a session
    tells."""
    threads = {
        (row.tuning.key, choice.hash): row.tuning.threads
        for row in load_model(layout).rows()
        for choice in row.tuning.choices
    }
    return [Asked(pin, threads.get((pin.key, pin.hash))) for pin in pins]
