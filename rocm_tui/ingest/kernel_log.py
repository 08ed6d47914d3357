"""Triton's own autotuning as a log tells it: four lines, or one, make a tuning."""

from __future__ import annotations

from backend.model.choice import Choice
from backend.model.tuning import Seconds, Tuning
from rocm_tui.ingest.log_lines import Origin
from rocm_tui.ingest.records import Seen, uid_of
from rocm_tui.ingest.triton_lines import Kernel


class KernelLog:
    """Collects what each stream says of its kernel until the configuration is told."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._begun: dict[str, Kernel] = {}

    def take(self, kernel: Kernel, who: Origin, n: int) -> Seen | None:
        """A line's words; the tuning if they complete one, which is the log's `n`th."""
        if kernel.name is None:
            before = self._begun.get(who.key)
            if before is None:
                return None  # prose, or the rest of what was cut off
            kernel = before.then(kernel)
        if kernel.config is None:
            self._begun[who.key] = kernel
            return None
        self._begun.pop(who.key, None)
        return Seen(uid_of(self.source, n), self._tuning(kernel, who))

    def _tuning(self, kernel: Kernel, who: Origin) -> Tuning:
        """What is known: which configuration was taken. Nobody says how fast it is."""
        return Tuning(
            op=kernel.name or "",
            inputs_key=kernel.key,
            choices=(Choice(name=kernel.name, description=kernel.config or ""),),
            seconds=Seconds(benchmark=kernel.seconds),
            selected_by="timing",
            rank=who.rank,
            sources=(self.source,),
        )
