"""The GPU's harness, on the CPU: operands are copied, watched, and copied back."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
import torch

from backend.toolchain.target import cpu
from tests.gpu import numerics
from tests.support.gpu_lab import Gpu
from tests.support.template_lab import Memory, memory_for


@pytest.mark.parametrize("at", [-1, 60, 0])
def test_what_is_written_is_seen_where_it_belongs_and_elsewhere(at: int) -> None:
    """Lines of two elements, the last of which ends at byte 56."""
    memory, tensor = memory_for(torch.float32, (4, 2), (4, 1))
    before = memory.bytes.clone()

    def entry(address: int, *rest: object) -> int:
        assert address != tensor.data_ptr() and address % 16 == tensor.data_ptr() % 16
        ctypes.memset(address + at, 0, 1)
        return 0

    said = Gpu("cpu").start(entry, [tensor], Memory(32))
    first = tensor.data_ptr() - memory.address
    if at:
        assert said == "wrote outside of an operand or of the workspace"
    else:
        assert said == 0 and memory.bytes[first] == 0
        before[first] = 0
    assert torch.equal(memory.bytes, before)


def test_mistakes_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a kernel for groups of rows, and of one whose last group ends too early."""
    right = next(case for case in numerics.cases(cpu()) if case.kind == "grouped")
    rendered = right.rendered()
    assert rendered.source.count("args.rows = last;") == 1
    source = rendered.source.replace("args.rows = last;", "args.rows = last - 1;")
    wrong = replace(right, name="wrong", rendered=lambda: replace(rendered, source=source))
    words = ["--device", "cpu", "--seconds", "60", "--least"]
    behind = ["--after", wrong.label, "--names"]
    for cases, more, code in (
        ([right], [], 0),
        ([right, wrong], [], 1),
        ([wrong, right], behind, 0),
    ):
        monkeypatch.setattr(numerics, "cases", lambda target, cases=cases: cases)
        assert numerics.main([*words, *more]) == code
        said, names = capsys.readouterr()
        assert ("WRONG grouped wrong" in said) == bool(code)
        assert (f"trying {right.label}, seed 1\n" in names) == bool(more)
        assert "1 whole rounds: grouped " in said
