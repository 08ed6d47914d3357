"""What every job that compiles an op again has to set, and how it reads that from its arguments."""

from __future__ import annotations

import torch

from backend.inductor.torch import tuning as torch_api
from backend.records import TensorSpec, TuningKey
from backend.store.errors import InputsKeyInvalid
from backend.store.inputs_key import parse_inputs_key
from backend.worker.protocol import Arguments, BadJob, text_argument
from backend.worker.rebuild import NotRebuildable

_THREADS = torch.get_num_threads()
"""What a program in this environment has by itself."""


def key_argument(arguments: Arguments) -> TuningKey:
    """The texts `op`, `inputs` and `precision`. Raises BadJob."""
    return TuningKey(*(text_argument(arguments, name) for name in ("op", "inputs", "precision")))


def mode_argument(arguments: Arguments) -> int:
    """`mode`, an index of `torch_api.MODES`; the first one if left out. Raises BadJob."""
    mode = arguments.get("mode", 0)
    if not isinstance(mode, int) or not 0 <= mode < len(torch_api.MODES):
        raise BadJob(f"the job's `mode` goes from 0 to {len(torch_api.MODES) - 1}")
    return mode


def broken_argument(arguments: Arguments) -> dict[str, str]:
    """`broken`: choices by hash that ended an earlier worker, with the reasons; optional. Raises
    BadJob."""
    broken = arguments.get("broken", {})
    if not (isinstance(broken, dict) and all(isinstance(why, str) for why in broken.values())):
        raise BadJob("the job's `broken` has a text for each hash")
    return broken


def set_threads(arguments: Arguments) -> None:
    """Compute with as many threads as `threads` says, else with as many as the worker began with,
    whatever the last job set: on a CPU the hash of a C++ choice depends on their number. Raises
    BadJob."""
    threads = arguments.get("threads")
    if threads is None:
        threads = _THREADS
    if type(threads) is not int or not 0 < threads < 1 << 16:
        raise BadJob("the job's `threads` is a whole number above 0")
    torch.set_num_threads(threads)


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
    found, written = (
        f"ends in {text}" if text else "ends with the list" for text in (suffix, usual)
    )
    raise NotRebuildable(
        f"its inputs key {found}, and one of this torch ({torch.__version__}) {written}: tuned by "
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
