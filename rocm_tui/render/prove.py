"""What stock processes say of the pins of a graph: a table, a note, JSON."""

from __future__ import annotations

from math import isfinite
from typing import Any

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.render.improve import between, change
from rocm_tui.render.table import Field, attributes, text_table
from rocm_tui.search.proof import Proof
from rocm_tui.session import numbers as fmt


def figure(proof: Proof) -> str:
    """`prove: graph b3f21aa 4.4 % faster (3.9 to 4.9 %), 5 pairs of stock processes`."""
    pairs = counted(proof.pairs, "pair")
    return f"prove: graph {proof.graph} {result(proof)}, {pairs} of stock processes"


def result(proof: Proof) -> str:
    """`4.4 % faster (3.9 to 4.9 %)`; `tied (-0.2 % to +0.3 %)`."""
    name = change(proof.ratio) if proof.verdict in ("faster", "slower") else proof.verdict
    return f"{name} ({between(proof.low, proof.high)})"


def _kernels(proof: Proof) -> str:
    before, after = proof.kernels_before, proof.kernels_after
    if before is None or after is None:
        return fmt.NONE
    return str(after) if before == after else f"{before} → {after}"


PROOFS: tuple[Field[Proof], ...] = (
    Field("graph", "GRAPH", text=lambda proof: proof.graph, about="the graph's id"),
    Field(
        "before", "WITHOUT", right=True, text=lambda proof: fmt.duration(proof.before),
        about="a pass in stock processes without the pins",
    ),
    Field(
        "after", "WITH PINS", right=True, text=lambda proof: fmt.duration(proof.after),
        about="a pass in stock processes with the person's cache dir",
    ),
    Field(
        "result", "THE GRAPH IS", right=True, text=result,
        about="by how much, with the 95 % interval",
    ),
    Field("kernels", "KERNELS", right=True, text=_kernels, about="how many a pass calls"),
    Field(
        "pairs", "PAIRS", right=True, text=lambda proof: str(proof.pairs),
        about="of processes, in drawn order",
    ),
)  # fmt: skip


def proof_text(proof: Proof) -> str:
    return text_table(PROOFS, [proof])


def sentences(proof: Proof) -> list[str]:
    """What became of the pins, as the compiled graphs that these processes left tell."""
    count = len(proof.pins)
    lines = [
        f"{status.pin.label} ({status.pin.id}) is {status.state}: {status.detail}"
        for status in proof.contradicted
    ]
    if not lines:
        lines = [f"{counted(count, 'pin')} of the graph, all active"]
    return [plain(line) for line in lines]


def proof_json(proof: Proof) -> dict[str, Any]:
    """A proof; an end of the interval that is not known is null."""
    numbers = attributes(proof, "ratio low high before after")
    return {
        **attributes(proof, "graph verdict pairs kernels_before kernels_after"),
        **{name: value if isfinite(value) else None for name, value in numbers.items()},
        "pins": [{"id": s.pin.id, "hash": s.pin.hash, "state": s.state} for s in proof.pins],
    }
