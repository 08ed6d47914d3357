"""Reads AMD assembly, as LLVM prints it, into the instructions that `core/` executes.

LLVM assembles the code object from the same text, so an instruction here is one there. Names of
gfx11 and gfx12 become those of gfx9 where an instruction does the same.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

NONE, VECTOR, SCALAR, INTEGER, LITERAL, REAL, OFF, SCC = range(8)
AGPR = 256
NAMED_REGISTERS = {
    "vcc": 106,
    "vcc_lo": 106,
    "vcc_hi": 107,
    "m0": 124,
    "null": 125,
    "exec": 126,
    "exec_lo": 126,
    "exec_hi": 127,
    "flat_scratch": 102,
    "flat_scratch_lo": 102,
    "flat_scratch_hi": 103,
}
FIRST_TRAP_REGISTER = 108

OFFEN, IDXEN, TO_LDS, RETURNS, CLAMP, DUAL, FETCH_INACTIVE, LOAD = (1 << bit for bit in range(8))
FLAGS = {"offen": OFFEN, "idxen": IDXEN, "lds": TO_LDS, "clamp": CLAMP}
CACHE_HINTS = frozenset("glc slc dlc sc1 nt nv scc".split())

SELECTIONS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
MOVES = {
    "quad_perm": 1,
    "row_shl": 2,
    "row_shr": 3,
    "row_ror": 4,
    "row_mirror": 5,
    "row_half_mirror": 6,
    "row_newbcast": 9,
    "row_share": 9,
    "row_xmask": 10,
    "wave_shr": 11,
}
BROADCASTS = {15: 7, 31: 8}

ANY = -1
WAITS: Mapping[str, tuple[int, ...]] = {  # places in Instruction.waits: loads, stores, LDS, scalar
    "vmcnt": (0,),
    "lgkmcnt": (2, 3),
    "expcnt": (),
    "loadcnt": (0,),
    "storecnt": (1,),
    "dscnt": (2,),
    "kmcnt": (3,),
}


class AssemblyError(Exception):
    """An instruction, operand or modifier that is unknown here."""


class Operand(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [
        *((name, ctypes.c_int32) for name in ("kind", "index", "count", "half")),
        *((name, ctypes.c_int32) for name in ("negative", "absolute", "extended", "unused")),
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
    ]


_NUMBERS = (
    "count first line target offset offset0 offset1 flags op_sel op_sel_hi neg_lo neg_hi omod "
    "sdwa dst_sel dst_unused src0_sel src1_sel move move_by row_mask bank_mask bound_ctrl"
).split()


class Instruction(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [
        ("run", ctypes.c_void_p),
        ("operands", Operand * 8),
        *((name, ctypes.c_int32) for name in _NUMBERS),
        ("waits", ctypes.c_int32 * 4),
        *((name, ctypes.c_int32) for name in ("cbsz", "blgp")),
        *((name, ctypes.c_uint64) for name in ("executed", "landed")),
    ]


@dataclass(frozen=True)
class KernelArgument:
    offset: int
    size: int
    kind: str


@dataclass
class KernelText:
    """A kernel's descriptor and its arguments."""

    name: str
    descriptor: dict[str, int] = field(default_factory=dict)
    arguments: list[KernelArgument] = field(default_factory=list)
    lanes: int = 64


@dataclass
class Assembly:
    """The parsed text of one source: `mnemonics` has the name of each instruction."""

    arch: str
    instructions: list[Instruction]
    mnemonics: list[str]
    labels: dict[str, int]
    kernels: list[KernelText]

    @property
    def generation(self) -> int:
        return int(re.sub(r"\D", "", self.arch[3:-2] or "9"))


RENAMED = (
    (r"_(e32|e64|dpp|sdwa|dpp8)(?=$|_)", ""),
    (r"^v_dual_", "v_"),
    (r"_dot2acc_", "_dot2c_"),
    (r"^(v_\w+)_nc_([ui](?:16|32))$", r"\1_\2"),
    (r"^v_(add|sub|subrev)_co_ci_u32$", r"v_\1c_co_u32"),
    (r"^v_subc_co_u32$", "v_subb_co_u32"),
    (r"^v_subrevc_co_u32$", "v_subbrev_co_u32"),
    (r"^s_(and|or)_not1_(.*)$", r"s_\1n2_\2"),
    (r"^s_(min|max|add|sub|mul)_co_([ui]32)$", r"s_\1_\2"),
    (r"^s_addk_co_i32$", "s_addk_i32"),
    (r"^v_mad_co_(u64_u32|i64_i32)$", r"v_mad_\1"),
    (r"^s_(add|sub)_nc_u64$", r"s_\1_u64"),
    (r"^s_sub_co_ci_u32$", "s_subb_u32"),
    (r"^s_add_co_ci_u32$", "s_addc_u32"),
    (r"^s_cls_i32$", "s_flbit_i32"),
    (r"^s_(ctz|clz)_", lambda m: {"ctz": "s_ff1_", "clz": "s_flbit_"}[m[1]]),
    (r"^v_(ctz|clz)_", lambda m: {"ctz": "v_ffbl_", "clz": "v_ffbh_"}[m[1]]),
    (r"^(s_load)_b(256|512)$", lambda m: _dwords(m[1], m[2])),
    (r"^ds_load_", "ds_read_"),
    (r"^ds_store_", "ds_write_"),
    (r"^(\w+_(?:load|store))_b(32|64|96|128)$", lambda m: _dwords(m[1], m[2])),
    (r"^(global|buffer|scratch)_store_(d16_hi_)?b(8|16)$",
     lambda m: f"{m[1]}_store_{'byte' if m[3] == '8' else 'short'}{'_d16_hi' if m[2] else ''}"),
    (r"^(global|buffer|scratch)_load_(d16_hi_|d16_)?([bui])(8|16)$", lambda m: _narrow_load(m)),
    (r"^ds_(read|write)_2addr_stride64_", r"ds_\g<1>2st64_"),
    (r"^ds_(read|write)_2addr_", r"ds_\g<1>2_"),
    (r"^(global|buffer)_atomic_(\w+?)_u32$", r"\1_atomic_\2"),
    (r"^(v_mfma_[fi]\d+_\d+x\d+x\d+)(f16|f32|f64|i8)$", r"\1_\2"),
    (r"^(v_mfma_f32_\d+x\d+x\d+)bf16_1k$", r"\1_bf16"),
    (r"^(v_\w+)_num_(f16|f32|f64)$", r"\1_\2"),
    (r"^v_cvt_pk_rtz_f16_f32$", "v_cvt_pkrtz_f16_f32"),
)  # fmt: skip


def _dwords(stem: str, bits: str) -> str:
    count = int(bits) // 32
    return f"{stem}_dword" + (f"x{count}" if count > 1 else "")


def _narrow_load(match: re.Match[str]) -> str:
    kind, part, sign, bits = match.groups()
    name = ("s" if sign == "i" else "u") + ("byte" if bits == "8" else "short")
    if part is None:
        return f"{kind}_load_{name}"
    name = "short" if bits == "16" else name
    return f"{kind}_load_{name}_d16" + ("_hi" if part == "d16_hi_" else "")


def plain_name(mnemonic: str) -> str:
    """Return the name without its encoding, as gfx9 calls the instruction."""
    for pattern, replacement in RENAMED:
        mnemonic = re.sub(pattern, replacement, mnemonic)
    return mnemonic


_REGISTER = re.compile(r"(v|a|s|ttmp)(?:(\d+)|\[(\d+):(\d+)\])(?:\.([lh]))?")
_NUMBER = re.compile(r"-?(0x[0-9a-f]+|\d+)")


def parse_operand(text: str) -> Operand:
    """Return a register or a constant. Raises AssemblyError."""
    operand = Operand()
    text = text.strip()
    if (extended := re.fullmatch(r"sext\((.*)\)", text)) is not None:
        operand.extended, text = 1, extended[1]
    if (negated := re.fullmatch(r"-([vsa|].*)|neg\((.*)\)", text)) is not None:
        operand.negative, text = 1, negated[1] or negated[2]
    if (absolute := re.fullmatch(r"\|(.*)\|", text)) is not None:
        operand.absolute, text = 1, absolute[1]
    if (register := _REGISTER.fullmatch(text)) is not None:
        kind, single, first, last, half = register.groups()
        operand.kind = VECTOR if kind in "va" else SCALAR
        base = {"a": AGPR, "ttmp": FIRST_TRAP_REGISTER}.get(kind, 0)
        operand.index = base + int(single or first)
        operand.count = 1 if last is None else int(last) - int(first) + 1
        operand.half = {None: 0, "l": 1, "h": 2}[half]
    elif text in NAMED_REGISTERS:
        operand.kind, operand.index = SCALAR, NAMED_REGISTERS[text]
        operand.count = 1
    elif text == "off":
        operand.kind = OFF
    elif text in ("scc", "src_scc"):
        operand.kind = SCC
    elif _NUMBER.fullmatch(text):
        operand.kind = LITERAL if "x" in text else INTEGER
        operand.integer = int(text, 0)
    else:
        try:
            operand.real = float(text)
        except ValueError:
            raise AssemblyError(f"unknown operand {text}") from None
        operand.kind = REAL
    return operand


def _split(text: str) -> list[str]:
    """Split at the commas that are in no brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "[(") - (char in "])")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def _bits(text: str) -> int:
    return sum(int(bit) << at for at, bit in enumerate(text.strip("[]").split(",")))


def _add_modifier(instruction: Instruction, name: str, word: str) -> None:
    key, _, value = word.partition(":")
    if word in FLAGS:
        instruction.flags |= FLAGS[word]
    elif word in ("glc", "sc0") or (key == "th" and "RETURN" in value):
        if "atomic" in name:
            instruction.flags |= RETURNS
    elif word in CACHE_HINTS or key in ("th", "scope"):
        pass
    elif key in ("offset", "offset0", "offset1", "cbsz", "blgp"):
        setattr(instruction, key, int(value, 0))
    elif key == "bitop3":
        instruction.offset = int(value, 0)
    elif key in ("op_sel", "op_sel_hi", "neg_lo", "neg_hi"):
        setattr(instruction, key, _bits(value))
    elif key == "byte_sel":
        byte = int(value)
        instruction.op_sel = byte >> 1 | (byte & 1) << 1
    elif key in ("mul", "div"):
        instruction.omod = int(value) if key == "mul" else -int(value)
    elif key in ("dst_sel", "src0_sel", "src1_sel"):
        instruction.sdwa = 1
        setattr(instruction, key, SELECTIONS.index(value))
    elif key == "dst_unused":
        instruction.dst_unused = UNUSED.index(value)
    elif key in ("row_mask", "bank_mask"):
        setattr(instruction, key, int(value, 0))
    elif key == "bound_ctrl":
        instruction.bound_ctrl = 1
    elif key == "fi":
        instruction.flags |= FETCH_INACTIVE if value == "1" else 0
    elif key == "row_bcast":
        instruction.move = BROADCASTS[int(value)]
    elif key in MOVES:
        instruction.move = MOVES[key]
        if key == "quad_perm":
            places = value.strip("[]").split(",")
            instruction.move_by = sum(int(place) << 2 * at for at, place in enumerate(places))
        else:
            instruction.move_by = int(value or 0)
    else:
        raise AssemblyError(f"unknown modifier {word}")


def _first_source(name: str, gfx: int) -> int:
    if name.startswith(("s_cmp", "s_bitcmp")) or (name.startswith("v_cmpx") and gfx >= 10):
        return 0
    two_results = ("_co_u32", "v_div_scale", "v_mad_u64_u32", "v_mad_i64_i32")
    return 2 if any(word in name for word in two_results) else 1


def _set_waits(instruction: Instruction, name: str, text: str, gfx: int) -> str:
    """Set the counters of a wait; return the name under which waits are executed."""
    limits = [ANY] * 4
    if name == "s_waitcnt":
        for counter, number in re.findall(r"(\w+)\((\d+)\)", text):
            for place in WAITS[counter]:
                limits[place] = int(number)
        if not re.fullmatch(r"(\w+\(\d+\)[\s&,]*)+", text):
            raise AssemblyError(f"unknown wait {text}")
    elif name == "s_waitcnt_vscnt":
        limits[1] = int(text.split(",")[-1], 0)
    else:  # two counters share a number
        *firsts, last = name.removeprefix("s_wait_").split("_")
        number = int(text, 0)
        for counter, count in ((last, number & 0x3F), *((first, number >> 8) for first in firsts)):
            for place in WAITS[counter]:
                limits[place] = count
    instruction.waits = (ctypes.c_int32 * 4)(*limits)
    return "s_waitcnt"


_TEXT_ONLY = frozenset("s_delay_alu s_sendmsg s_waitcnt_depctr s_wait_alu".split())


def _instruction(text: str, line: int, gfx: int) -> tuple[str, Instruction, str]:
    """Return the plain name, the instruction and the label where it jumps to."""
    mnemonic, _, rest = text.strip().partition(" ")
    name, rest = plain_name(mnemonic), rest.strip()
    instruction = Instruction(line=line, row_mask=15, bank_mask=15)
    instruction.waits = (ctypes.c_int32 * 4)(*[ANY] * 4)
    for selection in ("dst_sel", "src0_sel", "src1_sel"):
        setattr(instruction, selection, SELECTIONS.index("DWORD"))
    instruction.op_sel_hi = 7 if name.startswith(("v_pk_", "v_dot")) else 0
    if name in _TEXT_ONLY:
        return name, instruction, ""
    if name in ("s_waitcnt", "s_waitcnt_vscnt") or name.startswith("s_wait_"):
        return _set_waits(instruction, name, rest, gfx), instruction, ""
    if name == "s_branch" or name.startswith("s_cbranch"):
        return name, instruction, rest
    parts = _split(rest)
    modifiers: list[str] = []
    if parts:
        first, *modifiers = _words(parts[-1])
        parts[-1] = first
        if _is_modifier(first):
            modifiers.insert(0, parts.pop())
    if len(parts) > 8:
        raise AssemblyError(f"{len(parts)} operands")
    for at, part in enumerate(parts):
        instruction.operands[at] = parse_operand(part)
    instruction.count = len(parts)
    instruction.first = _first_source(name, gfx)
    if re.match(r"(global|buffer|scratch|flat|s)_load|ds_read", name):
        instruction.flags |= LOAD
    for word in modifiers:
        _add_modifier(instruction, name, word)
    if re.fullmatch(r"s_(mov|add|mul|cmp)k_\w*i32|s_cmpk_\w+_i32", name):
        immediate = instruction.operands[1]
        immediate.integer = (immediate.integer + 0x8000 & 0xFFFF) - 0x8000
    return name, instruction, ""


def _words(text: str) -> list[str]:
    """Split at the spaces that are in no brackets."""
    return re.findall(r"(?:[^\s\[(|]|\[[^\]]*\]|\([^)]*\)|\|[^|]*\|)+", text)


def _is_modifier(word: str) -> bool:
    key = word.partition(":")[0]
    return (
        word in FLAGS
        or word in CACHE_HINTS
        or word == "sc0"
        or (":" in word and key not in ("v", "s", "a") and not word.startswith(("v[", "s[", "a[")))
    )


def parse(text: str) -> Assembly:
    """Parse all kernels of a text. Raises AssemblyError, which names the line."""
    target = re.search(r'\.amdgcn_target\s+"[^"]*-(gfx\w+)', text)
    if target is None:
        raise AssemblyError("no .amdgcn_target")
    assembly = Assembly(target[1], [], [], {}, [])
    jumps: list[tuple[Instruction, str]] = []
    gfx = assembly.generation
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition(";")[0].rstrip()
        if label := re.fullmatch(r"([\w.$]+):", code):
            assembly.labels[label[1]] = len(assembly.instructions)
        elif re.match(r"\t[a-z]", code):
            pair = code.split("::")
            for at, half in enumerate(pair):
                try:
                    name, instruction, label_name = _instruction(half, number, gfx)
                except (AssemblyError, ValueError, KeyError) as error:
                    raise AssemblyError(f"line {number}, {half.strip()}: {error}") from error
                if at + 1 < len(pair):
                    instruction.flags |= DUAL
                if label_name:
                    jumps.append((instruction, label_name))
                assembly.instructions.append(instruction)
                assembly.mnemonics.append(name)
    for instruction, label_name in jumps:
        instruction.target = assembly.labels[label_name]
    assembly.kernels = list(_kernels(text))
    return assembly


def _kernels(text: str) -> Iterator[KernelText]:
    metadata = text[text.find(".amdgpu_metadata") :]
    for block in re.finditer(r"\.amdhsa_kernel (\S+)(.*?)\.end_amdhsa_kernel", text, re.DOTALL):
        kernel = KernelText(block[1])
        for key, value in re.findall(r"\.amdhsa_(\w+) (\d+)", block[2]):
            kernel.descriptor[key] = int(value)
        for entry in re.split(r"^  - (?=\.)", metadata, flags=re.MULTILINE)[1:]:
            if re.search(rf"^\s*\.name:\s+{re.escape(block[1])}$", entry, re.MULTILINE):
                kernel.arguments = list(_arguments(entry))
                lanes = re.search(r"\.wavefront_size:\s+(\d+)", entry)
                kernel.lanes = int(lanes[1]) if lanes else 64
        yield kernel


def _arguments(entry: str) -> Iterator[KernelArgument]:
    for block in re.split(r"^      - ", entry, flags=re.MULTILINE)[1:]:
        facts = dict(re.findall(r"\.(\w+):\s+(\S+)", block))
        if "offset" in facts and "value_kind" in facts:
            yield KernelArgument(int(facts["offset"]), int(facts["size"]), facts["value_kind"])
