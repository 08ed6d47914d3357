"""Backends that were asked for and have no choice: which, where, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.inductor.hooks.backends import BackendFacts, absent, missing, recommended
from backend.model.choice import Choice
from backend.model.session import Session
from backend.toolchain.target import amdgpu
from rocm_tui.render.report import text
from rocm_tui.report.job import backend_of, grouped, report
from tests.support.compare_lab import log, part, tuning

AB = {"bmm": 1.0, "triton_a": 1.2}


def asked(*backends: str, absent: tuple[str, ...] = ()) -> Session:
    return Session("s", host="box", backends=backends, absent=absent)


def test_a_backend_without_a_choice_is_absent_with_the_reason_that_was_known() -> None:
    session = asked("ATEN", "CK", "TRITON", absent=("CK: ck4inductor is not installed",))
    job = part(tuning(1, AB), tuning(2, AB), sessions=[session])
    (ck,) = report(job).missing
    assert (ck.backend, ck.ops, ck.tunings, ck.everywhere, ck.failed) == (
        "CK",
        ("bmm",),
        2,
        True,
        0,
    )
    assert [reason.text for reason in ck.reasons] == ["ck4inductor is not installed"]
    assert "CK: no choice in 2 tunings (bmm)" in text(report(job))


def test_a_backend_of_which_all_failed_is_absent_with_the_reasons_grouped() -> None:
    failed = [
        Choice(
            name=f"triton_bmm_{n}",
            hash=f"triton_bmm-{n}",
            failed=True,
            reason=f"OutOfResources: shared memory, Required: {n}00, Hardware limit: 65536"
            if n < 4
            else "it crashed",
        )
        for n in range(5)
    ]
    one = tuning(1, {"bmm": 1.0})
    both = replace(one, choices=(*one.choices, *failed))
    (found,) = report(part(both, sessions=[asked("ATEN", "TRITON")])).missing
    assert (found.backend, found.failed) == ("TRITON", 5)
    assert [reason.count for reason in found.reasons] == [4, 1]
    works = replace(one, choices=(*one.choices, replace(failed[0], failed=False), *failed[1:]))
    assert report(part(works, sessions=[asked("ATEN", "TRITON")])).missing == ()


def test_absent_in_one_op_or_for_one_session_only() -> None:
    mm = replace(tuning(2, {"mm": 1.0}), op="mm")
    session = asked("ATEN", "TRITON")
    (found,) = report(part(tuning(1, AB), mm, sessions=[session])).missing
    assert (found.ops, found.everywhere, found.reasons) == (("mm",), False, ())
    assert "other tunings have one" in text(report(part(tuning(1, AB), mm, sessions=[session])))


@pytest.mark.parametrize(("op", "advised"), [("addmm", True), ("bmm", False)])
def test_cpp_templates_of_linear_layers_need_constant_weights(op: str, advised: bool) -> None:
    one = replace(tuning(1, {op: 1.0}), op=op)
    lines = text(report(part(one, sessions=[asked("ATEN", "CPP")])))
    assert ("TORCHINDUCTOR_FREEZING=1" in lines) == advised and "gives no reason" in lines


def test_convolutions_have_a_list_of_their_own() -> None:
    conv = replace(tuning(1, {"convolution": 1.0}), op="convolution")
    session = asked("ATEN", "CK", "conv:ATEN", "conv:TRITON")
    found = report(part(conv, tuning(2, {"bmm": 1.0}), sessions=[session])).missing
    assert {each.backend: each.ops for each in found} == {
        "TRITON": ("convolution",),
        "CK": ("bmm",),
    }


def test_aten_is_not_absent_where_a_library_below_it_has_a_kernel_or_nobody_knows() -> None:
    """As torch 2.13 names them in `linear_binary` of a frozen model."""
    for name in ("_linear_pointwise.binary", "what_is_it"):
        linear = replace(tuning(1, {"cpp_CppMicroGemmFP32Vec_0": 1.0, name: 2.0}), op="linear")
        assert report(part(linear, sessions=[asked("ATEN", "CPP")])).missing == ()
    alone = replace(tuning(1, {"cpp_CppMicroGemmFP32Vec_0": 1.0}), op="linear_binary")
    (found,) = report(part(alone, sessions=[asked("ATEN", "CPP")])).missing
    assert found.backend == "ATEN"


def test_nothing_is_said_where_no_session_tells_what_was_asked() -> None:
    found = report(part(log(1, AB)))
    assert found.missing == () and not found.backends_known
    assert "Requested backends unknown" in text(found)


@pytest.mark.parametrize(
    ("name", "backend"),
    [("bmm", "ATEN"), ("triton_mm_3", "TRITON"), ("cpp_CppMicroGemm_0", "CPP"),
     ("rocm_ck_gemm_template_7", "CK"), ("rocm_ck_tile_gemm_template_0", "CKTILE"),
     ("flydsl_mm_flydsl_0", "FLYDSL"), ("rocm_gemm_0", "ROCM"), ("rocm_triton_2", "ROCM"),
     ("what_is_it", None)],
)  # fmt: skip
def test_which_backend_made_a_choice(name: str, backend: str | None) -> None:
    assert backend_of(Choice(name=name)) == backend


def test_reasons_that_differ_in_numbers_and_paths_are_one() -> None:
    choices = [
        Choice(name=f"ck_{n}", failed=True, reason=f"ck_{n}: /tmp/x{n}/k.hip:{n}: error 0x{n}f")
        for n in range(12)
    ]
    (only,) = grouped(choices)
    assert only.count == 12 and only.text == choices[0].reason


# What is recorded of a machine


ROCM_BOX = BackendFacts(
    kind="cuda", hip=True, arch="gfx942:sramecc+:xnack-", major=9, units=304, cpu_backend="cpp",
    ck_arches=("gfx90a", "gfx942", "gfx950"), wanted_arches=(), cutlass_dir="/none",
    template_target=amdgpu("gfx942"), missing=lambda module: "",
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, ["CUTLASS: it is for GPUs of NVIDIA's", "CPP: its templates are for CPUs"]),
        (
            {"arch": "gfx1100", "major": 11},
            [
                "CK: Inductor has it for gfx90a, gfx942, gfx950, not for gfx1100",
                "CUTLASS: it is for GPUs of NVIDIA's",
                "CPP: its templates are for CPUs",
            ],
        ),
        (
            {"missing": lambda module: f"{module} is not installed"},
            [
                "TRITON: triton is not installed",
                "CK: ck4inductor is not installed: it comes with ROCm/composable_kernel",
                "CUTLASS: it is for GPUs of NVIDIA's",
                "CPP: its templates are for CPUs",
            ],
        ),
        (
            {"arch": "gfx1030", "major": 10, "wanted_arches": ("gfx90a",)},
            [
                "TRITON: Inductor uses no templates on gfx1030",
                "CUTLASS: it is for GPUs of NVIDIA's",
                "CPP: its templates are for CPUs",
            ],
        ),
        (
            {"hip": False, "arch": "sm_90", "units": 132},
            [
                "CK: this torch is not a ROCm build",
                "CUTLASS: there is no CUTLASS in /none",
                "CPP: its templates are for CPUs",
            ],
        ),
        (
            {"kind": "cpu", "hip": False},
            [
                "TRITON: the device is a CPU, for which Inductor writes C++",
                "CK: this torch is not a ROCm build",
                "CUTLASS: it is for GPUs of NVIDIA's",
            ],
        ),
    ],
)
def test_why_a_backend_cannot_appear(change: dict[str, Any], told: list[str]) -> None:
    names = ("ATEN", "TRITON", "CK", "CUTLASS", "CPP", "conv:TRITON", "HALIDE")
    assert list(absent(names, replace(ROCM_BOX, **change))) == told


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"arch": "gfx950:sramecc+"}, ""),
        ({}, "Inductor has it for gfx950, not for gfx942"),
        ({"missing": lambda module: f"{module} is gone"}, "this torch has no FlyDSL backend"),
        (
            {"arch": "gfx950", "missing": lambda name: "no package" if name == "flydsl" else ""},
            "no package",
        ),
        ({"kind": "cpu"}, "no GPU is seen"),
        ({"hip": False, "arch": "sm_90", "units": 132}, "this torch is not a ROCm build"),
    ],
)
def test_why_flydsl_cannot_appear(change: dict[str, Any], reason: str) -> None:
    told = [f"FLYDSL: {reason}"] if reason else []
    assert list(absent(("FLYDSL",), replace(ROCM_BOX, **change))) == told


def test_missing_modules_are_named() -> None:
    assert missing("json") == ""
    assert missing("no_such_module") == "no_such_module is not installed"
    assert "no_such_module" in missing("no_such_module.part")


TORCH_2_13 = {
    "use_torch_profiler_benchmarker": False, "layout_optimization": False,
    "max_autotune_gemm_backends": "ATEN,TRITON,CPP",
}  # fmt: skip
MI355X = {"arch": "gfx950", "units": 256}


@pytest.mark.parametrize(
    ("change", "settings", "names"),
    [
        ({}, {}, ["USE_TORCH_PROFILER_BENCHMARKER", "LAYOUT_OPTIMIZATION"]),
        (MI355X, {"use_torch_profiler_benchmarker": True},
         ["MAX_AUTOTUNE_GEMM_BACKENDS", "LAYOUT_OPTIMIZATION"]),
        (MI355X, {**dict.fromkeys(TORCH_2_13, True), "flydsl_enable_autotuning": True,
                  "max_autotune_gemm_backends": "aten,flydsl"}, []),
        ({}, dict.fromkeys(TORCH_2_13), []),
        ({"kind": "cpu"}, {}, []),
        ({"hip": False, "arch": "sm_90"}, {}, []),
    ],
    ids=["MI300X", "MI355X", "set", "torch without them", "CPU", "NVIDIA"],
)  # fmt: skip
def test_which_settings_are_recommended(
    change: dict[str, Any], settings: dict[str, Any], names: list[str]
) -> None:
    found = recommended(replace(ROCM_BOX, **change), {**TORCH_2_13, **settings}.get)
    assert [line.partition("=")[0] for line in found] == [f"TORCHINDUCTOR_{n}" for n in names]
    assert all(
        "=" in line and line.rstrip(")").endswith(("config.py", "75097", "90903")) for line in found
    )


def test_a_recommended_setting_names_the_package_that_it_needs() -> None:
    def gone(name: str) -> str:
        return "flydsl is not installed" if name == "flydsl" else ""

    found = recommended(replace(ROCM_BOX, **MI355X, missing=gone), TORCH_2_13.get)
    (line,) = [line for line in found if "FLYDSL" in line]
    assert line.endswith("; it needs the package flydsl (pytorch#190903)")
