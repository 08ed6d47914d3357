"""Our kernels without `rocm-tui run`: one line in a program, or one variable where we are
installed beside torch."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
import tomlkit

import rocm_tui
from backend.disk.layout import Layout
from backend.inductor.hooks.environment import LAUNCH_LOG
from backend.pins.store import PinStore
from rocm_tui import environment as hook_env
from rocm_tui.jobs.worker import spawn_worker
from rocm_tui.launch.run import RunOptions
from tests.support.places import ROOT
from tests.support.rocm_programs import pin_ours
from tests.support.torch_models import child_env

pytestmark = pytest.mark.torch

ONE_LINE = "import rocm_tui; print(rocm_tui.activate(templates=True))\n"
STOCK = """
import torch, torch._inductor.config as config
config.max_autotune, config.max_autotune_gemm_backends = True, "ATEN"
a, b = torch.randn(24, 32), torch.randn(32, 16)
product = torch.compile(lambda a, b: torch.mm(a, b))(a, b)
assert torch.allclose(product, a @ b, atol=1e-4)
"""
SELECTOR = """
from torch._inductor import select_algorithm
print(type(select_algorithm.get_algorithm_selector_cache()).__module__)
"""
ONE_CONFIG = {"ROCM_TUI_TEMPLATE_BUDGET": "1"}


def python(
    source: str, cache: Path, env: Mapping[str, str] | None = None, *flags: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *flags, "-c", source],
        env=child_env(cache, {**ONE_CONFIG, **(env or {})}),
        cwd=cache.parent,  # what an older installation left beside the packages does not count
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


def installed(folder: Path) -> dict[str, str]:
    """Write what an installed wheel tells torch, and return the variable that lets torch find it.
    The environment of the tests may have been installed before the entry point existed."""
    info = folder / "rocm_tui-9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rocm-tui\nVersion: 9\n")
    groups = tomlkit.parse((ROOT / "pyproject.toml").read_text()).unwrap()["project"][
        "entry-points"
    ]
    (entry,) = groups["torch.backends"].items()
    (info / "entry_points.txt").write_text(f"[torch.backends]\n{entry[0]} = {entry[1]}\n")
    return {"PYTHONPATH": f"{folder}:{ROOT}"}


def verified(
    program: str, cache: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`rocm-tui verify -- python -c PROGRAM`."""
    command = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.run(
        [sys.executable, "-m", "rocm_tui", "verify", "--", *command],
        env=child_env(cache, {**ONE_CONFIG, **(env or {})}),
        cwd=cache.parent,  # what an older installation left beside the packages does not count
        capture_output=True,
        text=True,
        timeout=300,
    )


def loaded(*names: str) -> str:
    """Return a line that prints which of these packages or their modules a program has loaded."""
    return f"\nimport sys; print(sorted({{*{names}}} & {{n.split('.')[0] for n in sys.modules}}))\n"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache dir where a program with our line has tuned, and one of our kernels is pinned."""
    cache = tmp_path_factory.mktemp("activated") / "cache"
    screen = loaded("textual", "rich", "click", "msgspec", "watchdog")
    ours = "print(sorted(name for name in sys.modules if name.startswith('rocm_tui.')))"
    done = python(ONE_LINE + STOCK + screen + ours, cache)
    alone = "['rocm_tui.hook_path', 'rocm_tui.hook_path.rocm_tui_autoload']"
    assert done.stdout.splitlines() == ["True", "[]", alone], "nothing of the screen"
    pin_ours(cache)
    return cache


def test_a_program_with_one_line_calls_our_pinned_kernel(tuned: Path) -> None:
    """So does one with the variable; the stock program calls ATen, and says nothing of us."""
    (pin,) = PinStore(Layout(tuned)).pins()
    calls = f"calls our {pin.label} for mm 24×32 · 32×16 f32 (1 compiled graph)"
    done = verified(ONE_LINE + STOCK, tuned)
    assert done.stdout.splitlines() == [
        "True",
        f"{pin.id}: called: {pin.label} (1 compiled graph)",
        calls,
    ], done.stderr
    assert done.returncode == 0
    variable = {**installed(tuned.parent / "site"), "ROCM_TUI_TEMPLATES": "1"}
    done = verified(STOCK, tuned, variable)
    assert done.returncode == 0 and calls in done.stdout.splitlines(), done.stderr
    stock = verified(STOCK + loaded("backend"), tuned)
    assert stock.returncode == 1 and "calls our" not in stock.stdout and stock.stderr == ""
    assert stock.stdout.startswith(f"[]\n{pin.id}: not called: the compiled graph calls mm")


def test_with_pipelined_autotuning_a_program_runs_as_without_our_kernels(tmp_path: Path) -> None:
    """PyTorch does not autotune ATen's choice alone, and a second choice of ours would end it."""
    done = python(ONE_LINE + STOCK, tmp_path, {"TORCHINDUCTOR_PIPELINE_GEMM_AUTOTUNING": "1"})
    assert done.stdout == "True\n"
    assert done.stderr.count("our templates are not offered: pipelined autotuning") == 1


def test_without_pins_the_kernels_that_a_program_calls_are_listed(tmp_path: Path) -> None:
    """ATen is left out, so that ours must win."""
    ours = STOCK.replace('"ATEN"', '""')
    done = verified(ONE_LINE + ours, tmp_path / "ours")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()[1:]
    assert line.startswith("calls our rocm_") and "for mm 24×32 · 32×16 f32 (1 " in line
    done = verified(STOCK, tmp_path / "stock")
    assert done.returncode == 1
    nothing = "nothing is pinned; kernels of rocm-tui: none is called in 1 compiled graph\n"
    assert done.stdout == nothing


WRONG_TORCH = "import torch; torch.__version__ = '3.1.0'\n"
HIDDEN = "import sys, types; sys.modules['backend'] = types.ModuleType('backend')\n"
OTHER = ONE_LINE.replace("templates=True", "templates=True, version='0123456789abcdef'")
VERSION = rocm_tui.kernels_version()
ANOTHER = f"kernels 0123456789abcdef are wanted, and {VERSION} are installed: none are offered"


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (WRONG_TORCH + ONE_LINE, "torch 3.1.0 is not supported by the hooks (2.8 to "),
        (HIDDEN + ONE_LINE, "a module of the program is found as `backend` and hides ours; "),
        (OTHER, ANOTHER),
    ],
    ids=["torch", "hidden", "version"],
)
def test_where_it_cannot_it_says_so_in_a_line_and_the_program_is_stock(
    first: str, why: str, tmp_path: Path
) -> None:
    done = python(first + STOCK + SELECTOR, tmp_path)
    assert done.stdout == "False\ntorch._inductor.select_algorithm\n"
    assert done.stderr.startswith(f"rocm-tui: {why}") and done.stderr.count("\n") == 1


def test_without_torch_it_says_so_and_goes_on(tmp_path: Path) -> None:
    """A Python without any installed package."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{ONE_LINE}print('on')"
    done = python(program, tmp_path, None, "-I", "-S")
    assert done.stdout == "False\non\n"
    assert done.stderr == (
        "rocm-tui: the hooks are off: ModuleNotFoundError: No module named 'torch'\n"
    )


def test_without_a_compiler_the_program_is_stock_after_one_line(tmp_path: Path) -> None:
    done = python(ONE_LINE + STOCK, tmp_path, {"PATH": "/nowhere"})
    assert done.stdout == "True\n"
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("rocm-tui: ")]
    assert line == "rocm-tui: our templates are off for cpu: no g++ on PATH: install g++ (C++20)"


def test_the_variable_turns_them_on_for_its_version_alone(tmp_path: Path) -> None:
    """Without it, an installed rocm-tui loads nothing but its first module."""
    program = "import torch\n" + SELECTOR + loaded("backend")
    site = installed(tmp_path / "site")
    off = python(program, tmp_path / "off", site)
    assert off.stdout == "torch._inductor.select_algorithm\n[]\n" and off.stderr == ""
    on = python(program, tmp_path / "on", {**site, "ROCM_TUI_TEMPLATES": VERSION})
    assert on.stdout == "backend.inductor.hooks.templates\n['backend']\n" and on.stderr == ""
    other = python(program, tmp_path / "other", {**site, "ROCM_TUI_TEMPLATES": "0123456789abcdef"})
    assert other.stdout == "torch._inductor.select_algorithm\n['backend']\n"
    assert other.stderr == f"rocm-tui: {ANOTHER}\n"


def test_the_variable_holds_where_verify_only_observes_launches(tmp_path: Path) -> None:
    site = {**installed(tmp_path / "site"), "ROCM_TUI_TEMPLATES": "1"}
    env = {**hook_env.hooked(site, ""), LAUNCH_LOG: str(tmp_path)}
    done = python("import torch\n" + SELECTOR, tmp_path / "cache", env)
    assert done.stdout == "backend.inductor.hooks.templates\n" and done.stderr == ""


def test_the_variable_is_for_programs_and_not_for_our_workers(tmp_path: Path) -> None:
    env = child_env(tmp_path, {"ROCM_TUI_TEMPLATES": "1"})
    deadline = time.monotonic() + 60
    with spawn_worker(sys.executable, tmp_path, env) as worker:
        process = psutil.Process(worker.pid)
        while not (there := process.environ()) and time.monotonic() < deadline:
            time.sleep(0.01)  # the process is being replaced
        assert there["ROCM_TUI_TEMPLATES"] == "0"


@pytest.mark.parametrize(("given", "left"), [("", "1"), ("0", "1"), ("1", "1"), (VERSION, VERSION)])
def test_a_run_with_templates_keeps_the_version_of_the_variable(given: str, left: str) -> None:
    env = RunOptions(templates=True).environment({"ROCM_TUI_TEMPLATES": given})
    assert env["ROCM_TUI_TEMPLATES"] == left
