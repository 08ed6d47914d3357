"""Configs of a kernel on copies of its arguments: what is copied, put back, compared, refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from backend.inductor.kernel_bench import (
    Arguments,
    ConfigLaunch,
    KernelBench,
    NotSampled,
    measure_kernel,
    worth_measuring,
)
from backend.measure.rounds import ChoiceBroke
from backend.model.problem import TuningKey
from backend.model.session import Session

pytestmark = pytest.mark.torch


def adds(number: float, n: int = 0) -> ConfigLaunch:
    def launch(x: Tensor, y: Tensor, n: int = 0) -> None:
        y += x + number

    return ConfigLaunch(launch)


def test_arguments_are_copied_and_each_launch_finds_what_stood_in_them() -> None:
    whole = torch.arange(12.0)
    x, y = whole[:4], torch.ones(4)
    bench = KernelBench(
        {"a": adds(1), "b": adds(1), "c": adds(2)}, Arguments([x], {"y": y, "n": 3})
    )
    a, b, c = (bench.output_of(hash) for hash in "abc")
    assert a.digest == b.digest != c.digest and a.same == a.runs == 10
    assert bench.distances == {"c": pytest.approx(1 / 6)}
    bench.renew(["a", "c"])
    assert bench.sample("a").ms > 0 and bench.sample("c").ms > 0
    assert torch.equal(whole, torch.arange(12.0)) and torch.equal(y, torch.ones(4))
    assert bench.output_of("a").digest == a.digest


def test_memory_that_arguments_share_is_shared_by_their_copies() -> None:
    whole = torch.zeros(8)

    def launch(first: Tensor, last: Tensor) -> None:
        first.fill_(1)
        assert float(last[0]) == 1 and first.data_ptr() != whole.data_ptr()

    bench = KernelBench({"a": ConfigLaunch(launch)}, Arguments([whole, whole[2:]]))
    assert bench.output_of("a").same == 10
    assert not whole.any()


INF, NAN = float("inf"), float("nan")
FP8 = torch.float8_e4m3fn


@pytest.mark.parametrize(
    ("dtype", "first", "second", "far"),
    [
        (torch.int64, 0, 7, "by up to 1.0e+00 of the largest number"),
        (torch.bool, False, True, "by up to 1.0e+00 of the largest number"),
        (FP8, 8.0, 6.0, "by up to 2.5e-01 of the largest number"),
        (torch.float32, 0.0, 9.0, "by up to 1.0e+00 of the largest number"),
        (torch.float32, INF, -INF, "by numbers that are not finite"),
        (torch.float32, INF, NAN, "by numbers that are not finite"),
        (torch.float32, 0.0, -0.0, "in bits alone"),
        (torch.complex64, 0.0, 1.0, "in numbers of a type that is not compared"),
    ],
    ids=["int64", "bool", "fp8", "zero", "signs", "nan", "bits", "complex"],
)
def test_how_far_results_differ_is_said_for_any_type(
    dtype: torch.dtype, first: float, second: float, far: str
) -> None:
    def fills(value: float) -> ConfigLaunch:
        return ConfigLaunch(lambda out: out.copy_(torch.full((4,), value)))

    launches = {"a": fills(first), "b": fills(second)}
    bench = KernelBench(launches, Arguments([torch.ones(4, dtype=dtype)]), caches="cold")
    key, session = TuningKey("kernel", "inputs", "highest"), Session("s")
    found = measure_kernel(key, bench, {"a": "A", "b": "B"}, session, 0.05, {})
    assert f"B differs from A {far}" in found.trouble


def test_what_its_tuner_does_before_a_launch_is_done_and_not_timed() -> None:
    counter = torch.full((4,), 7)
    launch = ConfigLaunch(lambda t: t.add_(1), lambda t: t.zero_())
    bench = KernelBench({"a": launch}, Arguments([counter]), caches="cold")
    assert bench.output_of("a").same == 10
    assert counter.tolist() == [7] * 4


def test_whole_numbers_that_run_away_are_not_measured_hot() -> None:
    counter = torch.zeros(4, dtype=torch.int64)
    launches = {"a": ConfigLaunch(lambda t: t.add_(1))}
    with pytest.raises(ChoiceBroke, match="changes whole numbers that it reads"):
        KernelBench(launches, Arguments([counter]), caches="hot").output_of("a")
    highest = 0

    def launch(t: Tensor) -> None:
        nonlocal highest
        t.add_(1)
        highest = max(highest, int(t.max()))

    bench = KernelBench({"a": ConfigLaunch(launch)}, Arguments([counter]), caches="cold")
    bench.output_of("a")
    bench.renew(["a"])
    for _ in range(3):
        bench.sample("a")
    assert highest == 1


def test_a_config_that_is_not_the_same_each_time_is_told() -> None:
    calls = iter(range(1000))
    bench = KernelBench(
        {"a": ConfigLaunch(lambda t: t.fill_(next(calls) // 4))},
        Arguments([torch.ones(3)]),
        caches="cold",
    )
    seen = bench.output_of("a")
    assert 0 < seen.same < seen.runs


def test_one_that_raises_is_out_and_its_reason_is_told() -> None:
    def launch(t: Tensor) -> None:
        raise RuntimeError("no\nluck")

    bench = KernelBench({"a": ConfigLaunch(launch)}, Arguments([torch.ones(3)]))
    with pytest.raises(ChoiceBroke, match="RuntimeError: no luck"):
        bench.output_of("a")


class Descriptor:
    def __init__(self, base: Tensor) -> None:
        self.base = base


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((3, None, 0.5), "no argument is a tensor"),
        ((torch.ones(2), Descriptor(torch.ones(2))), "argument 1 is a Descriptor, which may refer"),
        ((torch.ones(2).to_sparse(),), "layout torch.sparse_coo"),
        (((torch.ones(2),),), "argument 0 is a tuple"),
        ((torch.empty(1 << 46, device="meta"),), "argument 0 is on no device"),
    ],
)
def test_what_cannot_be_copied_is_refused(arguments: tuple[object, ...], why: str) -> None:
    with pytest.raises(NotSampled, match=why):
        Arguments(arguments)


def test_arguments_larger_than_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from backend.inductor import kernel_bench

    monkeypatch.setattr(kernel_bench, "free_bytes", lambda device: 1000)
    with pytest.raises(NotSampled, match="no memory for copies"):
        KernelBench({}, Arguments([torch.ones(1 << 18)]))


def test_worth_are_those_near_the_best_and_two_in_any_case() -> None:
    assert worth_measuring({"a": 2.0, "b": 1.0, "c": 1.05, "d": 1.09}) == ["b", "c", "d"]
    assert worth_measuring({"a": 2.0, "b": 1.0}) == ["b", "a"]
    assert len(worth_measuring({str(at): 1.0 for at in range(30)})) == 8
    assert worth_measuring({}) == []
