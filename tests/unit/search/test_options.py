"""Which options of Inductor are tried on which device, and how a person names one."""

from __future__ import annotations

import pytest

from backend.model.graph import CompileOption
from backend.wire.codec import dumps, loads, read, to_json
from backend.wire.jobs import TrialJob
from rocm_tui.errors import UsageError
from rocm_tui.search.options import (
    DEFAULT,
    OPTIONS,
    OUTSIDE,
    compile_option,
    graph_option,
    worth_trying,
)


def test_a_device_gets_its_own_options_but_those_that_the_program_has() -> None:
    names = {kind: {option.name for option in worth_trying(kind)} for kind in ("cpu", "cuda")}
    assert "coordinate_descent_tuning" in names["cuda"] - names["cpu"]
    assert "cpp.enable_tiling_heuristics" in names["cpu"] - names["cuda"]
    fused = CompileOption("epilogue_fusion", "True")
    assert fused in worth_trying("cpu") and fused not in worth_trying("cpu", [fused])


def test_inductors_own_value_is_tried_where_the_program_has_another() -> None:
    own = CompileOption("cpp.simdlen", DEFAULT)
    assert own in worth_trying("cpu", [CompileOption("cpp.simdlen", "1")])
    for program in ([], [CompileOption("cpp.simdlen", "None")]):
        assert own not in worth_trying("cpu", program)


def test_each_option_is_named_once() -> None:
    assert len({(name, value) for name, value, _ in OPTIONS}) == len(OPTIONS)


def test_a_person_names_an_option() -> None:
    assert compile_option("epilogue_fusion=false") == CompileOption("epilogue_fusion", "False")
    assert compile_option(" triton.multi_kernel = 1 ") == CompileOption("triton.multi_kernel", "1")
    for wrong in ("", "x", "=1", "x="):
        with pytest.raises(UsageError, match="NAME=VALUE"):
            compile_option(wrong)


def test_an_option_that_cannot_change_a_captured_graph_is_not_tried_in_it() -> None:
    """A trial would call its equal arms tied, and the program would differ."""
    with pytest.raises(UsageError, match="`run --option freezing=True` and without"):
        graph_option("freezing=true")
    assert compile_option("freezing=true").name in OUTSIDE  # a program may be run with it
    assert graph_option("combo_kernels=True") == CompileOption("combo_kernels", "True")
    assert OUTSIDE.isdisjoint(name for name, _, _ in OPTIONS)


def test_options_and_choices_cross_to_a_worker() -> None:
    job = TrialJob("abc", ((), (CompileOption("combo_kernels", "True"),)))
    assert read(TrialJob, loads(dumps(to_json(job)))) == job
