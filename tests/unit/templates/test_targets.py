"""Default configs compile for GPUs without scratch spills, and take the LDS that was counted."""

from __future__ import annotations

import csv
import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backend.templates.config import GemmConfig, SkinnyConfig
from backend.templates.legality import lds_bytes
from backend.toolchain import code_cache, targets
from backend.toolchain.resources import Resources, Unknown, resources
from backend.toolchain.target import Missing, Target, amdgpu
from tests.support.places import EVERYTHING, ROOT
from tools import inner_loop
from tools.resources_table import GPUS, HEAD, TARGETS_HEAD, Offer, offers, replaced, written

DATA = ROOT / "docs" / "data"


def _sample(target: Target) -> tuple[Offer, ...]:
    """Every third of fp16 for one architecture, every twelfth for the others, and of direct
    convolutions the first of each unit; docs/data/resources.csv has all, as has this with
    TEST_EVERYTHING."""
    most = target == amdgpu("gfx942")
    everything = offers(target, ("float16",) if most else ("float16", "float32"))
    if EVERYTHING:
        return everything
    direct = [offer for offer in everything if offer.template == "direct"]
    first = {(offer.channels, offer.config.unit): offer for offer in reversed(direct)}
    rest = [offer for offer in everything if offer.template != "direct"]
    return (*rest[:: 3 if most else 12], *first.values())


TOGETHER = 8
"""Kernels in one source: half of what a compiler takes for one goes into its start and headers."""


def _together(group: Sequence[Offer]) -> str:
    """One source of several, each in a namespace that stands in its kernels' mangled names."""
    parts = [
        f"namespace offer{at}_ {{\n{offer.render(f'entry{at}').source}\n}}\n"
        for at, offer in enumerate(group)
    ]
    return "#include <rocm_tui/gpu.h>\n" + "".join(parts)


@pytest.mark.parametrize("target", GPUS, ids=str)
def test_default_configs_compile_and_do_not_spill(target: Target, tmp_path: Path) -> None:
    if isinstance(found := targets.find_compiler(target), Missing):
        pytest.skip(found.reason)

    def compiled(group: Sequence[Offer]) -> tuple[Resources, ...] | Unknown:
        return resources(code_cache.compile(_together(group), target, cache_root=tmp_path))

    sample = _sample(target)
    groups = [sample[at : at + TOGETHER] for at in range(0, len(sample), TOGETHER)]
    assert groups
    with ThreadPoolExecutor(2) as pool:
        for group, made in zip(groups, pool.map(compiled, groups), strict=True):
            if isinstance(made, Unknown):
                pytest.skip(made.reason)
            for at, offer in enumerate(group):
                name = offer.config.description
                kernels = [kernel for kernel in made if f"offer{at}_" in kernel.kernel]
                assert len(kernels) == 2, name
                for kernel in kernels:
                    assert (kernel.scratch, kernel.vgpr_spills) == (0, 0), (name, kernel)
                main = next(kernel for kernel in kernels if "reduce_parts" not in kernel.kernel)
                ring = isinstance(offer.config, SkinnyConfig) and offer.config.stages > 1
                if (
                    ring
                    or offer.template == "direct"
                    or (isinstance(offer.config, GemmConfig) and offer.config.pipelined)
                ):
                    assert main.lds == 0, name  # a launch asks for it; the source checks the count
                else:
                    # Beside a kernel whose LDS a launch asks for, whole kilobytes.
                    counted = lds_bytes(offer.config, offer.problem)
                    assert main.lds in (counted, -(-counted // 1024) * 1024), name


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="a machine with an AMD GPU")
@pytest.mark.parametrize("template", ["gemm", "skinny"])
def test_a_library_for_a_gpu_loads_and_says_that_there_is_none(
    template: str, tmp_path: Path
) -> None:
    target = amdgpu("gfx90a")
    found = targets.find_compiler(target)
    if isinstance(found, Missing) or not found.loadable:
        pytest.skip("no compiler here makes a library for gfx90a: needs hipcc or ROCm")
    offer = next(offer for offer in offers(target) if offer.template == template)
    rendered = offer.render()
    library = code_cache.load(code_cache.compile(rendered.source, target, cache_root=tmp_path).path)
    entry = library.entry(rendered.name, code_cache.argtypes(3, len(rendered.args) - 3))
    numbers = {"M": 1, "N": 64, "K": 64, "ld_a": 64, "ld_b": 64, "ld_out": 64, "split_k": 1}
    nowhere = 1 << 20  # aligned, and never followed: there is no device to launch on
    values = [numbers.get(arg.name, nowhere) for arg in rendered.args]
    workspace = ctypes.c_size_t(7)
    assert entry(*values, ctypes.byref(workspace), None, None) == 0
    assert workspace.value == 0
    # hipErrorNoDevice, or hipErrorInvalidDevice from a launch.
    assert entry(*values, None, None, None) in (100, 101)


@pytest.mark.parametrize(
    ("name", "head", "names"),
    [
        ("resources.csv", HEAD, [str(target) for target in GPUS]),
        ("targets.csv", TARGETS_HEAD, [str(target) for target in GPUS]),
        ("inner-loops.csv", inner_loop.HEAD, list(inner_loop.UNITS)),
    ],
)
def test_the_docs_have_the_tables_of_the_tools(
    name: str, head: Sequence[str], names: Sequence[str]
) -> None:
    path = DATA / name
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == list(head) and {len(row) for row in rows} == {len(head)}
    assert list(dict.fromkeys(row[0] for row in rows[1:])) == names
    assert replaced(path, head, {}) == path.read_text(encoding="utf-8")


def test_a_table_keeps_the_rows_of_targets_that_were_not_compiled(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(written([["name", "n"], ["a", "1"], ["b", "2"], ["b", "3"]]))
    new = replaced(path, ["name", "n"], {"b": [["b", "4"]], "c": [["c", "x,y"]]})
    assert new == 'name,n\na,1\nb,4\nc,"x,y"\n'
    with pytest.raises(ValueError, match="other columns"):
        replaced(path, ["name"], {})
