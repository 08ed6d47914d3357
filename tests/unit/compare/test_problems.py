"""Which tunings are of one problem: CPU and GPU apart, and what fits is looked up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from backend.model.choice import Choice
from backend.model.origin import DeviceKind, device_kind
from backend.model.tuning import Tuning
from rocm_tui.actions.sources import load_model
from rocm_tui.compare.comparison import compare
from rocm_tui.compare.problems import Index, problems
from rocm_tui.report.job import report
from tests.support.compare_lab import log, part, tuning
from tests.support.places import CORPUS


def named(*names: str, op: str = "mm", **more: object) -> Tuning:
    choices = tuple(Choice(name=name, ms=1.0 + at) for at, name in enumerate(names))
    return replace(Tuning(op, choices=choices), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tuning", "kind"),
    [
        (named("mm"), None),
        (named("mm", "cpp_CppMicroGemmFP32Vec_0"), "cpu"),
        (named("cpp_packed_gemm_1", "_mkl_linear"), "cpu"),
        (named("_linear_pointwise.binary"), "cpu"),
        (named("mm", op="packed_linear"), "cpu"),
        (named("mm", "triton_mm_7"), "gpu"),
        (named("mm", "rocm_ck_gemm_template_1"), "gpu"),
        (named("rocm_gemm_3", "mm"), None),  # our source is compiled for either
        (named("cpp_CppMicroGemmFP32Vec_0", "triton_mm_7"), None),
        (named("triton_mm_7", device="cpu"), "cpu"),  # what is told counts
        (named("mm", device="cuda:3"), "gpu"),
        (named("mm", device="meta"), None),
        (named("mm", inputs_key="[('cpu', 'torch.float32', 8, 8, 8, 1, 0)]"), "cpu"),
        (named("mm", inputs_key="[('xpu', 'torch.float32', 8, 8, 8, 1, 0)]"), "gpu"),
        (Tuning("mm", choices=(Choice(hash="CppMicroGemmFP32Vec-coya", ms=1.0),)), "cpu"),
        (Tuning("mm", choices=(Choice(description="BLOCK_K=32, num_warps=4", ms=1.0),)), "gpu"),
    ],
)
def test_the_kind_of_device_is_told_by_names_where_nothing_else_tells(
    tuning: Tuning, kind: DeviceKind | None
) -> None:
    assert device_kind(tuning) == kind


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real logs is not here")
def test_real_logs_are_of_one_kind_each() -> None:
    from backend.disk.layout import Layout

    seen = set()
    for path in sorted(CORPUS.glob("*.log")):
        rows = load_model(Layout(CORPUS / "none"), [str(path)]).rows()
        kinds = {device_kind(row.tuning) for row in rows} - {None}
        told = {"cpu"} if "cpu" in path.name or "packed_linear" in path.name else {"gpu"}
        assert kinds <= told, path.name
        seen |= kinds
    assert seen == {"cpu", "gpu"}


def test_a_tuning_on_a_cpu_is_no_tuning_on_a_gpu() -> None:
    on_gpu = log(1, {"bmm": 1.0, "triton_bmm_1": 0.5})
    on_cpu = log(1, {"bmm": 9.0, "cpp_CppMicroGemmFP32Vec_0": 8.0})
    apart = compare(part(on_gpu), part(on_cpu))
    assert apart.common == () and len(apart.only_a) == len(apart.only_b) == 1
    both = part(on_gpu, on_cpu)
    assert len(problems(both)) == 2 and report(both).repeated == ()
    found = compare(both, part(log(1, {"bmm": 9.0, "cpp_CppMicroGemmFP32Vec_4": 8.0})))
    (pair,) = found.common
    assert pair.a.ms == 8.0 and pair.verdict == "tied"
    unknown = compare(both, part(log(1, {"bmm": 9.0})))  # it may be either
    assert unknown.common == () and len(unknown.only_b) == 1
    cache = tuning(1, {"bmm": 1.0, "triton_bmm": 0.5}, session=None, source="/c/cache/44")
    assert len(compare(part(cache), part(on_gpu, on_cpu)).common) == 1


def test_what_fits_is_what_a_search_through_all_finds() -> None:
    draw = random.Random(5)
    index: Index[int] = Index()
    held: list[tuple[object, ...]] = []
    for n in range(400):
        facts = tuple(draw.choice((None, 1, 2)) for _ in range(4))
        fits = [
            at
            for at, other in enumerate(held)
            if all(not a or not b or a == b for a, b in zip(facts, other, strict=True))
        ]
        assert index.only(facts) == (fits[0] if len(fits) == 1 else None)
        if n % 8 == 0:
            index.add(facts, len(held))
            held.append(facts)


def test_the_last_fact_may_be_left_out() -> None:
    index: Index[str] = Index(without_last=True)
    index.add(("mm", "aa"), "one")
    assert index.only(("mm", "bb")) == "one" and index.only(("bmm", "aa")) is None
    index.add(("mm", "cc"), "two")
    assert index.only(("mm", "aa")) is None
