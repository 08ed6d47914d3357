"""Our choices among torch's, without compiling any: offered, checked, compiled ahead, logged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor import config
from torch._inductor.ir import ChoiceCaller

from backend.inductor.benchmark.errors import CompileFailed, ErrorFromChoice, WrongResult
from backend.inductor.hip.caller import ROCmTemplateCaller
from backend.inductor.hooks import lookup, templates
from backend.inductor.hooks.recording import Recorder
from backend.inductor.hooks.selector import Selector
from backend.inductor.hooks.templates import (
    RULES,
    CheckedSelector,
    CheckingSelector,
    NoValidChoicesError,
    TemplateSelector,
    budget,
    checked,
    compile_ahead,
    failures,
    install,
    install_checks,
    is_ours,
    log_entry,
    offer,
    spec_of,
    target_of,
)
from backend.inductor.torch import tuning as torch_api
from backend.toolchain.target import Target

pytestmark = pytest.mark.torch


class Theirs(ChoiceCaller):  # type: ignore[misc]  # torch gives it no type
    def __init__(self, name: str) -> None:
        super().__init__(name, [], None, "")

    def hash_key(self) -> str:
        return f"{self.name}-c1"


class Ours(ROCmTemplateCaller):
    """One of our choices, of which `kernel` is the binary."""

    def __init__(self, name: str, kernel: str = "", fails: Exception | None = None) -> None:
        self.name, self._kernel, self._fails = name, kernel or name, fails
        self.compiled = 0

    def hash_key(self) -> str:
        return f"rocm_{self.name}-c1"

    def kernel_hash_key(self) -> str:
        return self._kernel

    def precompile(self) -> None:
        self.compiled += 1
        if self._fails is not None:
            raise self._fails

    def info_dict(self) -> dict[str, Any]:
        return {"backend": "ROCM", "BLOCK_M": 64}


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    failures().clear()
    yield
    failures().clear()


@pytest.mark.parametrize(
    ("text", "most"), [(None, 8), ("", 8), ("3", 3), ("0", 0), ("-1", 8), ("many", 8)]
)
def test_the_budget_of_a_template(text: str | None, most: int) -> None:
    assert budget({} if text is None else {templates.BUDGET: text}) == most


@pytest.mark.parametrize(
    ("op", "options", "factors"),
    [
        ("addmm", {}, {"alpha": 1.0, "beta": 1.0}),
        ("addmm", {"alpha": 2, "beta": 0.5}, {"alpha": 2.0, "beta": 0.5}),
        ("baddbmm", {"beta": 0}, {"alpha": 1.0, "beta": 0.0}),
        ("addmm", {"alpha": "s0"}, None),
        ("addmm", {"beta": None}, None),
        ("scaled_mm", {}, {"fast_sums": False}),
        ("scaled_mm", {"use_fast_accum": True}, {"fast_sums": True}),
        ("scaled_mm", {"use_fast_accum": False}, {"fast_sums": False}),
    ],
)
def test_the_options_of_atens_choice_are_those_of_a_template(
    op: str, options: dict[str, Any], factors: dict[str, Any] | None
) -> None:
    read = RULES[op].factors
    assert read is not None and read(options) == factors


def test_inputs_are_in_the_order_of_a_template() -> None:
    assert RULES["mm"].ordered(["a", "b"]) == ["a", "b"]
    assert RULES["addmm"].ordered(["bias", "a", "b"]) == ["a", "b", "bias"]
    assert RULES["convolution"].ordered(["x", "w"]) == ["x", "w"], "a bias may be missing"
    assert RULES["mm"].input_reorder is None
    reorder = RULES["addmm"].input_reorder
    assert reorder is not None and sorted(reorder) == [0, 1, 2] and reorder != [0, 1, 2]
    assert RULES["packed_linear"].input_reorder is None
    tensors = [torch.zeros(n) for n in (1, 2, 3)]
    assert [len(tensor) for tensor in RULES["addmm"].arrange(tensors)] == [2, 3, 1]


def test_where_no_choice_is_left_each_has_its_reason() -> None:
    said = str(NoValidChoicesError("mm", "4x8, 8x8", [("rocm_0", "it crashed"), ("mm", "no")]))
    assert "mm(4x8, 8x8)" in said and "rocm_0: it crashed; mm: no" in said and "ATEN" in said
    assert "none was offered" in str(NoValidChoicesError("mm", "", []))
    assert NoValidChoicesError.intended


def test_each_binary_is_compiled_once_whatever_fails() -> None:
    first, same, broken = Ours("a", "k1"), Ours("b", "k1"), Ours("c", "k2", CompileFailed("no"))
    compile_ahead([first, Theirs("mm"), same, broken])
    assert first.compiled + same.compiled == 1 and broken.compiled == 1
    compile_ahead([Theirs("mm")])
    with pytest.raises(ValueError, match="another"):
        compile_ahead([Ours("d", "k3", ValueError("another"))])


def test_a_choice_of_ours_has_an_entry_of_its_own_in_the_log() -> None:
    assert log_entry(Theirs("mm")) is None
    assert log_entry(Ours("a")) == {"type": "rocm", "BLOCK_M": 64}
    assert is_ours(Ours("a")) and not is_ours(Theirs("mm"))
    assert is_ours(SimpleNamespace(_wrapped=Ours("a")))


def test_without_a_recorded_tuning_there_is_no_specification() -> None:
    assert spec_of([Theirs("mm")], (4, 4)) is None


def test_a_wrong_result_names_its_choice_and_its_output() -> None:
    class Check:
        def check(self, output: torch.Tensor, choice: Any) -> None:
            if output.numel() != 4:
                raise WrongResult("off by 420")

    checked(Check(), torch.zeros(2, 2), Theirs("mm"))  # type: ignore[arg-type]
    with pytest.raises(ErrorFromChoice, match="off by 420") as raised:
        checked(Check(), torch.zeros(2, 3), Theirs("mm"))  # type: ignore[arg-type]
    assert "(2, 3)" in str(raised.value) and "float32" in str(raised.value)


def test_nothing_is_offered_on_other_devices_ops_or_without_tuning() -> None:
    assert target_of(torch.device("meta")) is None
    layout = SimpleNamespace(device=torch.device("cpu"), dtype=torch.float32, size=[4, 4])
    with config.patch(max_autotune=True):
        assert offer("no such op", [], [], layout) == []
    with config.patch(max_autotune=False, max_autotune_gemm=False):
        assert offer("mm", [], [], layout) == []


def test_templates_are_offered_again_once_the_compiler_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reasons = ["g++ --version does not run"]
    monkeypatch.setattr(templates, "_targets", {})
    monkeypatch.setattr(templates, "no_library", lambda target: reasons.pop() if reasons else "")
    cpu = torch.device("cpu")
    assert target_of(cpu) is None
    assert target_of(cpu) == Target("cpu")


def test_our_choices_are_benchmarked_here_and_the_others_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[str, list[str]] = {}

    def benchmark(place: str, ms: float) -> Any:
        def benchmark(cls: Any, choices: Any, *args: Any, **kwargs: Any) -> dict[Any, float]:
            assert (args, kwargs) == (("args",), {"word": 1})
            seen[place] = [choice.name for choice in choices]
            return dict.fromkeys(choices, ms)

        return classmethod(benchmark)

    stock = torch_api.StockSelector
    monkeypatch.setattr(stock, "benchmark_in_sub_process", benchmark("apart", 1.0))
    monkeypatch.setattr(stock, "benchmark_in_current_process", benchmark("here", 2.0))
    choices = [Ours("a"), Theirs("mm"), Ours("b")]
    found = CheckingSelector.benchmark_in_sub_process(choices, "args", word=1)
    assert list(found) == choices and list(found.values()) == [2.0, 1.0, 2.0]
    assert seen == {"apart": ["mm"], "here": ["a", "b"]}
    assert choices[0].compiled == 1, "ahead"
    seen.clear()
    CheckingSelector.benchmark_in_sub_process(choices[:1], "args", word=1)
    CheckingSelector.benchmark_in_sub_process(choices[1:2], "args", word=1)
    assert seen == {"here": ["a"], "apart": ["mm"]}


@pytest.mark.parametrize(
    ("choice", "blameless"), [(Ours("a"), True), (Theirs("mm"), False)], ids=["ours", "theirs"]
)
def test_a_benchmark_that_fails_is_noted_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, choice: Any, blameless: bool
) -> None:
    """One of ours that did not fail through its own fault is tried again by a later process."""

    def benchmark(choice: Any, args: Any) -> float:
        raise RuntimeError("out of memory")

    noted: list[Any] = []
    monkeypatch.setattr(torch_api.StockSelector, "benchmark_choice", staticmethod(benchmark))
    monkeypatch.setattr(lookup, "note_blameless_failure", noted.append)
    selector = CheckingSelector()
    with pytest.raises(RuntimeError, match="out of memory"):
        selector.benchmark_choice(choice, None)
    ((name, reason),) = failures()
    assert name == choice.name and "out of memory" in reason
    assert noted == [choice] * blameless
    monkeypatch.setattr(
        torch_api.StockSelector, "benchmark_choice", staticmethod(lambda choice, args: math.pi)
    )
    assert selector.benchmark_choice(choice, None) == math.pi and len(failures()) == 1


@pytest.fixture
def stock_selector() -> Iterator[None]:
    before = torch_api.selector()
    yield
    torch_api.set_selector(before)


@pytest.mark.parametrize(
    ("install_ours", "kind"), [(install, TemplateSelector), (install_checks, CheckedSelector)]
)
def test_our_selector_is_replaced_once_and_keeps_its_parts(
    stock_selector: None, install_ours: Any, kind: type
) -> None:
    torch_api.set_selector(None)
    install_ours()
    assert torch_api.selector() is None, "the hooks are off"
    parts = Recorder(), object()
    torch_api.set_selector(Selector(*parts))  # type: ignore[arg-type]
    install_ours()
    ours = torch_api.selector()
    assert type(ours) is kind and ours.parts == parts
    install_ours()
    assert torch_api.selector() is ours
    assert getattr(ours, "offers_templates", False) is (kind is TemplateSelector)
    install()
    install_checks()
    assert type(torch_api.selector()) is TemplateSelector


def test_what_our_templates_raise_costs_only_themselves(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []

    def stock(selector: Any, name: str, choices: Any, nodes: Any, layout: Any, **more: Any) -> Any:
        seen.append((list(choices), more, list(failures())))
        return "node", choices[0]

    def broken(*_: Any) -> Any:
        raise RuntimeError("ours")

    def one(name: str, choices: Any, nodes: Any, layout: Any) -> list[Any]:
        assert (name, nodes, layout) == ("mm", [], "layout")
        return [Ours("a")]

    scheduled: list[bool] = []
    monkeypatch.setattr(Selector, "__call__", stock)
    monkeypatch.setattr(templates, "schedule", lambda: scheduled.append(True))
    monkeypatch.setattr(templates, "offerable", lambda ours, choices: ours)
    selector = TemplateSelector(Recorder(), object())  # type: ignore[arg-type]
    failures().append(("earlier", "of another tuning"))
    for offer_ours in (broken, one):
        monkeypatch.setattr(templates, "offer", offer_ours)
        selector("mm", [Theirs("mm")], [], "layout", word=1)
    names = [[choice.name for choice in choices] for choices, _, _ in seen]
    assert names == [["mm"], ["mm", "a"]] and seen[0][1:] == ({"word": 1}, [])
    assert scheduled == [True, True]
    assert "our templates are not offered" in capfd.readouterr().err


def test_where_no_choice_is_left_the_failures_are_in_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stock(selector: Any, name: str, choices: Any, nodes: Any, layout: Any) -> Any:
        failures().append(("a", "it crashed"))
        raise torch_api.StockNoValidChoicesError("none")

    monkeypatch.setattr(Selector, "__call__", stock)
    monkeypatch.setattr(templates, "schedule", lambda: None)
    monkeypatch.setattr(templates, "offer", lambda *_: [])
    node = SimpleNamespace(get_size=lambda: [4, 8])
    selector = TemplateSelector(Recorder(), object())  # type: ignore[arg-type]
    with pytest.raises(NoValidChoicesError, match=r"mm\(4x8, 4x8\).*a: it crashed"):
        selector("mm", [], [node, node], "layout")
