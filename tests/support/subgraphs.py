"""Hashes of subgraphs as Inductor makes them: they hold the text of a graph."""

from __future__ import annotations


def decompose_k(splits: int) -> str:
    """The hash of a product that is split along K."""
    nodes = (
        "%arg0_1 : [num_users=1] = placeholder[target=arg0_1]",
        f"%view : [num_users=1] = call_function[target=view](args = (%arg0_1, [32, {splits}]))",
        "return view",
    )
    head = f"decompose_k_mm_{splits}_split-[32, 64]-[64, 16]-[64, 1]-[16, 1]-graph():"
    return "\n    ".join((head, *nodes))
