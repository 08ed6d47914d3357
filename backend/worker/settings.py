"""What every job that compiles an op again has to set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from backend.cache.inputs_key import parse_inputs_key
from backend.errors import InputsKeyInvalid
from backend.inductor.hooks import offer as rocm_offer
from backend.inductor.hooks import templates as templates_on
from backend.inductor.torch import tuning as torch_api
from backend.model.problem import TensorSpec, TuningKey
from backend.wire.jobs import BadJob
from backend.worker.rebuild import NotRebuildable

_THREADS = torch.get_num_threads()
"""What a program in this environment has by itself."""


def settings_of(mode: int) -> Mapping[str, bool]:
    """Inductor's settings in the mode with this index. Raises BadJob."""
    if not 0 <= mode < len(torch_api.MODES):
        raise BadJob(f"the job's `mode` goes from 0 to {len(torch_api.MODES) - 1}")
    return torch_api.MODES[mode]


def set_threads(threads: int | None) -> None:
    """Compute with so many threads, else with as many as the worker began with, whatever the last
    job set: on a CPU the hash of a C++ choice depends on their number."""
    torch.set_num_threads(_THREADS if threads is None else threads)


def specs_of(key: TuningKey) -> tuple[TensorSpec, ...]:
    """The inputs to rebuild. Raises NotRebuildable."""
    try:
        parsed = parse_inputs_key(key.inputs)
    except InputsKeyInvalid as error:
        raise NotRebuildable(f"cannot rebuild it: {error}") from error
    _check_suffix(parsed.suffix, torch_api.key_suffix("cpu"))
    return parsed.specs


def _check_suffix(suffix: str, usual: str) -> None:
    """Raises NotRebuildable unless this torch may write such a key; `usual` is what it writes on a
    CPU. On a GPU the same name may have another value, which depends on the mode."""
    name = usual.partition("=")[0]
    if suffix == usual or (name and suffix.startswith(f"{name}=")):
        return
    if suffix.startswith("_"):
        raise NotRebuildable(f"its inputs key ends in {suffix}, which is not rebuilt")
    given, written = (
        f"ends in {text}" if text else "ends with the list" for text in (suffix, usual)
    )
    raise NotRebuildable(
        f"its inputs key {given}, and one of this torch ({torch.__version__}) {written}: tuned by "
        "another version"
    )


def set_precision(key: TuningKey) -> None:
    """Let float32 products have the precision of `key`. Raises NotRebuildable.

    A precision that was set is another than the same one by default, as far as the key of a
    compiled graph is concerned, so nothing is set in vain.
    """
    if torch_api.precision() == key.precision:
        return
    try:
        torch_api.set_precision(key.precision)
    except (RuntimeError, ValueError) as error:
        raise NotRebuildable(f"this torch cannot set the precision {key.precision}") from error


def ours(name: str, choices: Any, input_nodes: Any, layout: Any) -> list[Any]:
    """The choices of our templates; the device's scheduling then knows their kernels."""
    templates_on.schedule()
    return rocm_offer.offer(name, choices, input_nodes, layout)
