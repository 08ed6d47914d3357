"""What `import torch` turns on in a process, by what its environment asks for."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from backend.disk.layout import Layout
from backend.inductor import hooks
from backend.inductor.hooks import activation, environment
from backend.inductor.torch import versions
from rocm_tui import environment as hook_env


@pytest.mark.parametrize(("run", "recorded"), [("", False), ("a-run", True)])
def test_a_program_whose_launches_are_looked_at_is_recorded_in_a_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, recorded: bool
) -> None:
    """As of `rocm-tui verify -- CMD`, and where CMD is `rocm-tui run` itself."""
    for name, value in {**hook_env.hooked({}, run), environment.LAUNCH_LOG: str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    watched: list[str] = []
    activated: list[bool] = []
    monkeypatch.setattr(activation, "when_imported", lambda name, action: watched.append(name))
    monkeypatch.setattr(activation, "activate", lambda templates: activated.append(templates))
    activation.autoload()
    assert watched == [versions.TRITON_AUTOTUNER, versions.AUTOTUNER]
    assert bool(activated) == recorded


def test_a_watched_module_is_the_one_that_its_loader_creates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one in C: an empty module in its place would lack all that it holds."""
    monkeypatch.delitem(sys.modules, "_opcode", raising=False)
    done: list[bool] = []
    activation.when_imported("_opcode", lambda: done.append("_opcode" in sys.modules))
    assert not done
    assert importlib.import_module("_opcode").stack_effect and done == [True]


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in hook_env.hooked({}, "a-run").items():
        monkeypatch.setenv(name, value)
    for name in (environment.LAUNCH_LOG, environment.TEMPLATES, environment.OPTIONS):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("templates", "fits", "calls"),
    [("", True, [False]), ("1", True, [True]), ("other", False, [True, False])],
)
def test_where_our_kernels_are_of_another_version_the_run_goes_on_without(
    hooked: pytest.MonkeyPatch, templates: str, fits: bool, calls: list[bool]
) -> None:
    activated: list[bool] = []

    def activate(templates: bool = False) -> bool:
        activated.append(templates)
        return fits

    hooked.setenv(environment.TEMPLATES, templates)
    hooked.setattr(activation, "activate", activate)
    activation.autoload()
    assert activated == calls


@pytest.mark.parametrize(("options", "watched"), [("", []), ("{}", [versions.COMPILER])])
def test_options_of_a_run_are_set_once_the_compiler_is_there(
    hooked: pytest.MonkeyPatch, options: str, watched: list[str]
) -> None:
    if options:
        hooked.setenv(environment.OPTIONS, options)
    names: list[str] = []
    hooked.setattr(activation, "when_imported", lambda name, action: names.append(name))
    hooked.setattr(activation, "activate", lambda templates: True)
    activation.autoload()
    assert names == watched


def test_without_a_run_nothing_is_turned_on(hooked: pytest.MonkeyPatch) -> None:
    hooked.delenv(environment.RUN)
    hooked.setattr(activation, "activate", lambda templates: pytest.fail("it was turned on"))
    activation.autoload()


def test_what_fails_there_is_a_line_and_import_torch_goes_on(
    hooked: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def activate(templates: bool) -> bool:
        raise RuntimeError("ours")

    hooked.setattr(activation, "activate", activate)
    activation.autoload()
    assert "the hooks are off: RuntimeError('ours')" in capfd.readouterr().err
    hooked.setattr(sys, "stderr", None)
    activation.autoload()


def test_kernels_of_another_version_than_wanted_turn_nothing_on(
    hooked: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hooked.setattr(activation, "_activate", lambda: pytest.fail("it was turned on"))
    assert not activation.activate(templates=True, version="0123")
    assert "0123 are wanted" in capfd.readouterr().err


@pytest.mark.parametrize(("active", "templates"), [(True, True), (True, False), (False, True)])
def test_our_kernels_are_offered_where_the_hooks_are_on(
    hooked: pytest.MonkeyPatch, active: bool, templates: bool
) -> None:
    done: list[str] = []
    hooked.setattr(activation, "_activate", lambda: active)
    hooked.setattr(environment, "separate_graphs", lambda: done.append("separate"))
    hooked.setattr(activation, "when_imported", lambda name, action: done.append(name))
    version = environment.kernels_version() if templates else "any other"
    assert activation.activate(templates=templates, version=version) is active
    assert done == (["separate", versions.SELECTOR] if active and templates else [])


def test_a_module_that_is_there_is_acted_on_at_once_and_another_after_its_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "later_module.py").write_text("value = 7\nimport other_module\n")
    (tmp_path / "other_module.py").write_text("value = 8\n")
    seen: list[tuple[str, int]] = []

    def act(name: str) -> None:
        seen.append((name, sys.modules[name].value))

    for name in ("later_module", "other_module"):
        activation.when_imported(name, lambda name=name: act(name))  # type: ignore[misc]
    walk = iter(sys.meta_path)  # as of another thread's import, which has asked our first finder
    next(walk)
    behind = sys.meta_path[1:]
    module = importlib.import_module("later_module")
    assert seen == [("other_module", 8), ("later_module", 7)]
    assert list(walk) == behind
    assert type(module.__loader__).__module__.startswith("_frozen_importlib")
    assert module.__spec__ is not None and module.__spec__.loader is module.__loader__
    activation.when_imported("later_module", lambda: act("later_module"))
    assert len(seen) == 3
    for name in ("later_module", "other_module"):
        monkeypatch.delitem(sys.modules, name)


TWO_THREADS = """
import importlib, sys, threading
from backend.inductor.hooks import activation
sys.path.insert(0, sys.argv[1])
import moments
done = []
activation.when_imported("half.child", lambda: done.append("child"))
ours = sys.meta_path[0]
class First:
    # Python holds the lock of all imports here, and `half` goes on to its next import.
    def find_spec(self, name, path, target=None):
        if name != "half.child" or moments.asked.is_set():
            return None
        moments.asked.set()
        return ours.find_spec(name, path, target)
sys.meta_path.insert(0, First())
threads = [threading.Thread(target=importlib.import_module, args=["half"], daemon=True)]
threads[0].start()
moments.begun.wait()
threads.append(threading.Thread(target=importlib.import_module, args=["half.child"], daemon=True))
threads[1].start()
for thread in threads:
    thread.join(20)
print(done, [thread.is_alive() for thread in threads], flush=True)
"""


def test_a_thread_that_imports_a_watched_module_waits_for_no_other(tmp_path: Path) -> None:
    """The other is within the import of its package."""
    (tmp_path / "half").mkdir()
    files = {
        "moments": "import threading\nbegun, asked = threading.Event(), threading.Event()",
        "half/__init__": "import moments\nmoments.begun.set()\nmoments.asked.wait()\nimport late",
        "half/child": "",
        "late": "",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", TWO_THREADS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "['child'] [False, False]\n", done.stderr


def test_an_action_that_fails_costs_the_hooks_and_not_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "hooked_module.py").write_text("value = 7\n")

    def act() -> None:
        raise RuntimeError("ours")

    activation.when_imported("hooked_module", act)
    assert importlib.import_module("hooked_module").value == 7
    assert "hooked_module" in capfd.readouterr().err
    monkeypatch.delitem(sys.modules, "hooked_module")


def test_a_module_that_does_not_exist_is_missing_as_ever() -> None:
    activation.when_imported("no_such_module_of_ours", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_of_ours")


@pytest.mark.parametrize(("check", "done"), [("", ["selector"]), ("1", ["selector", "checks"])])
def test_all_choices_are_checked_where_the_variable_requests_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, done: list[str]
) -> None:
    installed: list[str] = []
    fakes = {
        "selector": SimpleNamespace(install=lambda: installed.append("selector")),
        "templates": SimpleNamespace(install_checks=lambda: installed.append("checks")),
    }
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, f"{hooks.__name__}.{name}", fake)
        monkeypatch.setattr(hooks, name, fake, raising=False)
    monkeypatch.setenv(environment.CHECK, check)
    activation._install()
    assert installed == done


def test_a_selector_that_does_not_fit_this_torch_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def install() -> None:
        raise AttributeError("no such name in torch")

    fake = SimpleNamespace(install=install)
    monkeypatch.setitem(sys.modules, f"{hooks.__name__}.selector", fake)
    monkeypatch.setattr(hooks, "selector", fake, raising=False)
    monkeypatch.setattr(activation, "_active", True)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    activation._install()
    assert "do not fit this torch" in capfd.readouterr().err
    assert len(list(Layout(tmp_path).sessions.glob("*.jsonl"))) == 1
    assert activation.activate() is False
