"""Kernels of ours in C++ wrappers on a GPU: the stream, the device, a package of AOTInductor.

Skipped where torch sees no GPU, or where its C++ wrapper is not known. It has run on none yet.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rocm_programs import Ran, run

pytestmark = pytest.mark.torch

PROGRAM = """
from torch._inductor import select_algorithm
select_algorithm.add_preprocessing_fn(
    lambda choices: [choice for choice in choices if choice.name.startswith("rocm_")][:1] or choices
)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(256, 512), torch.nn.Linear(512, 128)

    def forward(self, x):
        y = self.down(torch.relu(self.up(x)))
        return y, y[:, 8:40] @ y[:, 8:40].t()

def right(name, got, want):
    error = max((g - w).abs().max().item() for g, w in zip(got, want))
    assert error < 1e-3, (name, error)
    print(name, "agrees", error, flush=True)

for number in range(torch.cuda.device_count()):
    device, stream = f"cuda:{number}", torch.cuda.Stream(number)
    model = Model().eval().to(device)
    with torch.no_grad(), torch.cuda.device(number), torch.cuda.stream(stream):
        x = torch.randn(96, 256, device=device)
        with config.patch(cpp_wrapper=True):
            torch._dynamo.reset()
            right(f"wrapper-{device}", torch.compile(model)(x), model(x))
        exported = torch.export.export(model, (x,))
        path = os.path.join(os.environ["PACKAGES"], f"{number}.pt2")
        torch._inductor.aoti_compile_and_package(exported, package_path=path)
        loaded = torch._inductor.aoti_load_package(path, device_index=number)
        right(f"package-{device}", loaded(x), model(x))
"""


ASKED = """
import torch
from backend.inductor.torch.graph import knows_cpp_wrapper
print(torch.cuda.device_count(), torch.__version__ if knows_cpp_wrapper() else "")
"""


@pytest.fixture(scope="module")
def gpus() -> int:
    """How many; asked in a process that ends, since Inductor starts others where it is imported."""
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count, *known = done.stdout.split()
    if not known:
        pytest.skip("the C++ wrapper of this torch is not known")
    return int(count)


@pytest.fixture(scope="module")
def ran(gpus: int, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("packages")
    return run(PROGRAM, Path(folder) / "cache", {"PACKAGES": str(folder)})


def test_the_numbers_are_right_on_each_device_and_stream(gpus: int, ran: Ran) -> None:
    kinds = [f"{kind}-cuda:{number}" for number in range(gpus) for kind in ("wrapper", "package")]
    assert ran.agreed == kinds


def test_the_kernels_are_ours(ran: Ran) -> None:
    assert ran.stderr.count("// rocm-tui choice ") >= 6
    assert "rocm-tui: our templates are not offered" not in ran.stderr
