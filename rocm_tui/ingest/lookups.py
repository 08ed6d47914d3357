"""What programs looked up in other tuners' tables, and the results, as their logs and untuned lists
report it. docs/tables.md names the sources of each line's form.

AITER's log has a line for each product that its tables lack, once a process; with
AITER_LOG_TUNED_CONFIG=1 also for each that they have. Fused MoE has a line for both always.

    shape is M:64, N:1536, K:7168, not found tuned config in /tmp/aiter_configs/a8w8..., will use...
    shape is M:1, N:32, K:4096 dtype='torch.bfloat16' otype=... bias=False, scaleAB=False,
        bpreshuffle=False, not found tuned config in ..., will use default config! using torch ...
    [fused_moe] using 2stage default for ('gfx942', 304, 64, 4096, 1536, 128, 8, 'Activation...

vLLM's and SGLang's logs say, once a process, in which file of Triton configs a fused mixture of
experts, or a product with scales of blocks, was looked up. vLLM breaks the first line behind
`sub-optimal!` in some releases: the path alone counts.

    Using default MoE config. Performance might be sub-optimal! Config file not found at .../E=8,...
    Using configuration from .../E=8,N=7168,device_name=AMD_Instinct_MI300X.json for MoE layer.
    Using MoE kernel config from .../E=8,N=7168,device_name=AMD_Instinct_MI300X.json.
    Config file not found at ... Fallback to triton version 3.2.0 and use MoE kernel config from ...

TunableOp's log has with PYTORCH_TUNABLEOP_VERBOSE=2 what it tunes, with 3 each look-up. Older
releases end the first line at `ResultEntry`: a miss, of what is not said.

    missing params_signature, returning null ResultEntry for GemmTunableOp_Half_TN,tn_64_8_32_ld_...
    ResultEntry found for GemmTunableOp_Half_TN,tn_64_8_32_ld_32_32_64
    finding fastest for GemmTunableOp_Half_TN(tn_64_8_32_ld_32_32_64) out of 1068 candidates
    └──found fastest for GemmTunableOp_Half_TN(tn_64_8_32_ld_32_32_64) Gemm_Hipblaslt_1104

hipBLASLt's log has with HIPBLASLT_LOG_MASK=32 a line for each call, which is the command that makes
it again. Whether a tuning file had it, a line of HIPBLASLT_LOG_MASK=8 says, but not of which
product: the second below, or, with HIPBLASLT_TUNING_MODE of newer builds, the last, once each.

    hipblaslt-bench --api_method c -m 1024 -n 512 -k 1024 --lda 1024 ... --transA N --transB T ...
    ... No valid solution index found in override file.
    ... tuning-cache: cache-miss, no valid entry for this problem

MIOpen's log names with MIOPEN_LOG_LEVEL=6 each key that it looks for, and in some of its files each
that it has; from 5 on the misses, but not of which problem. (MIOpen 2.0 to 3.5: db.cpp,
readonlyramdb.hpp, find_db.hpp, find_solution.hpp)

    MIOpen(HIP): Info2 [FindRecordUnsafe] Looking for key 3-224-224-7x7-64-... in file /home/...
    MIOpen(HIP): Info2 [FindRecord] Key match: 3-224-224-7x7-64-112-112-16-3x3-2x2-1x1-0-NCHW-FP32-F
    MIOpen(HIP): Info [TryLoad] Find-db regenerating.
    MIOpen(HIP): Info [FindSolutionImpl] Perf Db: record not found for: ConvAsm1x1U

Ray prints a line once and counts those like it, `[repeated 7x across cluster]`; it takes lines for
alike that differ in their numbers, so other products may be among them.

Inductor's tunings of plain products are look-ups in the tables of the BLAS libraries, which the
choice of ATen among them calls: a product by its sizes, steps and types. An untuned list is a tuned
table without its answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePosixPath

from backend.disk.safe import open_regular
from backend.model.problem import Problem, Shape
from backend.tables.aiter import op_of
from backend.tables.hipblaslt import KEY, WORD
from backend.tables.hipblaslt import TUNER as HIPBLASLT_TABLES
from backend.tables.ladder import BLOCKS, MOE_OP, moe_name
from backend.tables.ladder import MOE as MOE_TABLES
from backend.tables.miopen import DIRECTIONS, device_of, direction_of, is_key
from backend.tables.miopen import TUNER as MIOPEN_TABLES
from backend.tables.model import Fields, Table, TableDevice
from rocm_tui.ingest.formats.unwrap import rest_of_text

UNTOLD = TableDevice()
"""A device that nothing is said of."""
MAX_ASKS = 200_000
"""Different questions that are kept of all files: no program has as many, a damaged file may."""


class LookupOutcome(Enum):
    """The result that a line reports."""

    MISSED = "missed"
    FOUND = "found"
    UNTOLD = "untold"
    """Looked up; whether a table had it is not reported."""
    NOTED = "noted"
    """About a question that another line counts: missed."""
    MATCHED = "matched"
    """About a question that another line counts: found."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """`op`, `key` and `device` are those of the entry that would answer it, as far as known."""

    tuner: str
    op: str
    key: Fields
    device: TableDevice = UNTOLD


@dataclass(frozen=True, slots=True)
class LookupLine:
    """One line. `way` is what was run then; `table` the file that was looked into, `device` on
    which, `call` how to make that call again, each as far as it is known."""

    ask: Lookup
    answer: LookupOutcome
    way: str = ""
    table: str = ""
    device: TableDevice = UNTOLD
    call: str = ""


@dataclass(slots=True)
class LookupCounts:
    """How often a question was answered so or so, and what was run how often instead."""

    missed: int = 0
    found: int = 0
    untold: int = 0
    noted: int = 0
    matched: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    table: str = ""
    call: str = ""

    @property
    def times(self) -> int:
        """How often it was asked. A note alone counts once: its question had no line."""
        return self.missed + self.found + self.untold or min(self.noted + self.matched, 1)

    def add(self, said: LookupLine, times: int = 1) -> None:
        name = said.answer.value
        setattr(self, name, getattr(self, name) + times)
        if said.way:
            way = said.way if said.way in self.ways or len(self.ways) < _WAYS else "other ways"
            self.ways[way] = self.ways.get(way, 0) + times
        self.table = self.table or said.table
        self.call = self.call or said.call

    @property
    def way(self) -> str:
        """What was run most often."""
        return max(self.ways, key=lambda way: self.ways[way], default="")


_WAYS = 8


@dataclass(slots=True)
class Lookups:
    """All that some files report. `nameless` counts, by tuner, misses whose line does not name the
    product; `left` the questions beyond `MAX_ASKS`; `repeated` the lines that Ray left out."""

    tallies: dict[Lookup, LookupCounts] = field(default_factory=dict)
    devices: set[TableDevice] = field(default_factory=set)
    nameless: Counter[str] = field(default_factory=Counter)
    left: int = 0
    repeated: int = 0

    def add(self, said: LookupLine, times: int = 1) -> None:
        tally = self.tallies.get(said.ask)
        if tally is None:
            if len(self.tallies) >= MAX_ASKS:
                self.left += times
                return
            tally = self.tallies[said.ask] = LookupCounts()
        tally.add(said, times)
        if said.device != UNTOLD:
            self.devices.add(said.device)


@dataclass(frozen=True, slots=True)
class Marker:
    """What a line of a log is found by. `read` is given the line from `begins`, the last one before
    the word, or from the word itself; None for what only looks like one. The text of some goes on
    in `more` lines, which are indented, and may begin in as many above."""

    word: bytes
    read: Callable[[str], LookupLine | None]
    begins: bytes = b""
    more: int = 0


_MORE = 2
"""Lines that may continue one: two were seen."""
AITER = "aiter"
FUSED_MOE = "fused_moe"
FUSED_MOE_KEY = tuple(
    "token model_dim inter_dim expert topk act_type dtype q_dtype_a q_dtype_w q_type use_g1u1 "
    "doweight_stage1".split()
)
"""What fused MoE looks up by, behind the device."""
AITER_TYPED = ("bias", "dtype", "outdtype", "scaleAB", "bpreshuffle")
"""What the table of plain products looks up by, behind the sizes."""
_AITER_SIZES = re.compile(
    r"shape (?:is )?(?:B:(\d{1,15}), )?M:(\d{1,15}), N:(\d{1,15}), K:(\d{1,15})"
)
_AITER_FACTS = re.compile(
    r"\b(dtype|otype|bias|scaleAB|bpreshuffle|q_dtype_w)[=:]\s?'?([\w.]{1,40})'?", re.ASCII
)
_AITER_MISSED = re.compile(r"not found tuned config in(?: (\S{1,300}?),?(?= )|\s*\Z)")
_AITER_DEFAULT = re.compile(r" using (\w{1,40}) solution:(-?\d{1,9})")
_TUNED_IN = re.compile(r" is tuned(?: on cu_num = (\d{1,6}))?,? in (\S{1,300}?)[,!]* ")
_AITER_KERNEL = re.compile(r"(?:kernel name is|kernelName is) (\S{1,300}?)[,!]*(?: |$)")
_AITER_LIBRARY = re.compile(r"libtype is (\w{1,40})")
_FUSED_LINE = re.compile(
    r"\[fused_moe\] using ([12]stage(?: xbf16)?) (default|\(.{1,1000}?\)) for \((.{20,600}?)\)\s*$"
)
_FUSED_UNTUNED = re.compile(
    r"\[fused_moe\] no tuned (\w{1,20}) config for \((.{20,600}?)\), using "
)
_ENUM = re.compile(r"<([\w.]{1,60}): -?\d{1,6}>")


def aiter_value(value: str) -> str:
    """As a table and a log agree on: booleans as 0 and 1, no blanks."""
    value = value.strip()
    return {"true": "1", "false": "0"}.get(value.lower(), value)


def _aiter_gemm(text: str, table: str) -> Lookup | None:
    sizes = _AITER_SIZES.match(text)
    if sizes is None:
        return None
    batch, *rest = sizes.groups()
    facts = dict(_AITER_FACTS.findall(text[sizes.end() : sizes.end() + 400]))
    key: list[tuple[str, str]] = [] if batch is None else [("B", batch)]
    key += zip("MNK", rest, strict=True)
    name = PurePosixPath(table).name
    if batch is not None:  # older lines name no file
        name = "bf16" if "dtype is bf16" in text[: sizes.end() + 20] else "a8w8"
    if "otype" in facts:
        facts["outdtype"] = facts["otype"]
        key += ((name, facts.get(name, "False")) for name in AITER_TYPED)
    elif "q_dtype_w" in facts:
        key.append(("q_dtype_w", facts["q_dtype_w"]))
    return Lookup(AITER, op_of([name for name, _ in key], name), tuple(key))


def _aiter_missed(text: str) -> LookupLine | None:
    """A line that ends before the file says no less that the product was missed."""
    match = _AITER_MISSED.search(text + " ")
    table = (match and match[1]) or ""
    ask = match and _aiter_gemm(text[: match.start()], table)
    if match is None or ask is None:
        return None
    way = _AITER_DEFAULT.search(text, match.end())
    default = "default config" if way is None else f"{way[1]}, solution {way[2]}"
    return LookupLine(ask, LookupOutcome.MISSED, default, table)


def _aiter_tuned(text: str) -> LookupLine | None:
    tuned = _TUNED_IN.search(text + " ")
    ask = tuned and _aiter_gemm(text[: tuned.start()], tuned[2])
    if tuned is None or ask is None:
        return None
    kernel, library = _AITER_KERNEL.search(text, tuned.end() - 1), _AITER_LIBRARY.search(text)
    way = " ".join(match[1] for match in (library, kernel) if match)
    device = TableDevice(units=int(tuned[1])) if tuned[1] else TableDevice()
    return LookupLine(ask, LookupOutcome.FOUND, way, tuned[2], device)


def _fused_moe(text: str) -> LookupLine | None:
    match = _FUSED_LINE.match(text)
    ask = match and _experts(match[3])
    if match is None or ask is None:
        return None
    missed = match[2] == "default"
    answer = LookupOutcome.MISSED if missed else LookupOutcome.FOUND
    return LookupLine(ask, answer, f"{match[1]} {match[2]}", device=ask.device)


def _fused_moe_default(text: str) -> LookupLine | None:
    match = _FUSED_UNTUNED.match(text)
    ask = match and _experts(match[2])
    if match is None or ask is None:
        return None
    return LookupLine(ask, LookupOutcome.NOTED, f"a default without {match[1]}")


def _experts(printed: str) -> Lookup | None:
    """A Python tuple: the key behind the architecture, which older releases leave out, and
    the number of compute units."""
    values = [_ENUM.sub(r"\1", value).strip().strip("'\"") for value in printed.split(",")]
    size = len(FUSED_MOE_KEY)
    arch, units, key = values[: -size - 1], values[-size - 1 : -size], values[-size:]
    if len(arch) > 1 or not all(value.isdigit() for value in (*units, *key[:5])) or not units:
        return None
    device = TableDevice("".join(arch), int(units[0]))
    return Lookup(AITER, FUSED_MOE, tuple(zip(FUSED_MOE_KEY, key, strict=True)), device)


_AITER_MARKERS = (
    Marker(b"not found tuned config in", _aiter_missed, b"shape ", _MORE),
    Marker(b" is tuned", _aiter_tuned, b"shape ", _MORE),
    Marker(b"[fused_moe] using ", _fused_moe, more=_MORE),
    Marker(b"[fused_moe] no tuned ", _fused_moe_default, more=_MORE),
)


MOE = MOE_TABLES.name
_MOE_PATH = re.compile(
    r"((?:[^\s'\"]{0,400}/)?)((?:E=\d{1,6},N=|N=\d{1,9},K=)\d{1,9},device_name=[^/\n]{1,200}?\.json)"
)
_MOE_UP = "reusing the tuned up-projection config"
_MOE_OLDER = re.compile(r"Fallback to triton version (\S{1,20}) ")


def _moe_said(text: str, answer: LookupOutcome, way: str) -> LookupLine | None:
    path = _MOE_PATH.search(text)
    name = moe_name(path[2]) if path else {}
    if path is None or not name:
        return None
    device = TableDevice(name=name.pop("device_name", ""))
    op = BLOCKS if "K" in name else MOE_OP
    return LookupLine(Lookup(MOE, op, tuple(name.items()), device), answer, way, path[0], device)


def _moe_missed(text: str) -> LookupLine | None:
    older = _MOE_OLDER.search(text)
    way = f"the file of Triton {older[1]}" if older else "default config"
    return _moe_said(
        text, LookupOutcome.MISSED, "the file of the first product" if _MOE_UP in text else way
    )


def _moe_found(text: str) -> LookupLine | None:
    return _moe_said(text, LookupOutcome.FOUND, "")


_MOE_MARKERS = (
    Marker(b"onfig file not found at ", _moe_missed),
    Marker(b"Using configuration from ", _moe_found),
    Marker(b"Using MoE kernel config from ", _moe_found),
)


TUNABLEOP = "tunableop"
_TUNABLEOP_NAMELESS = b"returning null ResultEntry"
_SIGNATURE = r"([A-Za-z0-9]{1,40}TunableOp_[\w:<>]{1,100})"
_PARAMS = r"([nt]{2}_\w{1,200})"
_LOOKED_UP = re.compile(rf"{_SIGNATURE},{_PARAMS}")
_TUNED = re.compile(rf"{_SIGNATURE}\({_PARAMS}\)")
_TAKEN = re.compile(rf"{_TUNED.pattern} (\w{{1,100}})")


def tunableop_lookup(op: str, params: str) -> Lookup:
    return Lookup(TUNABLEOP, op, (("params", params),))


def _tunableop_marker(word: str, form: re.Pattern[str], outcome: LookupOutcome) -> Marker:
    def read(text: str) -> LookupLine | None:
        match = form.match(text, len(word))
        if match is None:
            return None
        way = f"tuned then: {match[3]}" if form.groups > 2 else ""
        return LookupLine(tunableop_lookup(match[1], match[2]), outcome, way)

    return Marker(word.encode(), read)


_TUNABLEOP_MARKERS = (
    _tunableop_marker("returning null ResultEntry for ", _LOOKED_UP, LookupOutcome.MISSED),
    _tunableop_marker("ResultEntry found for ", _LOOKED_UP, LookupOutcome.FOUND),
    # What a run tunes it has missed: a look-up comes first.
    _tunableop_marker("finding fastest for ", _TUNED, LookupOutcome.NOTED),
    _tunableop_marker("found fastest for ", _TAKEN, LookupOutcome.NOTED),
)


HIPBLASLT = HIPBLASLT_TABLES.name
_HIPBLASLT_NAMELESS = (
    b"No valid solution index found in override file",
    b"No valid entries found in override file",
    b"tuning-cache: cache-miss",
)
_USUAL = {"transA": "N", "transB": "N", "batch_count": "1"}
_OPTION = re.compile(r"(?<= )--?([A-Za-z_]\w{0,30})(?: ([^\s-]\S{0,40}|-\d\S{0,40}))?")
_CHOSEN = re.compile(r" --(?:algo_method|solution_index|requested_solution) \S{1,40}")
_HARMLESS = re.compile(r"[\w .:+/=,-]{1,2000}", re.ASCII)


def _hipblaslt_call(text: str) -> LookupLine | None:
    """A call; None for a sentence about the program."""
    call = _HARMLESS.match(text)
    words = dict(_OPTION.findall(call[0])) if call else {}
    if call is None or not all(words.get(name, "").isdigit() for name in "mnk"):
        return None
    values = {**_USUAL, **words}
    key = tuple((name, values[name]) for name in KEY if values.get(name))
    index = words.get("solution_index")
    # A run of the benchmark tries all solutions where none is named.
    again = " ".join(_CHOSEN.sub("", call[0]).split())
    way = f"solution {index}" if index else ""
    return LookupLine(Lookup(HIPBLASLT, "gemm", key), LookupOutcome.UNTOLD, way, call=again)


_HIPBLASLT_MARKERS = (Marker(f"{WORD} -".encode(), _hipblaslt_call),)


MIOPEN = MIOPEN_TABLES.name
_MIOPEN_NAMELESS = (b"Find-db regenerating.", b"Perf Db: record not found")
_LOOKING = re.compile(r"Looking for key (\S{20,400}) in (?:cache for )?file \"?([^\"\n]{1,400})")
_MATCH = re.compile(r"Key match: (\S{20,400})")


def _miopen_lookup(key: str) -> Lookup:
    direction = direction_of(key)
    return Lookup(MIOPEN, DIRECTIONS.get(direction, direction), (("problem", key),))


def _miopen_asked(text: str) -> LookupLine | None:
    match = _LOOKING.match(text)
    if match is None or not is_key(match[1]):
        return None
    path = match[2].strip()
    device = device_of(re.split(r"[/\\]", path)[-1])
    device = TableDevice(device.arch, device.units)
    return LookupLine(_miopen_lookup(match[1]), LookupOutcome.UNTOLD, table=path, device=device)


def _miopen_match(text: str) -> LookupLine | None:
    match = _MATCH.match(text)
    if match is None or not is_key(match[1]):
        return None
    return LookupLine(_miopen_lookup(match[1]), LookupOutcome.MATCHED)


_MIOPEN_MARKERS = (
    Marker(b"Looking for key ", _miopen_asked),
    Marker(b"Key match: ", _miopen_match),
)


INDUCTOR = "inductor"
_OPS = frozenset({"mm", "addmm", "bmm"})
_FACTORS = 2
"""The last operands, which are multiplied; what is added to the product has no say."""


def product_key(problem: Problem) -> Fields | None:
    """Return what identifies a product; None for another problem, or one that is not complete."""
    shapes = problem.shapes[-_FACTORS:]
    strides = problem.strides[-_FACTORS:]
    dtypes = problem.dtypes[-_FACTORS:]
    whole = len(shapes) == len(strides) == len(dtypes) == _FACTORS
    if problem.op not in _OPS or not whole or len(set(dtypes)) != 1:
        return None
    dtype = dtypes[0]
    if dtype == "torch.float32":
        dtype = f"{dtype} {problem.precision or 'highest'}"
    steps = [_steps(shape, stride) for shape, stride in zip(shapes, strides, strict=True)]
    return (("shapes", _shapes_text(shapes)), ("strides", _shapes_text(steps)), ("dtype", dtype))


def said_of_product(problem: Problem, way: str) -> LookupLine | None:
    """One tuning; `way` is the choice that it took. What ran on a CPU asks no such table."""
    key = product_key(problem)
    if key is None or (problem.device or "").startswith("cpu"):
        return None
    return LookupLine(Lookup(INDUCTOR, problem.op, key), LookupOutcome.UNTOLD, way)


def _steps(shape: Shape, strides: Shape) -> Shape:
    """A step along a single row leads nowhere: libraries differ in what they call it."""
    return tuple(1 if size == 1 else step for size, step in zip(shape, strides, strict=False))


def _shapes_text(shapes: Sequence[Shape]) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes)


MARKERS: tuple[Marker, ...] = (
    *_AITER_MARKERS,
    *_MOE_MARKERS,
    *_TUNABLEOP_MARKERS,
    *_HIPBLASLT_MARKERS,
    *_MIOPEN_MARKERS,
)
_NAMELESS = (
    (TUNABLEOP, _TUNABLEOP_NAMELESS),
    *((HIPBLASLT, word) for word in _HIPBLASLT_NAMELESS),
    *((MIOPEN, word) for word in _MIOPEN_NAMELESS),
)
"""What says that something was missed, but not what."""
_STRETCH = 8 << 20
"""Bytes read at a time."""
BEGINNING = 64 << 20
"""Bytes: a server misses most while it warms up."""
_LONGEST = 4 << 10
"""Bytes of a line that are looked at, from its marker on and back to where that begins."""
_MOST_MEANINGS = 1 << 13
"""Texts of a marker whose meaning is remembered: a server says the same a million times."""


def read_lookups(path: Path, asked: Lookups, limit: int | None = None) -> None:
    """Add what the file says, of its first `limit` bytes or a little less. Raises OSError."""
    meanings: _Meanings = [{} for _ in MARKERS]
    with open_regular(path, follow=True) as stream:
        data, start = b"", 0
        while piece := stream.read(_STRETCH):
            if limit is not None and stream.tell() > limit:
                break
            data += piece
            stop = _end_of_whole(data, start)
            if stop <= start and len(data) > _STRETCH:  # a line of megabytes
                stop = len(data) - _LONGEST
            if stop > start:
                _search(data, start, stop, asked, meanings)
                low = max(0, stop - _LONGEST)  # what the next words may belong to
                data, start = data[low:], stop - low
        _search(data, start, len(data), asked, meanings)


def _end_of_whole(data: bytes, start: int) -> int:
    """Return the end of the last line whose continuation was read too."""
    stop = data.rfind(b"\n") + 1
    for _ in range(_MORE):
        before = data.rfind(b"\n", start, max(stop - 1, start)) + 1
        stop = before if before > start else stop
    return stop


_Meanings = list[dict[bytes, LookupLine | None]]
"""By marker: what a text was found to mean."""


def _search(data: bytes, start: int, stop: int, asked: Lookups, known: _Meanings) -> None:
    """Read the lines that begin from `start` to `stop`; the bytes around show what continues
    them."""
    ray = data.find(b"x across cluster]", start) >= 0
    for marker, meanings in zip(MARKERS, known, strict=True):
        for at in _places(data, start, stop, marker.word):
            for text in _texts_at(data, at, marker):
                said = _meaning(marker, text, meanings)
                if said is not None:
                    times = _times(data, at) if ray else 1
                    asked.repeated += times - 1
                    asked.add(said, times)
                    break
    for tuner, word in _NAMELESS:
        for at in _places(data, start, stop, word):
            if tuner != TUNABLEOP or not data.startswith(b" for ", at + len(word)):
                asked.nameless[tuner] += _times(data, at) if ray else 1


def _places(data: bytes, start: int, stop: int, word: bytes) -> Iterator[int]:
    """The last one first: CPython searches backwards for several bytes several times as fast."""
    at = data.rfind(word, start, stop + len(word) - 1)
    while at >= 0:
        yield at
        at = data.rfind(word, start, at)


_REPEATED = re.compile(rb"\[repeated (\d{0,20})x across cluster\]")
_ESCAPES = re.compile(rb"\x1b\[[\d;]{0,20}m")
_GOES_ON = re.compile(rb"(?:\([^()\n]{1,100}\) ?)?[ \t]{2,}(?=\S)")
"""How a line begins that continues the one above, behind the name of the process."""


def _times(data: bytes, at: int) -> int:
    """Return the number of lines that Ray merged into the one at `at`."""
    repeated = _REPEATED.search(data[at : _line_end(data, at)])
    return max(1, int(repeated[1])) if repeated and 0 < len(repeated[1]) < 7 else 1


def _line_end(data: bytes, at: int) -> int:
    end = data.find(b"\n", at, at + _LONGEST)
    return end if end >= 0 else min(at + _LONGEST, len(data))


def _texts_at(data: bytes, at: int, marker: Marker) -> Iterator[bytes]:
    """What may be the text of a marker, from where it begins: with the lines that continue it, and
    alone. Nothing where it does not begin."""
    start, low = at, max(0, at - _LONGEST)
    line = data.rfind(b"\n", low, at)
    if marker.begins:
        start = data.rfind(marker.begins, max(low, line), at)
        above = marker.more
        while start < 0 <= line and above and _goes_on(data, line + 1):
            line, end, above = data.rfind(b"\n", low, line), line, above - 1
            start = data.rfind(marker.begins, max(low, line), end)
        if start < 0 or data.find(marker.word, start, at) >= 0:  # begun, but by another word
            return
    first = end = _line_end(data, at)
    for _ in range(marker.more):
        if not _goes_on(data, end + 1):
            break
        end = _line_end(data, end + 1)
    if data.find(b"\n", start, end) >= 0:
        lines = (_ESCAPES.sub(b"", line) for line in data[start:end].split(b"\n"))
        yield b" ".join(_plain(_GOES_ON.sub(b"", line)) for line in lines)
    if data.find(b"\n", start, first) < 0:
        yield _plain(data[start:first])


def _goes_on(data: bytes, start: int) -> bool:
    """Whether the line from `start` continues the one above."""
    return _GOES_ON.match(_ESCAPES.sub(b"", data[start : _line_end(data, start)])) is not None


def _plain(text: bytes) -> bytes:
    """Return a text without colours, and without what Ray writes behind a line."""
    if b"\x1b" in text:
        text = _ESCAPES.sub(b"", text)
    repeated = _REPEATED.search(text)
    return (text[: repeated.start()] if repeated else text).strip()


def _meaning(
    marker: Marker, text: bytes, meanings: dict[bytes, LookupLine | None]
) -> LookupLine | None:
    if text in meanings:
        return meanings[text]
    if len(meanings) >= _MOST_MEANINGS:
        meanings.clear()
    line = text.decode("utf-8", "replace").strip()
    said = meanings[text] = marker.read(rest_of_text(line)) or marker.read(line)
    return said


_ENOUGH = 1000
"""Entries without a solution that distinguish a list from a table."""


def is_untuned_list(table: Table) -> bool:
    """Whether none of its first entries has a solution."""
    if table.tuner not in (AITER, TUNABLEOP) or not len(table.entries):
        return False
    return not any(entry.solution for entry in table.entries[:_ENOUGH])


def add_untuned_list(table: Table, asked: Lookups) -> None:
    """Add its entries. PyTorch writes what it missed; AITER's list only says what to tune."""
    missed = table.tuner == TUNABLEOP
    answer = LookupOutcome.MISSED if missed else LookupOutcome.UNTOLD
    way = "Default" if missed else ""
    for entry in table.entries:
        ask = Lookup(table.tuner, entry.op, entry.key, entry.device)
        asked.add(LookupLine(ask, answer, way, device=entry.device))
