"""A choice by its hash."""

from __future__ import annotations

from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.ingest.records import Dropped, Gone, Record, Seen

HASH = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


class View:
    """What someone who applies all records in order has in the end."""

    def __init__(self) -> None:
        self.tunings: dict[str, Tuning] = {}
        self.problems: list[Fault] = []
        self.batches: list[list[Record]] = []

    def apply(self, records: list[Record]) -> None:
        self.batches.append(records)
        for record in records:
            if isinstance(record, Seen):
                self.tunings[record.uid] = record.tuning
            elif isinstance(record, Dropped):
                self.tunings.pop(record.uid)
            elif isinstance(record, Gone):
                for uid in [u for u in self.tunings if u.rpartition("#")[0] == record.source]:
                    del self.tunings[uid]
                self.problems = [p for p in self.problems if p.source != record.source]
            elif isinstance(record, Fault):
                self.problems.append(record)

    @property
    def ops(self) -> list[str]:
        return [tuning.op for tuning in self.tunings.values()]
