"""Turning the hooks on. Nothing here costs or breaks anything where they are not asked for.

torch calls the entry points of the group `torch.backends` when it is imported, and an exception
there breaks `import torch` for everyone. Ours stands in a folder that only `rocm-tui run` puts on
`PYTHONPATH`, so that installing this package changes no environment. Without the variable
`ROCM_TUI_RUN` it returns at once. A program that does not use `run` may call `backend.activate()`.
"""

from __future__ import annotations

import os
import sys

RUN = "ROCM_TUI_RUN"
"""The variable: a JSON object, or the path of a file that holds one. Its `run` names the run."""

_SELECT_ALGORITHM = "torch._inductor.select_algorithm"

_active: bool | None = None


def autoload() -> None:
    """What torch calls. Never raises; a trouble is one line on stderr."""
    if RUN not in os.environ:
        return
    try:
        from backend.inductor.templates_wanted import wanted

        activate(templates=wanted())
    except Exception as error:  # the outermost boundary: `import torch` must go on
        _say_off(error)


def activate(templates: bool = False) -> bool:
    """Record this process's tunings and honour its pins; False on a torch that is not known.

    `templates` offers our kernels too, from then on; graphs that were compiled before stay as they
    are. Calling it again changes nothing else. It may be called before or after the first
    `torch.compile`.
    """
    active = _activate()
    if active and templates:
        from backend.inductor import templates_wanted
        from backend.inductor.import_hook import when_imported

        templates_wanted.separate_graphs()
        when_imported(_SELECT_ALGORITHM, _install_templates)
    return active


def _activate() -> bool:
    global _active
    if _active is not None:
        return _active
    import torch

    from backend.inductor import versions

    version = str(torch.__version__)
    _active = versions.known(version)
    if _active:
        from backend.inductor import torch_fresh
        from backend.inductor.guard import shielded
        from backend.inductor.home import home
        from backend.inductor.import_hook import when_imported

        watch = shielded(
            "temporary cache dirs are not noticed", lambda: torch_fresh.watch_fresh_caches(home)
        )
        when_imported(torch_fresh.UTILS, watch)
        when_imported(_SELECT_ALGORITHM, _install)
    else:
        _unhooked(
            f"torch {version} is not known to the hooks ({versions.range_text()} are); "
            "the program runs unhooked"
        )
    return _active


def _install() -> None:
    """Our selector takes its place as soon as the module that holds the stock one is there."""
    global _active
    try:
        from backend.inductor.selector import install
        from backend.inductor.templates_wanted import check_wanted

        install()
        if check_wanted():
            from backend.inductor.templates_on import install_checks

            install_checks()
    except Exception as error:  # the outermost boundary: the user's compile must go on
        _active = False
        why = f"{type(error).__name__}: {error}"
        try:
            _unhooked(f"the hooks do not fit this torch ({why}); the program runs unhooked")
        except Exception as other:
            _say_off(other)


def _install_templates() -> None:
    """Our selector gives way to the one that offers our kernels too."""
    if not _active:
        return
    try:
        from backend.inductor import templates_on

        templates_on.install()
    except Exception as error:  # the outermost boundary: the user's compile must go on
        from backend.inductor.saying import say

        say(f"the templates do not fit this torch: {type(error).__name__}: {error}")


def _unhooked(reason: str) -> None:
    """Say it, and leave a session that says it. Inductor's own compile workers keep quiet."""
    if "compile_worker" in "".join(sys.argv[:1]):
        return
    from backend.inductor.recording import record_unhooked
    from backend.inductor.saying import say

    say(reason)
    record_unhooked(reason)


def _say_off(error: Exception) -> None:
    try:
        print(f"rocm-tui: the hooks are off: {error!r}", file=sys.stderr)  # noqa: T201
    except Exception:
        return  # stderr is closed or broken; there is nobody to tell
