"""The backends that a process has configured, and the reasons why some cannot appear."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config

from backend.inductor.hooks import backends
from backend.inductor.hooks.backends import (
    BackendFacts,
    absent,
    compilers_for,
    missing,
    no_library,
    requested,
    template_target,
    this_machine,
)
from backend.inductor.hooks.environment import TEMPLATES
from backend.toolchain.target import Missing, amdgpu, cpu

pytestmark = pytest.mark.torch

CPU = not torch.cuda.is_available()


@pytest.mark.skipif(not CPU, reason="lists are those of a machine without a GPU")
@pytest.mark.parametrize(
    ("gemm", "conv", "env", "names"),
    [
        ("ATEN,TRITON,CPP", "ATEN,TRITON", {}, ("ATEN", "CPP", "conv:ATEN")),
        (" aten , ck,, ", "", {}, ("ATEN", "CK")),
        ("TRITON,CPP", "TRITON", {}, ("TRITON", "CPP", "conv:TRITON")),
        ("ATEN,ATEN", "ATEN", {TEMPLATES: "1"}, ("ATEN", "conv:ATEN", "ROCM")),
        ("", "", {TEMPLATES: "0"}, ()),
    ],
)
def test_the_lists_are_read_as_inductor_reads_them(
    gemm: str, conv: str, env: dict[str, str], names: tuple[str, ...]
) -> None:
    """Of a default list the backends of another kind of device are left out."""
    with config.patch(max_autotune_gemm_backends=gemm, max_autotune_conv_backends=conv):
        assert requested(env) == names


def test_a_selector_that_offers_our_templates_counts_as_a_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Selector:
        offers_templates = True

    monkeypatch.setattr(backends.torch_api, "selector", Selector)
    assert requested({})[-1] == "ROCM"


MI300X = BackendFacts(
    kind="cuda", hip=True, arch="gfx942:sramecc+:xnack-", major=9, units=304, cpu_backend="cpp",
    ck_arches=("gfx942",), wanted_arches=(), cutlass_dir="/none",
    template_target=amdgpu("gfx942"), missing=lambda module: "",
)  # fmt: skip
H100: dict[str, Any] = {"hip": False, "arch": "sm_90", "units": 132}


def _without(*modules: str) -> Any:
    return lambda module: f"{module} is not installed" if module in modules else ""


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("TRITON", {}, ""),
        ("TRITON", {"major": 11}, ""),
        ("TRITON", {"major": 8, "arch": "gfx803:x"}, "no templates on gfx803"),
        ("TRITON", {"major": 10, "arch": "gfx1030"}, "no templates on gfx1030"),
        ("TRITON", H100, ""),
        ("TRITON", H100 | {"units": 67}, "67 multiprocessors"),
        ("TRITON", H100 | {"units": 68}, ""),
        ("TRITON", H100 | {"missing": _without("triton")}, "triton is not installed"),
        ("TRITON", {"kind": "cpu", "cpu_backend": "triton"}, ""),
        ("TRITON", {"kind": "cpu"}, "CPU"),
        ("CK", {}, ""),
        ("CKTILE", {"kind": "cpu"}, "no GPU"),
        ("CKTILE", {"wanted_arches": ("gfx90a:x",)}, "for gfx942, not for gfx90a"),
        ("CK", {"wanted_arches": ("gfx90a", "gfx942")}, ""),
        ("CK", {"missing": _without("ck4inductor")}, "comes with"),
        ("CK", {"missing": _without("ck4inductor.universal_gemm.op")}, "gemm.op is not installed"),
        (
            "CK",
            {"missing": _without("ck4inductor.universal_gemm.gen_instances")},
            "gen_instances is not installed",
        ),
        ("CUTEDSL", {}, "NVIDIA"),
        ("CUTEDSL", {**H100, "kind": "cpu"}, "NVIDIA"),
        ("CUTEDSL", H100, "for Blackwell GPUs, not for sm_90"),
        ("CUTEDSL", H100 | {"major": 10}, ""),
        ("CUTEDSL", H100 | {"major": 10, "missing": _without("cutlass")}, "cutlass is not"),
        ("NVGEMM", H100, ""),
        ("NVGEMM", H100 | {"missing": _without("cutlass")}, "cutlass is not installed"),
        ("NVGEMM", H100 | {"missing": _without("cutlass_api")}, "cutlass_api is not installed"),
        ("CPP", {"kind": "cpu"}, ""),
        ("CPP", {}, "CPUs"),
        ("CUTLASS", H100 | {"cutlass_dir": ""}, "no CUTLASS in cutlass.cutlass_dir"),
    ],
)
def test_each_reason(name: str, change: dict[str, Any], reason: str) -> None:
    lines = absent([f"conv:{name}", name], replace(MI300X, **change))
    assert len(lines) == bool(reason)
    assert all(line.startswith(f"{name}: ") and reason in line for line in lines)


def test_cutlass_needs_its_folder_and_a_large_gpu(tmp_path: Path) -> None:
    (tmp_path / "python/cutlass_library").mkdir(parents=True)
    machine = replace(MI300X, **H100, cutlass_dir=str(tmp_path))
    assert absent(["CUTLASS"], machine) == ()
    (line,) = absent(["CUTLASS"], replace(machine, units=20))
    assert "20 multiprocessors" in line


def test_a_module_whose_import_fails_is_missing_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_package").mkdir()
    (tmp_path / "broken_package/__init__.py").write_text("raise ImportError('no such symbol')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "no such symbol" in missing("broken_package.part")


@pytest.mark.skipif(not CPU, reason="of a machine without a GPU")
def test_the_facts_of_a_machine_without_a_gpu() -> None:
    with config.patch({"rocm.arch": ["gfx942"], "cpu_backend": "triton"}):
        facts = this_machine()
    assert (facts.kind, facts.major, facts.units, facts.hip) == ("cpu", 0, 0, False)
    assert (facts.wanted_arches, facts.cpu_backend) == (["gfx942"], "triton")
    assert facts.template_target == cpu() == template_target(torch.device("cpu"))
    assert "gfx942" in facts.ck_arches and facts.cutlass_dir
    assert facts.missing("json") == ""


def test_without_a_compiler_earlier_libraries_suffice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    gone = Missing(amdgpu("gfx942"), "no clang++ on PATH")
    monkeypatch.setattr(backends.targets, "find_compiler", lambda target: gone)
    assert no_library(amdgpu("gfx942")) == "no clang++ on PATH"
    monkeypatch.setattr(backends.code_cache, "has_libraries", lambda target, root: root == tmp_path)
    assert no_library(amdgpu("gfx942")) == ""
    assert compilers_for("gfx942").get(backends.HIP_LANGUAGE) is None
