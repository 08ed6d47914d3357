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
from backend.templates.rendering import Rendered, render
from backend.toolchain import code_cache
from backend.toolchain.target import Compiler, Target, amdgpu
from backend.toolchain.targets import find_compiler
from rocm_tui.session.kernel_resources import ResourceUse, Unknown
from rocm_tui.session.kernel_source import (
    ChoiceKernel,
    NoKernelSource,
    Stage,
    kernel_of,
    source_diff,
    source_of,
    text_of,
    write_reproducer,
)
from tests.support.subgraphs import decompose_k
from tools.resources_table import plain_problem

TARGET = amdgpu("gfx942")
SESSION = Session("s", arch="gfx942")
SIZES = Sizes(64, 128, 96)


def kernel(target: Target = TARGET) -> tuple[Rendered, Choice]:
    problem = plain_problem("float16", SIZES)
    rendered = render(problem, gemm_configs(problem, target, SIZES)[0], "rocm_gemm")
    made = kernel_hash(rendered.source, rendered.name, str(target))
    description = rendered.config.description
    return rendered, Choice("rocm_gemm_0", choice_hash("gemm", made, description), 0.1, description)


def tuning(choice: Choice, inputs: str | None = None) -> Tuning:
    """Of an op that no reproducer is made for, as a convolution is one."""
    return Tuning(op="convolution", device="cuda", inputs_key=inputs, choices=(choice,))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    if not isinstance(find_compiler(TARGET), Compiler):
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


def test_the_text_of_a_stage_is_what_its_file_holds_now(tmp_path: Path) -> None:
    stage = Stage("ttir", "listing", "of Triton", path=tmp_path / "k.ttir")
    with pytest.raises(NoKernelSource, match=r"cannot read .*k\.ttir: it is gone"):
        text_of(stage, stage)
    (tmp_path / "k.ttir").write_text("module {}")
    assert text_of(stage, stage) == "module {}"


def test_the_source_of_a_subgraph_is_the_graph_in_its_hash(tmp_path: Path) -> None:
    graph = Choice("decompose_k_mm_2_split_0", decompose_k(2), 0.1)
    source = kernel_of(tuning(graph), graph, SESSION, Layout(tmp_path)).source
    assert (source.name, source.language, source.path) == ("source", "python", None)
    assert source.text is not None and source.text.endswith("return view")


def test_a_stage_is_found_by_its_name_the_newest_first() -> None:
    stages = tuple(Stage(name, "listing", "") for name in ("source", "ttir gfx942", "ttir gfx90a"))
    own = ChoiceKernel(stages, Unknown("why"))
    assert own.source is own.stage("source") is stages[0]
    assert own.stage("ttir") is own.stage("ttir gfx942") is stages[1]
    assert own.stage("ttir gfx90a") is stages[2]
    for name in ("gfx90a", "tt", ""):
        with pytest.raises(NoKernelSource, match="source, ttir gfx942, ttir gfx90a"):
            own.stage(name)


@pytest.mark.parametrize(
    ("device", "session", "words"),
    [
        ("cuda", None, "device cuda is unknown"),
        (None, Session("s"), r"device \? is unknown"),
        ("cuda", Session("s", arch="gfx"), "gfx"),
        ("cuda", SESSION, "inputs key"),
        ("cpu", None, "inputs key"),
    ],
)
def test_why_a_kernel_of_ours_cannot_be_made(
    tmp_path: Path, device: str | None, session: Session | None, words: str
) -> None:
    choice = Choice("rocm_gemm_0", choice_hash("gemm", "a" * 16, "TILE=1"), 0.1, "TILE=1")
    own = Tuning("mm", device=device, choices=(choice,))
    for make in (
        lambda: write_reproducer(tmp_path / "out", own, choice, session),
        lambda: source_of(own, choice, session, Layout(tmp_path)),
    ):
        with pytest.raises(NoKernelSource, match=words):
            make()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("cache_dir", "words"),
    [(None, "removed"), ("", "removed"), ("{}", "removed"), ("/else\x1b[1m", "wrote to /else")],
)
def test_where_the_source_of_a_choice_of_torch_is_not(
    tmp_path: Path, cache_dir: str | None, words: str
) -> None:
    choice = Choice("triton_mm_1", f"triton_mm-c{'a' * 51}", 0.1)
    session = None if cache_dir is None else Session("s", cache_dir=cache_dir.format(tmp_path))
    with pytest.raises(NoKernelSource, match=words) as raised:
        source_of(Tuning("mm", choices=(choice,)), choice, session, Layout(tmp_path))
    assert str(tmp_path) in str(raised.value) and "\x1b" not in str(raised.value)


def test_what_differs_names_what_has_no_source(tmp_path: Path) -> None:
    texts = [decompose_k(2), decompose_k(4)]
    left, right = (Choice(f"c{at}", text, 0.1) for at, text in enumerate(texts))
    own, layout = Tuning("mm", choices=(left, right)), Layout(tmp_path)
    lines = source_diff(own, left, right, None, layout)
    assert lines[:2] == ["--- c0", "+++ c1"] and len(lines) > 4
    assert source_diff(own, left, left, None, layout) == []
    with pytest.raises(NoKernelSource, match="nothing to compare with"):
        source_diff(own, left, Choice("mm", "mm-b"), None, layout)
