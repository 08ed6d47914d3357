"""The templates that are offered for an op."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from backend.inductor.hip.template import ROCmGemmTemplate, ROCmSkinnyGemmTemplate
from backend.inductor.hooks.templates import RULES
from backend.inductor.triton.template import TritonGemmTemplate
from backend.model.origin import own_template


def test_templates_that_may_be_offered_together_have_names_of_their_own() -> None:
    """A choice is named for its template, and the hash of a choice has the name too. Int8 weights
    share those of products, which are never offered for their op."""
    for op, rule in RULES.items():
        products = (ROCmGemmTemplate, ROCmSkinnyGemmTemplate, TritonGemmTemplate)
        kinds = products if rule.template is None else (rule.template, rule.skinny, rule.direct)
        names = [kind.template for kind in kinds if kind is not None]
        assert len(set(names)) == len(names), op
        for name in names:
            assert own_template(f"rocm_{name}-0") == name
