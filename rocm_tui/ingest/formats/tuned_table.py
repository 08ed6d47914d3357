"""How other tuners' tables are known. What reads them is loaded with the first one."""

from __future__ import annotations

import re

from backend.tables.model import HIPBLASLT, MIOPEN
from rocm_tui.ingest.formats.reader import DOCUMENTS, LOGS, TABLES, Format, StreamReader
from rocm_tui.ingest.records import Record


def of_lines(tuner: str, begins: re.Pattern[bytes], suffixes: frozenset[str]) -> Format:
    """The format of a table that is read line by line."""

    def stream(source: str) -> StreamReader:
        from rocm_tui.ingest.formats.table_entries import reader_of  # few sources are tables

        return reader_of(tuner, source)

    return Format(tuner, begins=begins, suffixes=suffixes, stream=stream)


def of_database(tuner: str, begins: re.Pattern[bytes], suffixes: frozenset[str]) -> Format:
    """The format of a table whose lines are packed in a file that is none of text."""

    def document(data: bytes, source: str) -> list[Record]:
        from rocm_tui.ingest.formats.table_entries import records_of_lines  # few sources are tables

        return records_of_lines(tuner, data, source)

    return Format(f"{tuner} db", begins=begins, suffixes=suffixes, document=document)


def of_document(
    tuner: str,
    suffixes: frozenset[str],
    begins: re.Pattern[bytes],
    place: re.Pattern[str],
) -> Format:
    """The format of a table that is one document."""

    def document(data: bytes, source: str) -> list[Record]:
        from rocm_tui.ingest.formats.table_entries import records_in  # few sources are tables

        return records_in(tuner, data, source)

    return Format(tuner, begins=begins, place=place, suffixes=suffixes, document=document)


_LADDER = rb'\s*"(?:M_[LG]EQ_\d+|any|small_M)"\s*:\s*\{'
FORMATS = (
    of_lines(
        "tunableop",
        re.compile(rb"Validator,|[A-Za-z0-9]{1,40}TunableOp_[^,\n]{1,200},"),
        TABLES,
    ),
    of_lines("hipblaslt", HIPBLASLT, TABLES | LOGS | {".config"}),
    of_lines("miopen", MIOPEN, LOGS),
    of_lines(
        "aiter",
        re.compile(
            rb"(?:\w{1,40},){0,20}(?:M,N,K|m,n,k|token,model_dim,inter_dim,expert"
            rb"|(?:V,BT,H,Hg|H,Hg,V),is_varlen)(?:,|\s|\Z)"
        ),
        TABLES,
    ),
    of_document(
        "moe",
        DOCUMENTS,
        re.compile(rb'\{\s*(?:"triton_version"[^,]{1,60},\s*)?"\d+"\s*:\s*\{\s*"BLOCK_SIZE_M"'),
        re.compile(r"(?:\A|/)(?:E=\d+,N=\d+|N=\d+,K=\d+),device_name=[^/]+\.json\Z"),
    ),
    of_document(
        "aiter triton",
        DOCUMENTS,
        re.compile(rb"\{" + _LADDER),
        re.compile(r"(?:\A|/)gfx[0-9a-f]{2,6}(?:-|/(?:triton|gluon)/)[^\n]+\.json\Z"),
    ),
)
_SQLITE = rb"(?s)SQLite format 3\0.{0,16000}?"
PACKED = (of_database("miopen", re.compile(_SQLITE + b"perf_db"), frozenset({".db", ".udb"})),)
"""Those that are no text."""
KERNELS = Format(
    "miopen kernels",
    begins=re.compile(_SQLITE + b"kern_db"),
    refused="kernels that MIOpen compiled; which one is fast stands in its find-db",
)
"""What lies beside them, and is told only where it is asked for by name."""
NAMES = frozenset(format.name for format in (*FORMATS, *PACKED))
