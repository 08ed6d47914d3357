"""rocm-tui: watch Inductor's autotuning, pin a choice, prove that it is used."""

from __future__ import annotations

import os

__version__ = "0.1.0"

_BACKEND = os.path.join(os.path.dirname(os.path.dirname(__file__)), "backend")  # noqa: PTH118, PTH120
"""The package beside this one. torch imports this module wherever we are installed, so that it
loads nothing else."""


def activate(templates: bool = False, version: str | None = None) -> bool:
    """Record this program's tunings, honour its pins, and with `templates` offer our kernels.

    Call it before or after the first `torch.compile`; earlier graphs stay as they are. With
    `version` our kernels are offered only if `kernels_version` returns the same. Return whether
    everything is on. Otherwise the program runs as stock, after one line on stderr; nothing is
    raised.
    """
    from rocm_tui.hook_path.rocm_tui_autoload import with_backend  # programs without us skip it

    return with_backend(
        lambda: _BACKEND, lambda activation: activation.activate(templates, version)
    )


def kernels_version() -> str:
    """Return the version of our kernels: a hash of all sources that decide what they are."""
    from backend.inductor.hooks import environment  # heavy, see above

    return environment.kernels_version()


def _autoload() -> None:
    """Offer our kernels if ROCM_TUI_TEMPLATES wants them. torch calls this entry point at the end
    of `import torch`."""
    wanted = os.environ.get("ROCM_TUI_TEMPLATES", "")
    if wanted not in ("", "0"):
        activate(templates=True)
