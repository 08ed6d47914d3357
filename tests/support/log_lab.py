"""AUTOTUNE tables of real and hand-made logs, and a reader that takes them in pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import strategies as st

from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.ingest.formats.stderr_log import StderrLog
from rocm_tui.ingest.records import Dropped, Record, Seen
from tests.support.places import CORPUS

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")

LOGS = sorted(CORPUS.glob("*.log")) if CORPUS.is_dir() else []


class Result:
    """The last version of each tuning, and all problems."""

    def __init__(self, records: list[Record]) -> None:
        self.by_uid: dict[str, Tuning] = {}
        for record in records:
            if isinstance(record, Seen):
                self.by_uid[record.uid] = record.tuning
            elif isinstance(record, Dropped):
                del self.by_uid[record.uid]
        self.problems = [r for r in records if isinstance(r, Fault)]

    @property
    def tunings(self) -> list[Tuning]:
        return list(self.by_uid.values())

    @property
    def empty(self) -> list[Fault]:
        """Headers without rows."""
        return [p for p in self.problems if p.what.startswith("no readable rows follow AUTOTUNE")]

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Result)
        mine, theirs = (sorted(map(repr, r.problems)) for r in (self, other))
        return self.by_uid == other.by_uid and mine == theirs


def read(data: bytes | str, pieces: list[int] | None = None) -> Result:
    """Feed `data`, cut at `pieces`."""
    raw = data.encode() if isinstance(data, str) else data
    reader = StderrLog("x.log")
    records: list[Record] = []
    cuts = sorted({0, len(raw), *(piece % (len(raw) + 1) for piece in pieces or [])})
    for start, stop in pairwise(cuts):
        records += reader.feed(raw[start:stop])
    return Result(records + reader.close())


MM = """\
AUTOTUNE mm(64x32, 32x16)
strides: [32, 1], [16, 1]
dtypes: torch.bfloat16, torch.bfloat16
  mm 0.0100 ms 100.0%
  triton_mm_3 0.0200 ms 50.0% BLOCK_M=32, num_warps=2
SingleProcess AUTOTUNE benchmarking takes 1.5000 seconds and 0.2500 seconds precompiling for 2 choices
"""  # noqa: E501

BMM = """\
AUTOTUNE bmm(8x128x256, 8x256x192)
strides: [32768, 256, 1], [49152, 192, 1]
dtypes: torch.float32, torch.float32
  cpp_CppMicroGemmFP32Vec_0 0.3000 ms 100.0%
  bmm 0.4000 ms 75.0%
SubProcess AUTOTUNE benchmarking takes 3.0 seconds and 0.1 seconds precompiling for 2 choices
"""

SNIPPETS = st.sampled_from(
    [
        *MM.splitlines(keepends=True),
        *BMM.splitlines(keepends=True),
        "Autotune Choices Stats:\n",
        '{"num_choices": 2, "best_kernel": "mm", "best_time": 0.01}\n',
        '{"num_choices": 2, "best_kernel": "mm", "best_time": 1' + "0" * 5000 + "}\n",
        '{"num_choices": ' + "[" * 100_000 + "\n",
        "AUTOTUNE mm(",
        "AUTOTUNE f((((1x2)\n",
        "AUTOTUNE f(99999999999999999999999x1)\n",
        "[rank1]:",
        "\r",
        "\x1b]52;c;aGk=\x07",
        "\x1b[2J\x1b[31m",
        "\x9b31m",
        "  x nan ms nan%\n",
        "  x 1e5 ms 3%\n",
        "strides: [s0, 1], [\n",
        "out of resource\n",
        "...\n",
        "\\n",
        "AUTOTUNE mm(64x32, 32x16)\n  mm 0.0100 ms  100.0%\n",
        "  A='x', B=2 0.0200 ms 50.0%\n",
        "Triton autotuning for function f,\n",
        "Triton autotuning for function g finished after 1.0s; best config selected: A: 1;\n",
        "finished after 2.50s,\n",
        "best config selected: B: 2, num_warps: 4;\n",
        "\0\xff\n",
    ]
)

LOGLIKE = st.lists(st.one_of(SNIPPETS, st.text(max_size=30)), max_size=40).map("".join)

MM_LOG = """AUTOTUNE mm(64x32, 32x16)
strides: [32, 1], [16, 1]
dtypes: torch.float16, torch.float16
  triton_mm_1 0.0100 ms 100.0% BLOCK_M=16, num_warps=4
  mm 0.0200 ms 50.0%
SingleProcess AUTOTUNE benchmarking takes 1.5000 seconds and 0.5000 seconds precompiling for 2 choices
"""  # noqa: E501
"""A log of one tuning of two choices."""
