"""The entry point that every `import torch` calls: free when not asked for, harmless always."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from backend.inductor.torch import versions
from backend.model.events import ActivityChanged, HooksOff, SessionEnded, SessionStarted
from rocm_tui import environment as hook_env
from tests.support.hooked import launch, launch_program, sessions
from tests.support.places import ROOT
from tests.support.torch_models import child_env

MODULES = "import sys, torch; print(sorted(m for m in sys.modules if m.split('.')[0] == 'backend'))"
LATE = "import sys, torch; print('torch._inductor.select_algorithm' in sys.modules)"


def python(source: str, cache: Path, env: Mapping[str, str] | None = None, *flags: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *flags, "-c", source],
        env=child_env(cache, env),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


VALUES = ["", "{", "[]", "{}", "/no/such/file", "\x7f", '{"backend": 1}']

LOADING = f"""
import os
os.dup2(1, 2)
for value in {VALUES!r}:
    if (child := os.fork()) == 0:
        os.environ[{hook_env.RUN!r}] = value
        sys.path.insert(0, {str(hook_env.HOOKS)!r})
        torch._import_device_backends()  # what `import torch` ends with
        print(torch.ones(1).item(), flush=True)
        os._exit(0)
    print("status", os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture(scope="module")
def unasked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a process prints that was started without the variable: the modules of ours that it
    has, and what forks of it say that load torch's backends with it."""
    folder = tmp_path_factory.mktemp("unasked")
    said = python(MODULES + "\nsys.stdout.flush()" + LOADING, folder)
    assert not (folder / "rocm_tui").exists()
    return said


@pytest.mark.torch
def test_without_the_variable_nothing_happens(unasked: str) -> None:
    """That we are installed is nothing that a program could notice."""
    assert unasked.splitlines()[0] == "[]"


@pytest.mark.torch
@pytest.mark.parametrize("number", range(len(VALUES)))
def test_autoload_never_raises(unasked: str, number: int) -> None:
    """Whatever the variable holds, loading goes on; at most one line tells."""
    *told, rest = unasked.partition("\n")[2].split("status 0\n")
    assert len(told) == len(VALUES) and rest == ""
    said = told[number].splitlines()
    assert said.count("1.0") == 1 and len(said) <= 2
    assert not any("Traceback" in line for line in said)


@pytest.mark.torch
@pytest.mark.parametrize("first", ["select_algorithm", "compile_fx", "graph", "choices"])
def test_all_hooks_are_on_whatever_a_program_imports_first(first: str, tmp_path: Path) -> None:
    """Our modules load parts of Inductor, which fires the next of the hooks in their midst."""
    source = f"import torch._inductor.{first}, torch._inductor.compile_fx as of_graphs"
    named = "print(of_graphs._compile_fx_inner.__closure__ is not None)"
    said = python(f"{source}\n{named}", tmp_path, hook_env.hooked({}, "a-run"))
    assert said == "True\n"


@pytest.mark.torch
def test_with_it_importing_torch_still_imports_no_inductor(tmp_path: Path) -> None:
    env = hook_env.hooked({}, "a-run")
    both = "import backend; print(backend.activate(), backend.activate())"
    assert python(f"{LATE}\n{both}", tmp_path, env) == "False\nTrue True\n"
    ((started, running, ended),) = sessions(tmp_path)
    assert isinstance(started, SessionStarted) and isinstance(ended, SessionEnded)
    assert started.session.torch.startswith("2.") and started.session.device is None
    assert isinstance(running, ActivityChanged) and running.activity == "running"


@pytest.mark.torch
def test_a_package_that_is_broken_does_not_break_torch(tmp_path: Path) -> None:
    """Our own package fails to import: the program must not notice."""
    broken = tmp_path / "broken" / "backend"
    (broken / "inductor" / "hooks").mkdir(parents=True)
    (broken / "__init__.py").write_text("")
    (broken / "inductor" / "hooks" / "activation.py").write_text("raise OSError('gone')")
    env = hook_env.hooked({}, "a-run")
    env[hook_env.RUN] = json.dumps({"run": "a-run", "backend": str(broken)})
    hide = "import sys; sys.path_importer_cache.clear()\n"
    said = python(
        hide + "import rocm_tui_autoload as a; a._found = lambda: None; "
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]; "
        "a.autoload(); print('on')",
        tmp_path,
        env,
        "-P" if sys.version_info >= (3, 11) else "-s",
    )
    assert "the hooks are off: OSError: gone" in said and "on\n" in said


@pytest.mark.torch
def test_an_unknown_torch_runs_unhooked_and_says_so(tmp_path: Path) -> None:
    program = """
        import sys, importlib.metadata as metadata
        entries = metadata.entry_points
        def later(**kwargs):
            if kwargs.get("group") == "torch.backends":
                sys.modules["torch"].__version__ = "3.1.0"
            return entries(**kwargs)
        metadata.entry_points = later
        import torch, torch._inductor.select_algorithm as select
        selector = select.get_algorithm_selector_cache()
        print(type(selector).__module__)
    """
    done = launch_program(program, tmp_path / "cache", "--quiet")
    assert done.stdout == "torch._inductor.select_algorithm\n"
    line, summary, *_ = done.stderr.splitlines()
    why = "torch 3.1.0 is not supported by the hooks (2.8 to 2.15 are)"
    assert line == f"rocm-tui: {why}; the program runs unhooked"
    assert "nothing was recorded: torch 3.1.0" in summary
    (events,) = sessions(tmp_path / "cache")
    header, off = events
    assert isinstance(header, SessionStarted) and header.session.torch == "3.1.0"
    assert isinstance(off, HooksOff) and "is not supported" in off.reason
    assert not any(isinstance(event, SessionEnded) for event in events)


@pytest.mark.torch
def test_torch_without_what_we_need_runs_unhooked(tmp_path: Path) -> None:
    program = """
        import torch, torch._inductor.codecache as codecache
        Cache = codecache.PersistentCache
        import torch._inductor.select_algorithm as select
    """
    breaking = program.replace(
        "import torch._inductor.select_algorithm as select",
        "import sys; sys.modules['backend.inductor.hooks.selector'] = None\n"
        "        import torch._inductor.select_algorithm as select\n"
        "        print(type(select.get_algorithm_selector_cache()).__name__)",
    )
    done = launch_program(breaking, tmp_path / "cache")
    assert done.stdout == "AlgorithmSelectorCache\n"
    assert "do not fit this torch" in done.stderr and "Traceback" not in done.stderr


GRAPH_FIRST = """
import torch._inductor.graph, torch._inductor.compile_fx
from torch._inductor import select_algorithm
print(type(select_algorithm._ALGORITHM_SELECTOR_CACHE).__module__)
"""


@pytest.mark.torch
def test_a_program_may_import_the_module_of_graphs_first(tmp_path: Path) -> None:
    """From its midst that of the selector is imported, where our hooks begin."""
    done = launch_program(GRAPH_FIRST, tmp_path / "cache")
    assert done.stdout.split() == ["backend.inductor.hooks.selector"]
    assert "do not fit" not in done.stderr


@pytest.mark.torch
def test_a_program_with_a_backend_of_its_own_keeps_it(tmp_path: Path) -> None:
    folder = tmp_path / "program"
    (folder / "backend").mkdir(parents=True)
    (folder / "backend" / "__init__.py").write_text("MINE = 1")
    (folder / "main.py").write_text("import torch, backend; print(backend.MINE)")
    program = [sys.executable, "-W", "ignore", str(folder / "main.py")]
    done = launch(program, tmp_path / "cache")
    assert done.stdout == "1\n", done.stderr
    assert done.stderr.count("\n") == 1 and "hides ours; the program runs unhooked" in done.stderr


def test_a_backend_that_comes_after_torch_is_hidden_and_named(tmp_path: Path) -> None:
    package = tmp_path / "src" / "backend"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "own.py").touch()
    source = (
        f"import sys; sys.path[:0] = [{str(hook_env.HOOKS)!r}]\n"
        f"import rocm_tui_autoload; rocm_tui_autoload.provide({str(ROOT / 'backend')!r})\n"
        f"import backend; sys.path.append({str(tmp_path / 'src')!r}); import backend.own"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source], capture_output=True, text=True, cwd=tmp_path
    )
    assert "No module named 'backend.own'" in done.stderr
    said = f"rocm-tui: {package / '__init__.py'} came too late, and ours hides it: put it on"
    assert done.stderr.startswith(said)


def test_known_versions() -> None:
    assert [
        v for v in ("2.8.0+rocm6.3", "2.13.0+cpu", "2.15.0") if not versions.is_supported(v)
    ] == []
    assert [v for v in ("2.7.1", "2.16.0a0", "3.0", "", "dev") if versions.is_supported(v)] == []


OPTIONS = """
import threading, torch, torch._inductor.config as config
config.epilogue_fusion = True
config.max_fusion_size = 3
def model(a):
    return torch.relu(a) + 1
def compiled():
    torch.compile(model, options={"cpp.simdlen": 1})(torch.ones(4))
    print(config.epilogue_fusion, config.max_fusion_size, config.cpp.simdlen)
compiled()
thread = threading.Thread(target=compiled)
thread.start()
thread.join()
"""


@pytest.mark.torch
def test_options_of_a_run_hold_in_all_threads_whatever_the_program_sets(tmp_path: Path) -> None:
    """Options that this torch refuses are named in a line each."""
    texts = ("epilogue_fusion=False", "max_fusion_size=default", "no_such=1", "cpp.cxx=/bin/sh")
    flags = [word for text in texts for word in ("--option", text)]
    done = launch_program(OPTIONS, tmp_path / "cache", "--quiet", *flags)
    assert done.stdout == "False 64 None\n" * 2
    said = [line for line in done.stderr.splitlines() if " is not set: " in line]
    assert [line.split()[1] for line in said] == ["no_such=1", "cpp.cxx=/bin/sh"]
