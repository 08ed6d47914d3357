"""Rules of `lint` about what loaders do with a table: ignore it, stop at it, skip its rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from backend.counted import counted
from backend.tables.hipblaslt import INDEX
from backend.tables.model import BOM, MAX_LINE, TORN, TableDevice
from backend.tables.tunableop import is_of_layout
from rocm_tui.tables.device import may_be
from rocm_tui.tables.findings import Given, Hit, Level, sentence
from rocm_tui.tables.sheet import UNITS_ARCH, Sheet, SheetRow

_OF_VERSION = {
    "PT_VERSION": "torch",
    "HIP_VERSION": "hip",
    "ROCM_VERSION": "rocm",
    "HIPBLASLT_VERSION": "hipblaslt",
    "ROCBLAS_VERSION": "rocblas",
}
"""The library whose version each validator records, as `--torch` and the like name it."""


_ROCM = frozenset((*_OF_VERSION, "GCN_ARCH_NAME")) - {"PT_VERSION"}


def _all_rows(sheet: Sheet) -> str:
    rows = len(sheet.rows)
    return f"PyTorch ignores {'its row' if rows == 1 else 'all ' + counted(rows, 'row')}"


def validator_missing(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find files without a validator that PyTorch requires."""
    facts = sheet.facts
    missing = [] if "PT_VERSION" in facts else ["PT_VERSION"]
    on_rocm = _ROCM & set(facts) or any(
        row.entry.solution.startswith(("Gemm_Hipblaslt", "Gemm_Rocblas")) for row in sheet.rows
    )
    if on_rocm:
        missing += [name for name in ("HIPBLASLT_VERSION", "ROCBLAS_VERSION") if name not in facts]
        if not {"HIP_VERSION", "ROCM_VERSION"} & set(facts):
            missing.append("HIP_VERSION")
        if "GCN_ARCH_NAME" not in facts and _release(facts.get("PT_VERSION", "")) >= (2, 4):
            missing.append("GCN_ARCH_NAME")
    if missing:
        what = f"{_all_rows(sheet)}: no {', '.join(missing)} among the validators"
        todo = "take the lines `Validator,...` from a file that this PyTorch wrote"
        yield sentence(None, what, todo)


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"(\d{1,4})\.(\d{1,4})", version, re.ASCII)
    return (int(match[1]), int(match[2])) if match else (99,)


def validator_twice(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find files that were concatenated: the last line of a validator counts."""
    seen: dict[str, str] = {}
    for name, value in sheet.table.facts:
        if seen.setdefault(name, value) != value:
            what = (
                f"{name} is given as {seen[name]} and as {value}: PyTorch takes the last one for "
                "all rows, also for those tuned with the first"
            )
            yield sentence(None, what, "keep results of different libraries in different files")


def validator_version(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find a file that was tuned with other libraries than the given ones."""
    for name, library in _OF_VERSION.items():
        wanted, written = given.versions.get(library), sheet.facts.get(name)
        if wanted is None or written is None or _is_version(written, wanted):
            continue
        version = _decoded(name, written)
        same = _is_version(version, wanted) or _is_version(wanted, version)
        if version == written or not same:
            what = f"{_all_rows(sheet)}: {name} is {written}, not {wanted}"
            yield sentence(None, what, "tune again: an index may now mean another solution")


def validator_device(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find a file of TunableOp for another architecture."""
    arch = sheet.facts.get("GCN_ARCH_NAME")
    if given.device is None or arch is None:
        return
    own, rows = arch.strip(), counted(len(sheet.rows), "row")
    wanted = given.device.name or given.device.arch
    if (own if ":" in wanted else own.partition(":")[0]) != wanted:
        what = f"PyTorch on {wanted} ignores all {rows}: GCN_ARCH_NAME is {own}"
        yield sentence(None, what, "tune again on that device")


def _is_version(written: str, wanted: str) -> bool:
    """`2.9` means any 2.9.x; of a commit the first letters do."""
    return written == wanted or (
        written.startswith(wanted) and (len(wanted) >= 7 or written[len(wanted)] in ".-+")
    )


def _decoded(name: str, written: str) -> str:
    """Return `7.2` of HIP's 702, `7.1.0` of 70100, `7.0.51831` of 70051831, and `1.2.0-2a38` of
    hipBLASLt's 100200-2a38; any other text as it is."""
    match = re.fullmatch(r"(\d{3,9})(-.*)?", written, re.ASCII)
    if match is None or name not in ("HIP_VERSION", "HIPBLASLT_VERSION"):
        return written
    rest = int(match[1])
    if name == "HIPBLASLT_VERSION":
        steps = [100_000, 100]
    else:
        steps = [100] if rest < 10**4 else [10_000, 100] if rest < 10**7 else [10_000_000, 100_000]
    parts = []
    for step in steps:
        part, rest = divmod(rest, step)
        parts.append(part)
    return ".".join(map(str, (*parts, rest))) + (match[2] or "")


def line_ends(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find Windows line ends and byte order marks.

    Readers in C++ keep the \\r, so whole words no longer match. They and Python's JSON take the
    mark for a part of the first word; pandas ignores it.
    """
    data, tuner = sheet.table.data, sheet.tuner
    validated = tuner == "tunableop" and sheet.is_tuned
    what = ""
    if data.startswith(BOM):
        if validated and data[len(BOM) :].startswith(b"Validator,"):
            what = f"{_all_rows(sheet)}: a byte order mark hides the first validator"
        elif tuner == "hipblaslt":
            what = "a byte order mark hides the first line from the library"
        elif tuner in ("moe", "aiter triton"):
            what = "a byte order mark before the JSON: json.load fails, and so does the program"
    if what:
        yield sentence(1, what, "write it again without the mark (sed -i '1s/^\\xEF\\xBB\\xBF//')")
    what = ""
    if validated and re.search(rb"^Val.*\r\n", data, re.MULTILINE):
        what = f"{_all_rows(sheet)}: no validator that ends in \\r (Windows line ends) matches"
    elif tuner == "hipblaslt" and data.partition(b"\n")[0].endswith(b"\r"):
        what = "Windows line ends: a Git Version that ends in \\r matches no library"
    if what:
        yield sentence(1, what, "convert the line ends to \\n (dos2unix)")


def other_layout(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find solutions of another layout than the op's, which end the program."""
    for row in sheet.rows:
        if not is_of_layout(row.entry.solution, row.entry.op):
            what = "with a solution for another layout than the op's, which ends the program"
            detail = f"{row.entry.solution} for {row.entry.op}"
            yield Hit(row.line, what, "remove the row", detail)


def bare_index(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find hipBLASLt indices, which are positions in one build of the library."""
    if sheet.tuner == "aiter":
        for row in sheet.rows:
            if row.cells.get("libtype") == "hipblaslt" and row.cells.get("solidx", "-1") != "-1":
                what = "whose solution is an index into one build of hipBLASLt"
                yield Hit(row.line, what, "tune them again after an upgrade of ROCm", level="note")
        return
    version = next((value for name, value in sheet.table.facts if "git" in name.lower()), "")
    wanted = given.versions.get("hipblaslt", "").rpartition("-")[2]
    level: Level | None = None
    what = ": the index is invalid for any other build of hipBLASLt"
    if not version:
        level = "error"
        what = " in a file without a Git Version, which newer libraries never use"
    elif wanted and not (version.startswith(wanted) or wanted.startswith(version)):
        what, level = f", of Git Version {version}: {wanted} never uses them", "error"
    todo = "tune with a hipBLASLt that writes solution_name"
    for row in sheet.rows:
        if not row.cells.get("solution_name", ""):
            yield Hit(row.line, f"without a solution_name{what}", todo, level=level)


def unreadable(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find lines that cannot be read as rows."""
    fails = sheet.tuner == "aiter"
    for fault in sheet.table.problems:
        level: Level | None = None if fails or sheet.tuner in ("moe", "aiter triton") else "warning"
        todo = "AITER's reader may stop here; correct or remove it" if fails else "correct it"
        if fault.what == TORN:
            todo = f"{_TORN.get(sheet.tuner, 'remove it')}, or tune it again"
        yield Hit(fault.line, f"unreadable: {fault.what}", todo, subject="line", level=level)


_TORN = {
    "tunableop": "PyTorch says could not parse line, or uses what is left: remove it",
    "aiter": "AITER reads nan for missing cells: remove it",
}


def no_rows(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find tables without rows."""
    table = sheet.table
    if table.entries or any(fault.line is None for fault in table.problems):
        return
    beside = "only validators" if table.facts else "only column names"
    what = f"no rows, {beside}" if table.facts or table.columns else "no rows"
    untuned = sheet.tuner == "aiter" and "us" not in table.columns
    todo = "" if untuned else "tune, or remove the file"
    yield sentence(None, what, todo, "note" if untuned else None)


def short_row(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find AITER rows that were written for another header, or cut after their solution."""
    for row in sheet.rows:
        if sheet.table.text(row.entry).count(b",") + 1 < len(sheet.table.columns):
            what = "with fewer cells than columns: the last cells belong to the wrong columns"
            yield Hit(row.line, what, "write them again with AITER's tuner")


def unused_row(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find rows that no call ever uses."""
    if sheet.tuner == "hipblaslt":
        yield from _unread_by_hipblaslt(sheet)
        return
    for row in sheet.rows:
        if row.entry.op != "fused_moe" or row.m is None:
            continue
        if row.cells.get("_tag") == "flydsl_fallback":
            what = "tagged flydsl_fallback, which the loader ignores"
            yield Hit(row.line, what, level="note")
        elif row.m != 131072 and not (0 < row.m <= 32768 and row.m & (row.m - 1) == 0):
            what = "for a number of tokens that no call is rounded to"
            todo = "only powers of two up to 32768, and 131072, are looked up"
            yield Hit(row.line, what, todo, f"token {row.m}")


def _unread_by_hipblaslt(sheet: Sheet) -> Iterator[Hit]:
    """Find rows that its reader skips: it takes one row below each line of names."""
    data, columns = sheet.table.data, sheet.table.columns
    for row in sheet.rows:
        index = next((row.cells[name] for name in INDEX if name in row.cells), "")
        start = row.entry.start
        above = data[max(0, start - MAX_LINE) : start].rstrip().rpartition(b"\n")[2]
        if re.fullmatch(r"0+|-\d+", index, re.ASCII):
            yield Hit(row.line, "with index 0 or below, which hipBLASLt ignores", "tune again")
        elif "soulution_index" in columns:
            what = "under a column soulution_index, as on consoles: hipBLASLt ignores them"
            yield Hit(row.line, what, "write solution_index")
        elif not columns:
            what = "in a file without column names, as of 2024: newer versions ignore it"
            yield Hit(row.line, what, "tune again with the installed version")
        elif b"transA" not in above:
            what = "without column names right above: hipBLASLt reads one row after each header"
            yield Hit(row.line, what, "write the column names above each row")


_NEEDED = {
    "gemm_a16w16": "gfx cu_num M N K bias dtype outdtype scaleAB bpreshuffle".split(),
}
"""Columns without which AITER's loader fails when it reads the table alone."""


def missing_column(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find missing columns of the lookup key."""
    columns = sheet.table.columns
    moe = sheet.rows[0].entry.op == "fused_moe"
    needed = _NEEDED.get(sheet.rows[0].entry.op, [])
    missing = [name for name in needed if name not in columns]
    if missing:
        what = f"no column {', '.join(missing)}: read alone, the table fails with a KeyError"
        yield sentence(1, what, "write it again with AITER's tuner")
    elif "gfx" not in columns and "cu_num" in columns:
        if moe and all(row.entry.device.units in UNITS_ARCH for row in sheet.rows):
            return  # the loader fills the column in
        what = "no column gfx: only the number of compute units identifies the device"
        todo = "gfx950 and gfx1250 both have 256: write it again with AITER's tuner"
        yield sentence(1, what, todo, "note")


def mixed_words(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find columns that mix True and False with other words, which pandas reads as text."""
    for name in sheet.table.columns:
        if name not in ("bias", "scaleAB", "bpreshuffle"):
            continue
        words = [(row, row.cells.get(name, "").strip()) for row in sheet.rows]
        odd = [row for row, word in words if word.lower() not in ("true", "false", "")]
        if odd and len(odd) < len(words):
            what = f"with a {name} that is neither True nor False: pandas reads the column as text"
            detail = f"{name} {odd[0].cells.get(name, '')}"
            yield Hit(odd[0].line, what, "write True or False: no row matches otherwise", detail)


FAMILIES = (
    "a4w4_blockscale_tuned_gemm",
    "a8w8_tuned_gemm",
    "a8w8_bpreshuffle_tuned_gemm",
    "a8w8_blockscale_tuned_gemm",
    "a8w8_blockscale_bpreshuffle_tuned_gemm",
    "a8w8_tuned_batched_gemm",
    "bf16_tuned_batched_gemm",
    "batched_gemm_a8w8_blockscale_mxscale_tuned",
    "bf16_tuned_gemm",
    "tuned_fmoe",
    "tuned_fhmoe",
    "tuned_grouped_fmoe",
    "chunk_gdn_h_opt_tuned",
)
"""The names of AITER's default tables; each is merged with those of `model_configs` that have it in
their names."""
BY_NAME = ("moe", "aiter triton", "miopen")
"""Tuners whose loaders choose a file by the device in its name."""


def families(sheets: Iterable[Sheet]) -> list[list[Sheet]]:
    """Group the tables that a library reads as one.

    AITER merges those of one name and folder, with those of `model_configs` in it. Loaders that
    choose a file by name have one family. Any other table is alone.
    """
    families: dict[tuple[str, str], list[Sheet]] = {}
    for sheet in sheets:
        path = PurePath(sheet.table.path)
        key = (sheet.tuner, "" if sheet.tuner in BY_NAME else str(path))
        name = next((family for family in FAMILIES if family in path.name), "")
        if sheet.tuner == "aiter" and name and "untuned" not in path.name:
            folder = path.parent
            root = folder.parent if folder.name == "model_configs" else folder
            key = (name, str(root))
        families.setdefault(key, []).append(sheet)
    return [sorted(family, key=lambda one: one.table.path) for family in families.values()]


def _key(sheet: Sheet, row: SheetRow) -> tuple[object, ...]:
    entry = row.entry
    tag = row.cells.get("_tag", "") if sheet.tuner == "aiter" else ""
    return (entry.op, row.device.arch, row.device.units, tag, frozenset(entry.key))


def duplicate(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find keys that occur twice in a file."""
    if not sheet.is_tuned and sheet.tuner not in ("moe", "aiter triton"):
        return
    first: dict[tuple[object, ...], SheetRow] = {}
    for row in sheet.rows:
        before = first.setdefault(_key(sheet, row), row)
        if before is not row:
            yield _twice(sheet.tuner, before, row)


def _twice(tuner: str, before: SheetRow, row: SheetRow) -> Hit:
    again = before.entry.solution == row.entry.solution
    same = again and before.cells == row.cells
    level: Level | None = "warning"
    todo, subject = "keep one", "row"
    match tuner:
        case "aiter":
            what, todo, level = "with the key of another row of this file: ", _FASTER, None
            if row.entry.op == "grouped_fmoe":
                what, level = what + "one of them is never used", "warning"
            else:
                what += "AITER refuses the table"
            if row.entry.op == "fused_moe":
                what += " when it merges it, and takes the first row where it reads it alone"
        case "tunableop" if again:
            what, todo, level = "written twice, with the same solution", "", "note"
        case "tunableop":
            what = "with the key of an earlier row and another solution: PyTorch keeps the first "
            what, todo = what + "one", _FASTER
        case "moe" | "aiter triton":
            what, level = "written twice: JSON keeps the last one", "note" if same else None
            subject = "step"
        case "hipblaslt" if not again:
            what = "with the key of an earlier row, which has no alpha, beta or leading dimension"
            todo = "keep the right one"
        case "miopen" if not same:
            what = "with the key of an earlier row: MIOpen keeps the first one"
        case _:
            what, level = "written twice", "note"
    return Hit(row.line, what, todo, f"as line {before.line}", subject, level)


_FASTER = "keep the faster one"


def tagged_duplicate(sheet: Sheet, given: Given) -> Iterator[Hit]:
    """Find rows of a fused MoE that differ only in their tags: the loader uses one of them."""
    first: dict[tuple[object, ...], SheetRow] = {}
    for row in sheet.rows:
        tag = row.cells.get("_tag", "")
        if tag == "flydsl_fallback" or "token" not in row.cells:
            continue
        before = first.setdefault((*_key(sheet, row)[:3], frozenset(row.entry.key)), row)
        if before is not row and before.cells.get("_tag", "") != tag:
            what = "that differ from another row only in the tag: AITER keeps the first"
            yield Hit(row.line, what, "keep one", f"as line {before.line}")


def merged_duplicate(sheets: Sequence[Sheet], given: Given) -> Iterator[tuple[Sheet, Hit]]:
    """Find keys in two tables that AITER merges: the default table and those of models."""
    for family in families(sheets):
        if family[0].tuner != "aiter":
            continue
        first: dict[int, tuple[Sheet, int]] = {}  # by hash: a family has many keys
        for sheet in family if len(family) > 1 else ():
            for row in sheet.each_row():
                key = hash(_key(sheet, row))
                other, line = first.setdefault(key, (sheet, row.line))
                if other is sheet:
                    continue
                before = other.row_at(line)
                if _key(other, before) != _key(sheet, row):
                    continue
                words = "the same" if before.entry.solution == row.entry.solution else "another"
                what = f"also in {other.name} with {words} solution: AITER stops and rewrites both "
                detail = f"line {before.line} there, {_us(before)} against {_us(row)}"
                yield sheet, Hit(row.line, f"{what}files", _FASTER, detail)


def _us(row: SheetRow) -> str:
    return "no time" if row.entry.ms is None else f"{row.entry.ms * 1e3:g} µs"


_TUNE = "tune for this device, or remove the table"


def other_device(sheets: Sequence[Sheet], given: Given) -> Iterator[tuple[Sheet, Hit]]:
    """Find rows for other devices than the given one.

    That is no fault if other rows of the merged table match, unless a file has rows for the
    architecture and none of them matches.
    """
    device = given.device
    if device is None:
        return
    for family in families(sheets):
        fits = any(may_be(row.device, device) for sheet in family for row in sheet.each_row())
        for sheet in family:
            if sheet.tuner in BY_NAME and sheet.rows and not fits:
                own = sheet.rows[0].device
                what = f"a table for {own}, which {device} never reads"
                yield sheet, sentence(None, what, _TUNE)
            elif sheet.tuner not in ("tunableop", *BY_NAME):
                warned = fits or len(family) > 1
                yield from ((sheet, hit) for hit in _of_others(sheet, device, warned))
        if not fits and len(family) > 1 and family[0].tuner == "aiter":
            rows = counted(sum(len(sheet.table.entries) for sheet in family), "row")
            what = f"none of the {rows} of these {len(family)} tables can match {device}"
            yield family[0], sentence(None, what, _TUNE)


def _of_others(sheet: Sheet, device: TableDevice, noted: bool) -> Iterator[Hit]:
    """Find rows that cannot match; with `noted`, other architectures are only a note."""
    of_arch = {row.device for row in sheet.each_row() if row.device.arch == device.arch}
    lost = of_arch and not any(may_be(own, device) for own in of_arch)
    for row in sheet.each_row():
        own = row.device
        if may_be(own, device):
            continue
        what = f"for {own} can never match {device}"
        if lost and own.arch == device.arch:
            all_lost = f"{what}, nor can any other row of {own.arch} in this file"
            yield Hit(row.line, all_lost, _units_todo(own, device))
        else:
            yield Hit(row.line, what, "" if noted else _TUNE, level="note" if noted else None)


def _units_todo(own: TableDevice, device: TableDevice) -> str:
    few, many = sorted((own.units or 0, device.units or 0))
    if few and 2 * few == many:
        return "AITER counts units as rocminfo does, PyTorch counts a Radeon's pairs"
    return "compare with `rocminfo`: a partitioned device has fewer compute units, tune again on it"
