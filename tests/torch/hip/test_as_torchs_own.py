"""What Inductor does with its own choices it does with ours: their output may lie within another
buffer, its logs describe them and have their sources, and one that cannot be made costs itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.rocm_programs import Ran, last_session, run

pytestmark = pytest.mark.torch

PROGRAM = """
from torch._inductor import select_algorithm
from torch._inductor.kernel import bmm as lowering

part("log")
agree("logged", torch.bmm, torch.randn(2, 20, 32), torch.randn(2, 32, 24))

part("config")
from backend.inductor.hip.template import ROCmGemmTemplate
from backend.errors import ConfigError
stock = ROCmGemmTemplate.generate
def generate(self, *, name, config):
    if name == "rocm_gemm_0":
        raise ConfigError("planted")
    return stock(self, name=name, config=config)
ROCmGemmTemplate.generate = generate
agree("config", torch.bmm, torch.randn(2, 20, 33), torch.randn(2, 33, 24))
ROCmGemmTemplate.generate = stock

part("planned")
select_algorithm.add_preprocessing_fn(
    lambda choices: [choice for choice in choices if choice.name.startswith("rocm_")])
ask = lowering.autotune_select_algorithm
def deferred(*args, **kwargs):
    "On a CPU a selection is put off only where Triton makes its kernels."
    with config.patch(cpu_backend="triton"):
        return ask(*args, **kwargs)
lowering.autotune_select_algorithm = deferred
for n in (24, 23):
    agree("planned", lambda a, b, c: torch.cat([c, torch.bmm(a, b)]),
          torch.randn(2, 20, 32), torch.randn(2, 32, n), torch.randn(1, 20, n))

part("ahead")
with config.patch({"triton.autotune_at_compile_time": True}):
    agree("ahead", torch.bmm, torch.randn(2, 20, 32), torch.randn(2, 32, 21))

part("sources")
import logging
del os.environ["TORCH_LOGS"]  # it has precedence over what a program sets
torch._logging.set_logs(inductor=logging.DEBUG, kernel_code=True)
agree("sources", torch.bmm, torch.randn(2, 20, 32), torch.randn(2, 32, 22))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Path]:
    folder = tmp_path_factory.mktemp("own")
    env = {
        "TORCHINDUCTOR_MM_LOGGING_FILE": str(folder / "mm.json"),
        "ROCM_TUI_TEMPLATE_BUDGET": "2",
    }
    return run(PROGRAM, folder / "cache", env), folder


def test_the_log_of_products_describes_ours(ran: tuple[Ran, Path]) -> None:
    (entry, *_) = json.loads((ran[1] / "mm.json").read_text())
    (choices,) = (value for key, value in entry.items() if key.startswith("("))
    ours = [choice for choice in choices if choice and choice["type"] == "rocm"]
    assert ours and None not in choices
    for choice in ours:
        assert choice["time"] > 0 and choice["name"].startswith("rocm_") and choice["BLOCK_M"] > 0


def test_a_config_that_does_not_fit_costs_itself(ran: tuple[Ran, Path]) -> None:
    offered = [
        {str(choice.name) for choice in start.choices}
        for start, _ in last_session(ran[1] / "cache")
    ]
    assert "rocm_gemm_0" in offered[0]
    assert "rocm_gemm_0" not in offered[1] and "rocm_gemm_1" in offered[1]
    assert "planted" in ran[0].part("config").stderr


def test_an_output_is_planned_into_another_buffer(ran: tuple[Ran, Path]) -> None:
    planned = ran[0].part("planned")
    assert planned.stdout.count("planned agrees") == 2
    assert len(planned.calls) == 2
    for n in (24, 23):
        assert f"empty_strided_cpu((3, 20, {n})" in planned.stderr
        assert f"empty_strided_cpu((2, 20, {n})" not in planned.stderr


def test_what_inductor_tunes_when_it_compiles_leaves_ours_alone(ran: tuple[Ran, Path]) -> None:
    """It runs the definitions of its own kernels then."""
    ahead = ran[0].part("ahead")
    assert ahead.agreed == ["ahead"] and len(ahead.calls) == 1


def test_logs_have_the_source_of_each_choice_and_of_the_kernel_that_is_called(
    ran: tuple[Ran, Path],
) -> None:
    logged = re.findall(
        r"(?:Choice (rocm_\w+), generated code|\] (ROCm Kernel)):\n.*\] // ",
        ran[0].part("sources").stderr,
    )
    assert [called for choice, called in logged if not choice] == ["ROCm Kernel"]
    choices = {choice for choice, called in logged if choice}
    assert {"rocm_gemm_0", "rocm_gemm_1"} <= choices
