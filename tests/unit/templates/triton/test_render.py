"""Marks that are filled late, and sizes as text."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._sympy.functions import CeilDiv, FloorDiv, ModularIndexing

from backend.errors import ExpressionError, HookError
from backend.templates.triton.kernel import PartialRender, ceildiv, divides, mark, print_size

TEXT = f"{mark('TOP')}\n    body\n    {mark('END')}\nlast"


def test_hooks_run_in_their_own_order_and_not_in_the_texts() -> None:
    ran: list[str] = []

    def hook(name: str, text: str) -> str:
        ran.append(name)
        return text

    partial = PartialRender(
        TEXT, {"END": lambda: hook("END", "a\nb"), "TOP": lambda: hook("TOP", "def")}
    )
    assert partial.open_hooks == ("END", "TOP")
    assert partial.finalize_all() == "def\n    body\n    a\n    b\nlast"
    assert ran == ["END", "TOP"]


def test_a_hooks_text_is_not_searched_for_marks() -> None:
    partial = PartialRender(mark("TOP") + mark("END"), {"TOP": lambda: mark("END"), "END": str})
    assert partial.finalize_all() == mark("END")


def test_each_hook_once() -> None:
    partial = PartialRender(TEXT, {"TOP": str, "END": str})
    with pytest.raises(HookError, match="not filled yet: TOP, END"):
        partial.text()
    partial.finalize_hook("END")
    with pytest.raises(HookError, match="hook END was filled before"):
        partial.finalize_hook("END")
    with pytest.raises(HookError, match="no hook MIDDLE; hooks here: TOP, END"):
        partial.finalize_hook("MIDDLE")
    partial.finalize_hook("TOP")
    assert "body" in partial.text()


def test_marks_and_hooks_match() -> None:
    with pytest.raises(HookError, match="@@END@@ that no hook fills"):
        PartialRender(TEXT, {"TOP": str})
    with pytest.raises(HookError, match="hook MORE has no mark"):
        PartialRender(TEXT, {"TOP": str, "END": str, "MORE": str})
    with pytest.raises(HookError, match="@@TOP@@ more than once"):
        PartialRender(TEXT + mark("TOP"), {"TOP": str, "END": str})


S0, S1 = sympy.symbols("s0 s1", integer=True, positive=True)


def sizes() -> st.SearchStrategy[sympy.Expr]:
    leaves = st.one_of(st.integers(1, 70).map(sympy.Integer), st.sampled_from([S0, S1]))

    def grown(of: st.SearchStrategy[sympy.Expr]) -> st.SearchStrategy[sympy.Expr]:
        pair, quotient = st.tuples(of, of), st.tuples(of, leaves)
        return st.one_of(
            pair.map(lambda p: p[0] + p[1]),
            pair.map(lambda p: p[0] * p[1]),
            pair.map(lambda p: sympy.Max(*p)),
            pair.map(lambda p: sympy.Min(*p)),
            quotient.map(lambda p: FloorDiv(*p)),
            quotient.map(lambda p: CeilDiv(*p)),
            quotient.map(lambda p: sympy.Mod(*p)),
            quotient.map(lambda p: sympy.floor(p[0] / p[1])),
            quotient.map(lambda p: sympy.ceiling(p[0] / p[1])),
            of.map(lambda e: ModularIndexing(e, 3, 7)),
            of.map(lambda e: ceildiv(e, 16)),
        )

    return st.recursive(leaves, grown, max_leaves=5)


@given(size=sizes(), s0=st.integers(1, 5000), s1=st.integers(1, 5000))
def test_a_printed_size_means_the_expression(size: sympy.Expr, s0: int, s1: int) -> None:
    text = print_size(size, {S0: "ks0", S1: "ks1"}.__getitem__)
    got = eval(text, {"ks0": s0, "ks1": s1, "min": min, "max": max})
    assert isinstance(got, int)
    assert got == size.subs({S0: s0, S1: s1})


@pytest.mark.parametrize("size", [S0 / 2, sympy.Rational(1, 2), sympy.sqrt(S0), S0**-1, S0**S1])
def test_no_text_for_what_may_be_no_integer(size: sympy.Expr) -> None:
    with pytest.raises(ExpressionError, match="no integer form"):
        print_size(size)


def test_divides_only_when_it_is_sure() -> None:
    plain = sympy.Symbol("s2")
    assert divides(16, 64) and not divides(16, 65)
    assert divides(16, 32 * plain) and divides(16, 16 * S0 + 48)
    assert not divides(16, plain) and not divides(16, 8 * S0)
