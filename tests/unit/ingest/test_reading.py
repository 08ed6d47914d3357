"""Standard input, read from a pipe to its end."""

from __future__ import annotations

import os

from rocm_tui.ingest.follow.sources import Stdin
from rocm_tui.ingest.records import STDIN, Record, Unread


def piped(*parts: bytes) -> tuple[Stdin, list[Record]]:
    """What is read of a pipe, a write at a time."""
    reader, writer = os.pipe()
    stdin, records = Stdin(reader), list[Record]()
    for part in parts:
        os.write(writer, part)
        records += stdin.read()
    os.close(writer)
    records += stdin.read_all()
    os.close(reader)
    return stdin, records


def test_a_document_that_is_cut_off_is_one_problem() -> None:
    stdin, (problem,) = piped(b'{"sys', b'tem": {}, "cache": {')
    assert isinstance(problem, Unread) and problem.source == STDIN
    assert "not JSON" in problem.what and problem.what.isprintable()
    status = stdin.status()
    assert (status.format, status.read, status.problems) == ("autotune cache", 25, 1)
