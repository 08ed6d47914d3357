"""Which modes keep a kernel from being measured, and that they hear nothing of it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch


def test_the_mode_of_a_first_call_is_nobodys_will() -> None:
    torch = pytest.importorskip("torch")
    from torch._inductor import compile_fx  # noqa: F401, I001 - first, as in a program
    from torch._functorch._aot_autograd.runtime_wrappers import _AnalyzeCustomOpInputOutputMode
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    from backend.inductor.torch.state import mode_of_others, unwatched

    assert mode_of_others() == ""
    a = torch.ones(8, 8)
    with FlopCounterMode(display=False) as counter:
        with _AnalyzeCustomOpInputOutputMode():
            assert mode_of_others() in ("FlopCounterMode", "_FlopCounterMode")
            with unwatched():
                assert mode_of_others() == "" and torch._C._len_torch_dispatch_stack() == 0
                a @ a
        assert counter.get_total_flops() == 0
        a @ a
    assert counter.get_total_flops() == 2 * 8**3
    with _AnalyzeCustomOpInputOutputMode():
        assert mode_of_others() == ""
    with FakeTensorMode():
        assert mode_of_others() == "FakeTensorMode"
    told: list[str] = []
    torch.func.vmap(lambda x: told.append(mode_of_others()) or x)(a)
    assert told == ["a transform of functorch"]


def test_a_kernel_that_runs_while_code_is_written_is_a_trial() -> None:
    pytest.importorskip("torch")
    from torch._inductor.virtualized import V

    from backend.inductor.torch.autotuner import generating

    assert not generating()
    with V.set_graph_handler(object()):
        assert generating()
    assert not generating()


def test_modes_of_autotuning(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from torch._inductor import config
    from torch._inductor.template_heuristics import triton as heuristics

    from backend.inductor.torch.tuning import leaves_no_choice_to_ranks, modes

    assert modes() == ()
    monkeypatch.setattr(heuristics, "origami", object(), raising=False)  # as on ROCm
    assert modes() == ("origami",)
    with config.patch(max_autotune_gemm_search_space="EXHAUSTIVE"):
        assert modes() == ()
    with config.patch(pipeline_max_autotune_gemm=True, incremental_autotune=True):
        assert modes() == ("origami", "pipelined", "incremental")
        assert leaves_no_choice_to_ranks({})
    assert not leaves_no_choice_to_ranks({})
