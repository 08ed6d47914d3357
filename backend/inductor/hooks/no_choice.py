"""What is raised where no choice of a tuning is left."""

from __future__ import annotations

from collections.abc import Iterable

from backend.inductor.torch.tuning import StockNoValidChoicesError


class NoValidChoicesError(StockNoValidChoicesError):  # type: ignore[misc]
    """No choice is left: says of which op, on which inputs, and what each one died of."""

    intended = True

    def __init__(self, op: str, inputs: str, failures: Iterable[tuple[str, str]]) -> None:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failures)
        super().__init__(
            f"no choice for {op}({inputs}) can be used: {reasons or 'none was offered'}. "
            "Add ATEN to TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS to have one that always works"
        )
