"""Turning the hooks on. Nothing here costs or breaks anything where they are not requested.

torch calls the entry points of the group `torch.backends` when it is imported, and an exception
there breaks `import torch` for everyone. One of ours is in a folder that only `rocm-tui run` puts
on `PYTHONPATH`; without the variable `ROCM_TUI_RUN` it returns at once. The other belongs to the
installed package, and returns at once without `ROCM_TUI_TEMPLATES`. A program that uses neither
may call `rocm_tui.activate()`.

This is the top of the hooks: it imports the others, and none of them imports it. Modules that load
Inductor, or write logs, are imported in functions, for processes that never compile.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from backend.inductor.guard import quietly, say, say_once, shielded
from backend.inductor.hooks import environment
from backend.inductor.torch import versions

_active: bool | None = None

GRAPHS_OFF = "the hooks of compiled graphs are off"
ACTIVITY_LOST = "what the process does is not recorded"
TRITON_LOST = "tunings of @triton.autotune are not recorded"
OPTIONS_LOST = "the options of the run are not set"
KERNELS_OFF = "the hooks of pointwise, reduction and other Triton kernels are off"


def autoload() -> None:
    """The entry point that torch calls. Never raises; a failure is one line on stderr."""
    if environment.RUN not in os.environ:
        return
    try:
        if environment.LAUNCH_LOG in os.environ:
            lost = environment.LAUNCHES_LOST
            when_imported(versions.TRITON_AUTOTUNER, shielded(lost, _log_triton_launches))
            when_imported(versions.AUTOTUNER, shielded(lost, _log_inductor_launches))
            if not environment.run_info().get("run"):  # the run only observes, without recording
                return
        if environment.OPTIONS in os.environ:
            when_imported(versions.COMPILER, shielded(OPTIONS_LOST, _set_options))
        if not activate(templates=environment.is_on(environment.TEMPLATES)):
            activate()  # without kernels of another version
    except Exception as error:  # the outermost boundary: `import torch` must go on
        _say_off(error)


def activate(templates: bool = False, version: str | None = None) -> bool:
    """Record this process's tunings and honour its pins; False on an unsupported torch.

    `templates` also offers our kernels, from then on; graphs compiled earlier stay as they are. If
    their version is not `version`, or that of the environment, nothing is turned on. Calling it
    again changes nothing else. It may be called before or after the first `torch.compile`.
    """
    wanted = (version or environment.wanted_version()) if templates else None
    if wanted is not None and wanted != (installed := environment.kernels_version()):
        say_once(f"kernels {wanted} are wanted, and {installed} are installed: none are offered")
        return False
    active = _activate()
    if active and templates:
        environment.separate_graphs()
        when_imported(versions.SELECTOR, lambda: _when_whole(_install_templates))
    return active


def _activate() -> bool:
    global _active
    if _active is not None:
        return _active
    import torch  # heavy: whoever calls `activate` may not have it yet

    if _active is not None:  # torch called us during its import
        return _active
    version = str(torch.__version__)
    _active = versions.is_supported(version)
    if _active:
        with quietly(ACTIVITY_LOST):
            _record_activity()
        watch = shielded(
            "temporary cache dirs are not noticed",
            lambda: versions.watch_fresh_caches(environment.home),
        )
        when_imported(versions.UTILS, watch)
        when_imported(versions.SELECTOR, lambda: _when_whole(_install))
        when_imported(versions.AUTOTUNER, shielded(KERNELS_OFF, _install_kernels))
        when_imported(versions.TRITON_AUTOTUNER, shielded(TRITON_LOST, _record_triton))
        if environment.shares_wanted():
            when_imported(versions.COMPILER, shielded(GRAPHS_OFF, _install_graphs))
    else:
        _unhooked(
            f"torch {version} is not supported by the hooks ({versions.range_text()} are); "
            "the program runs unhooked"
        )
    return _active


def _set_options() -> None:
    from backend.inductor.torch import captured  # heavy: Inductor

    for name, text in environment.options().items():
        try:
            captured.set_option(name, text)
        except ValueError as error:
            if not environment.is_compile_worker():
                say(f"{name}={text} is not set: {error}")


def _log_triton_launches() -> None:
    from backend.inductor.hooks import triton_autotune  # heavy: what logs are made of

    folder = Path(os.environ[environment.LAUNCH_LOG])
    triton_autotune.install_launch_log(sys.modules[versions.TRITON_AUTOTUNER], folder)


def _log_inductor_launches() -> None:
    from backend.inductor.hooks import inductor_kernels  # heavy, see above

    inductor_kernels.install_launch_log(Path(os.environ[environment.LAUNCH_LOG]))


def _record_activity() -> None:
    """Begin the log now if the process is the program of a run itself, or a rank; the log of
    another process begins with its first compile."""
    if environment.is_compile_worker():
        return
    if environment.is_program():
        from backend.inductor.hooks import recording  # heavy: what logs are made of

        recording.record_import()
    when_imported(versions.CALLBACKS, shielded(ACTIVITY_LOST, _watch_compiles))


def _watch_compiles() -> None:
    from backend.inductor.hooks import recording  # heavy, see above

    recording.watch_compiles()


def _when_whole(action: Callable[[], None]) -> None:
    """Call `action`, which imports the rest of Inductor, once that can be imported: a program that
    imports the module of graphs first triggers the selector's import halfway, and can compile
    nothing before it has the compiler's too."""
    graph = sys.modules.get(versions.GRAPH)
    if graph is not None and _initializing(graph) and versions.COMPILER not in sys.modules:
        when_imported(versions.COMPILER, action)
    else:
        action()


def _install() -> None:
    """Install our selector as soon as the stock one's module is imported."""
    global _active
    try:
        from backend.inductor.hooks import selector  # heavy: Inductor

        selector.install()
        if environment.is_on(environment.CHECK):
            from backend.inductor.hooks import templates  # heavy: all of our choices

            templates.install_checks()
    except Exception as error:  # the outermost boundary: the user's compile must go on
        _active = False
        why = f"{type(error).__name__}: {error}"
        try:
            _unhooked(f"the hooks do not fit this torch ({why}); the program runs unhooked")
        except Exception as other:
            _say_off(other)


def _install_graphs() -> None:
    """Record compiled graphs as soon as the module that compiles them is imported."""
    if _active:
        from backend.inductor.hooks import graphs, recording  # heavy: Inductor

        graphs.install(recording.recorder())


def _install_kernels() -> None:
    """Record and pin the Triton kernels that Inductor launches, as soon as their tuner is imported;
    also in processes that only compile."""
    if _active:
        from backend.inductor.hooks import inductor_kernels, recording  # heavy: what logs are of

        inductor_kernels.install(recording.recorder())


def _record_triton() -> None:
    if _active and not environment.is_compile_worker():
        from backend.inductor.hooks import recording, triton_autotune  # heavy, see above

        triton_autotune.install(sys.modules[versions.TRITON_AUTOTUNER], recording.recorder())


def _install_templates() -> None:
    """Replace our selector by the one that also offers our kernels."""
    if not _active:
        return
    try:
        from backend.inductor.hooks import templates  # heavy: all of our choices

        templates.install()
    except Exception as error:  # the outermost boundary: the user's compile must go on
        say(f"the templates do not fit this torch: {type(error).__name__}: {error}")


def _unhooked(reason: str) -> None:
    """Report the reason on stderr and in a session. Inductor's own compile workers stay quiet."""
    if environment.is_compile_worker():
        return
    from backend.inductor.hooks.recording import record_unhooked  # heavy: what logs are made of

    say(reason)
    record_unhooked(reason)


def _say_off(error: Exception) -> None:
    try:
        print(f"rocm-tui: the hooks are off: {error!r}", file=sys.stderr)  # noqa: T201
    except Exception:
        return  # stderr is closed or broken


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call `action` once the module `name` has been executed: now, or after its import, which is
    not triggered here. Importing `torch._inductor` takes seconds, and most programs that import
    torch never compile."""
    module = sys.modules.get(name)
    if module is not None and not _initializing(module):
        action()
        return
    sys.meta_path.insert(0, _Finder(name, action))


def _initializing(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module with the other finders, and gives it a loader that calls the action."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action
        self._done = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name or self._done:
            return None
        self._done = True  # it stays there: another thread's import would skip the next finder
        with quietly(f"the hooks are off: {fullname} cannot be watched"):
            spec = self._found(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, self._action)
                return spec
        return None  # the next finders search as usual

    def _found(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        # `importlib.util.find_spec` would import the parent once more. Python holds the lock of all
        # imports while it asks a finder, so it would wait here for ever for a thread which imports
        # the parent and needs that lock.
        for finder in sys.meta_path:
            if finder is not self and (find := getattr(finder, "find_spec", None)) is not None:
                spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target)
                if spec is not None:
                    return spec
        return None


class _Loader(importlib.abc.Loader):
    """Runs the module's own loader, then the action."""

    def __init__(self, loader: importlib.abc.Loader, action: Callable[[], None]) -> None:
        self._loader = loader
        self._action = action

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)  # get_source and others, for tracebacks and inspect

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        with quietly(f"the hooks are off: {module.__name__} cannot be hooked"):
            self._action()
