"""A package of AOTInductor with kernels of ours, run by a program that has no Python."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from backend.disk.layout import Layout
from backend.pins.graphs.index import GraphIndex, packages_below
from backend.pins.graphs.match import WantedChoice
from tests.support.rocm_programs import Ran, last_session, run

pytestmark = pytest.mark.torch

MODEL = """
from torch._inductor import select_algorithm
config.aot_inductor.compile_wrapper_opt_level = "O0"
config.cpp_cache_precompile_headers = False
select_algorithm.add_preprocessing_fn(
    lambda choices: [choice for choice in choices if choice.name.startswith("rocm_")][:1]
)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 96), torch.nn.Linear(96, 48)
        self.register_buffer("eight", torch.randn(32, 64).to(torch.float8_e4m3fn))
        self.register_buffer("scale", torch.tensor(0.5))
        self.register_buffer("left", torch.randn(64, 32))
        self.register_buffer("right", torch.randn(64, 32))

    def forward(self, x):
        y = self.down(torch.relu(self.up(x)))
        scaled = torch._scaled_mm(
            (x * 2).to(torch.float8_e4m3fn), self.eight.t(), self.scale, self.scale,
            out_dtype=torch.float32,
        )
        plus = x @ self.left + (x * 3) @ self.right
        return y, y[:, 8:40] @ y[:, 8:40].t(), scaled, plus

with torch.no_grad():
    model = Model().eval()
    rows = torch.export.Dim("rows", min=2, max=4096)
    exported = torch.export.export(model, (torch.ones(20, 64),), dynamic_shapes={"x": {0: rows}})
    torch._inductor.aoti_compile_and_package(exported, package_path=os.environ["PACKAGE"])
    for rows in (7, 33):
        print("sums", *(result.sum().item() for result in model(torch.ones(rows, 64))))
"""


class Story(NamedTuple):
    package: Path
    cache: Path
    ran: Ran


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("package")
    package, cache = folder / "model.pt2", folder / "cache"
    return Story(package, cache, run(MODEL, cache, {"PACKAGE": str(package)}))


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that loads a package and knows nothing of us."""
    home, program = Path(torch.__file__).parent, tmp_path_factory.mktemp("runner") / "runner"
    source = Path(__file__).parents[2] / "support" / "package_runner.cpp"
    libraries = [f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}", "-ltorch", "-ltorch_cpu"]
    command = ["g++", "-std=c++20", "-O0", "-w", f"-I{home / 'include'}", str(source), *libraries]
    subprocess.run([*command, "-lc10", "-o", str(program)], check=True)
    return program


def test_a_package_says_which_choices_it_calls(story: Story) -> None:
    packages = packages_below(story.cache)
    assert packages
    for start, _ in last_session(story.cache):
        (ours,) = (choice for choice in start.choices if choice.name.startswith("rocm_"))
        assert ours.hash
        for name, verdict in ((ours.hash, "same"), (start.op, "other")):
            wanted = WantedChoice(start.op, start.inputs, name, (ours.hash, start.op))
            assert GraphIndex(Layout(story.cache)).verdicts(packages, wanted) == [verdict]
    assert story.ran.stderr.count("rocm-tui choice rocm_gemm-") == 5


def test_a_package_runs_without_python_and_without_our_files(story: Story, runner: Path) -> None:
    package = story.package.rename(story.package.with_name("elsewhere.pt2"))
    shutil.rmtree(story.cache)
    expected = [line.split()[1:] for line in story.ran.stdout.splitlines() if "sums" in line]
    for rows, sums in zip((7, 33), expected, strict=True):
        done = subprocess.run([runner, package, str(rows)], capture_output=True, text=True)
        *found, python = done.stdout.splitlines()
        assert python == "python: none", done.stderr
        assert [float(x) for x in found] == pytest.approx([float(x) for x in sums], rel=1e-4)
