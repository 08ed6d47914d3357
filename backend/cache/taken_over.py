"""Times that one device of a box measured, for the other devices of its kind:

    for_devices(timings, variants, devices, known) -> {choice hash: ms}
    write_modules(variants, choices, devices) -> None

Stock PyTorch on another device finds a time for each of its choices then, benchmarks nothing and
takes the same kernel. Call `write_modules` first, since only the module of a choice says which
device its hash is of, and write the result and the measured times in one go (`journal.Tuned`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from backend.cache.variants import ChoiceVariants
from backend.disk import safe

Timings = Mapping[str, float]
"""Milliseconds by choice hash, infinite for a choice that failed."""


def for_devices(
    timings: Timings,
    variants: ChoiceVariants,
    devices: Iterable[int],
    known: Timings = MappingProxyType({}),
) -> dict[str, float]:
    """Return the times to write for `devices`, by the hashes that the choices of `timings` have
    there. Failed choices are carried over too; choices without a device in their hash are not.

    `known` are the times of the problem in the cache so far. A time that another device measured
    itself is kept. A time that equals what the measuring device had before was taken over from it,
    and is replaced.
    """
    taken: dict[str, float] = {}
    for index in devices:
        for choice, ms in timings.items():
            there = variants.on(choice, index)
            if there in timings:
                continue
            if there not in known or known[there] == known.get(choice):
                taken[there] = ms
    return taken


def write_modules(
    variants: ChoiceVariants, choices: Collection[str], devices: Iterable[int]
) -> None:
    """Write the modules of `choices` for `devices` below the cache dir, as Inductor writes them on
    these devices: same names, same texts, beside a folder for what Triton compiles there. Files
    that exist are left alone. Raises UnsafePath and NotWritable."""
    root = variants.root
    modules = [module for choice in choices if (module := variants.module(choice)) is not None]
    own = [module for module in modules if module.index is not None]
    for index in devices if own else ():
        safe.make_folder(root, root / "triton" / str(index))
        for module in own:
            key = module.key(index)
            path = root / key[1:3] / f"{key}.py"
            if path.exists():
                continue
            safe.make_folder(root, path.parent)
            temporary = path.with_name(f".{key}.{os.getpid()}.tmp")
            safe.write_temporary(temporary, module.text_on(index), like=path, sync=False)
            try:
                temporary.replace(path)
            except OSError as error:
                safe.remove(temporary)
                raise safe.not_writable(path, error) from error
