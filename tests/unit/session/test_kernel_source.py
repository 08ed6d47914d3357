"""The kernel of a choice of ours: from the code cache where it cannot be made again; assembly."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.origin import choice_hash, kernel_hash
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.templates.heuristics import gemm_configs
from backend.templates.problem import Sizes
from backend.templates.rendering import Rendered, render_gemm
from backend.toolchain import code_cache
from backend.toolchain.target import Compiler, Target, amdgpu
from backend.toolchain.targets import find
from rocm_tui.session.kernel_resources import ResourceUse
from rocm_tui.session.kernel_source import NoKernelSource, kernel_of, source_of, text_of
from tests.support.subgraphs import decompose_k
from tools.resources_table import plain_problem

TARGET = amdgpu("gfx942")
SESSION = Session("s", arch="gfx942")
SIZES = Sizes(64, 128, 96)


def kernel(target: Target = TARGET) -> tuple[Rendered, Choice]:
    problem = plain_problem("float16", SIZES)
    rendered = render_gemm(problem, gemm_configs(problem, target, SIZES)[0], "rocm_gemm")
    made = kernel_hash(rendered.source, rendered.name, str(target))
    description = rendered.config.description
    return rendered, Choice("rocm_gemm_0", choice_hash("gemm", made, description), 0.1, description)


def tuning(choice: Choice, inputs: str | None = None) -> Tuning:
    """Of an op that no reproducer is made for, as a convolution is one."""
    return Tuning(op="convolution", device="cuda", inputs_key=inputs, choices=(choice,))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    if not isinstance(find(TARGET), Compiler):
        pytest.skip(f"no compiler for {TARGET}")
    rendered, _ = kernel()
    code_cache.compile(rendered.source, TARGET, cache_root=tmp_path)
    return Layout(tmp_path)


def test_what_cannot_be_made_again_is_in_the_code_cache(layout: Layout) -> None:
    rendered, choice = kernel()
    for session in (SESSION, None):
        assert source_of(tuning(choice), choice, session, layout) == rendered.source


def test_its_assembly_and_what_it_takes(layout: Layout) -> None:
    pytest.importorskip("msgpack")
    rendered, choice = kernel()
    found = kernel_of(tuning(choice), choice, SESSION, layout)
    assert [stage.name for stage in found.stages] == ["source", "amdgcn"]
    assert text_of(found.source, found.source) == rendered.source
    text = text_of(found.stage("amdgcn"), found.source)
    assert "s_endpgm" in text and "gfx942" in text
    assert isinstance(found.resources, ResourceUse) and found.resources.target == TARGET
    with pytest.raises(NoKernelSource, match="there is source, amdgcn"):
        found.stage("ptx")


def test_nothing_is_guessed(layout: Layout, tmp_path: Path) -> None:
    rendered, choice = kernel()
    other = Choice("rocm_gemm_1", f"rocm_gemm-{'0' * 32}", 0.1, rendered.config.description)
    with pytest.raises(NoKernelSource):
        source_of(tuning(other), other, SESSION, layout)
    with pytest.raises(NoKernelSource):
        source_of(tuning(choice), choice, SESSION, Layout(tmp_path / "elsewhere"))
    lost = Choice("rocm_triton_1", "rocm_triton-c1", 0.1)
    with pytest.raises(NoKernelSource, match="the module of rocm_triton-c1 is not in"):
        source_of(tuning(lost), lost, SESSION, layout)


def test_the_source_of_a_subgraph_is_the_graph_in_its_hash(tmp_path: Path) -> None:
    graph = Choice("decompose_k_mm_2_split_0", decompose_k(2), 0.1)
    source = kernel_of(tuning(graph), graph, SESSION, Layout(tmp_path)).source
    assert (source.name, source.language, source.path) == ("source", "python", None)
    assert source.text is not None and source.text.endswith("return view")
