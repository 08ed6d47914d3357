"""The table of rules, and what they find in tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from backend.tables.model import Table
from rocm_tui.tables import ladder_rules as ladder
from rocm_tui.tables import loader_rules as loader
from rocm_tui.tables.findings import LEVELS, Finding, Given, LintRule, gathered
from rocm_tui.tables.sheet import Sheet

_TORCH = "PyTorch aten/src/ATen/cuda/tunable/Tunable.cpp"
_AITER = "AITER e4048607"
_VLLM = "vLLM 0.33 and SGLang 0.5.23, get_moe_configs"
_TUNABLEOP, _AITERS, _MOE, _LADDERS = ("tunableop",), ("aiter",), ("moe",), ("aiter triton",)
_BOTH = ("aiter", "hipblaslt")

RULES: tuple[LintRule, ...] = (
    LintRule(
        "other-device", "warning", "no row can match the device; where some do, a note",
        f"{_AITER} aiter/ops/gemm_op_a8w8.py: the key is (gfx, cu_num, M, N, K)",
        check_all=loader.other_device,
    ),
    LintRule(
        "validator-device", "error", "TunableOp ignores the file: it is of another architecture",
        f"{_TORCH}, validator GCN_ARCH_NAME", loader.validator_device, _TUNABLEOP, True,
    ),
    LintRule(
        "validator-version", "error", "TunableOp ignores the file: library versions differ",
        f"{_TORCH}, ValidateAll", loader.validator_version, _TUNABLEOP, True,
    ),
    LintRule(
        "validator-missing", "error", "TunableOp ignores the file: a validator is missing",
        f"{_TORCH}, CheckMandatoryKeys, CheckKeysMatching",
        loader.validator_missing, _TUNABLEOP, True,
    ),
    LintRule(
        "validator-twice", "error", "a validator occurs twice, with two values",
        f"{_TORCH}, ReadFile", loader.validator_twice, _TUNABLEOP, True,
    ),
    LintRule(
        "line-ends", "error", "\\r\\n or a byte order mark keeps a word from matching",
        f"{_TORCH}, ReadFile; hipBLASLt UserDrivenTuningParser.cpp; json.load",
        loader.line_ends,
    ),
    LintRule(
        "other-layout", "error", "TunableOp: a solution of another layout ends the program",
        "PyTorch aten/src/ATen/cuda/tunable/TunableOp.h: ops_.find(result) is checked",
        loader.other_layout, _TUNABLEOP,
    ),
    LintRule(
        "bare-index", "warning", "a hipBLASLt index, which a rebuild invalidates",
        "hipBLASLt UserDrivenTuningParser.cpp, isBuildVersionCurrent",
        loader.bare_index, _BOTH, True,
    ),
    LintRule(
        "unreadable", "error", "a line that cannot be read as a row",
        "pandas.read_csv, json.load", loader.unreadable,
    ),
    LintRule("no-rows", "warning", "a table without rows", "", loader.no_rows),
    LintRule(
        "short-row", "warning", "AITER: a row with fewer cells than the header names",
        "pandas.read_csv", loader.short_row, _AITERS, True,
    ),
    LintRule(
        "unused-row", "warning", "a row that no call ever uses",
        f"{_AITER} aiter/fused_moe.py get_padded_M; hipBLASLt UserDrivenTuningParser.cpp",
        loader.unused_row, _BOTH, True,
    ),
    LintRule(
        "missing-column", "error", "a column of AITER's lookup key is missing",
        f"{_AITER} aiter/tuned_gemm.py get_GEMM_A16W16_config_",
        loader.missing_column, _AITERS, True,
    ),
    LintRule(
        "mixed-words", "warning", "AITER: True and False mixed with other words match nothing",
        f"{_AITER} aiter/tuned_gemm.py, pandas.read_csv", loader.mixed_words, _AITERS,
    ),
    LintRule(
        "duplicate", "error", "a key occurs twice in a file",
        f"{_AITER} aiter/jit/core.py update_config_files; {_TORCH} AddImpl",
        loader.duplicate,
    ),
    LintRule(
        "tagged-duplicate", "warning", "AITER: rows that differ only in the tag",
        f"{_AITER} aiter/fused_moe.py get_cfg_2stages", loader.tagged_duplicate, _AITERS,
    ),
    LintRule(
        "merged-duplicate", "error", "AITER: a key occurs in two files that are merged",
        f"{_AITER} aiter/jit/core.py update_config_files",
        check_all=loader.merged_duplicate,
    ),
    LintRule(
        "short-ladder", "warning", "MoE: no config of its own for many tokens, or for one",
        f"{_VLLM}: nearest M, no default", ladder.short_ladder, _MOE,
    ),
    LintRule("wide-gap", "note", "MoE: steps of M far apart", _VLLM, ladder.wide_gap, _MOE),
    LintRule(
        "unreachable-step", "warning", "AITER Triton: a step that is never looked up",
        f"{_AITER} aiter/ops/triton/utils/gemm_config_utils.py and the kernels' bounds",
        ladder.unreachable_step, _LADDERS,
    ),
    LintRule(
        "open-end", "error", "AITER Triton: neither any nor M_GEQ after the largest step",
        f"{_AITER} aiter/ops/triton/utils/gemm_config_utils.py", ladder.open_end, _LADDERS,
    ),
    LintRule(
        "step-name", "error", "MoE: a name that is not a number stops the server",
        f"{_VLLM}: int(key)", ladder.step_name, _MOE,
    ),
    LintRule(
        "incomplete-step", "error", "MoE: a block size is missing",
        "vLLM fused_moe.py invoke_fused_moe_kernel", ladder.incomplete_step, _MOE,
    ),
    LintRule(
        "file-name", "warning", "MoE: no loader reads a file with this name",
        "get_config_file_name of vLLM 0.33 and SGLang 0.5.23", ladder.file_name, _MOE,
    ),
    LintRule(
        "no-time", "warning", "an impossible time: 0, infinite, absurd, or not a number",
        f"{_AITER} aiter/jit/core.py: the smallest us of a key is kept", ladder.no_time, (), True,
    ),
    LintRule(
        "above-peak", "error", "faster than the device's peak",
        "docs/watching.md: how to read a row", ladder.above_peak,
    ),
    LintRule(
        "contradiction", "warning", "numbers of a row that contradict each other",
        f"{_AITER} aiter/utility/base_tuner.py calculate", ladder.contradiction,
    ),
    LintRule(
        "slower-than-larger", "warning", "much slower than the row of a larger M",
        f"{_AITER} csrc/py_itfs_cu/gemm_common.cu: a larger M is used for a smaller one",
        ladder.slower_than_larger,
    ),
    LintRule(
        "copied-time", "note", "exactly the time of a smaller M", "", ladder.copied,
    ),
    LintRule(
        "odd-one-out", "note", "a slow solution that only one M uses", "",
        ladder.odd_one_out,
    ),
)  # fmt: skip
RULE_IDS = tuple(rule.id for rule in RULES)


def lint(
    tables: Iterable[Table],
    given: Given,
    only: Collection[str] = (),
    without: Collection[str] = (),
    *,
    each: bool = False,
) -> tuple[Finding, ...]:
    """Check tables with the rules `only` (all if empty) but not `without`.

    Findings are sorted by file, the worst first, then by line. Similar rows are one finding, unless
    `each` is set.
    """
    place: dict[str, int] = {}

    def placed() -> Iterator[Table]:
        for table in tables:
            place[table.path] = len(place)
            yield table

    rules = [rule for rule in RULES if rule.id not in without and (not only or rule.id in only)]
    findings = found_in(placed(), given, rules, each=each)
    return tuple(
        sorted(findings, key=lambda one: (place[one.path], LEVELS.index(one.level), one.line or 0))
    )


def found_in(
    tables: Iterable[Table], given: Given, rules: Sequence[LintRule] = RULES, *, each: bool = False
) -> Iterator[Finding]:
    """Yield findings as they are found; a table that is checked alone is not kept."""
    together: list[Sheet] = []
    for table in tables:
        sheet = Sheet(table)
        for rule in rules:
            yield from gathered(rule, rule.hits(sheet, given), each)
        if table.tuner == "aiter":
            together.append(Sheet(table))  # without the rows that were looked at
        elif table.tuner in loader.BY_NAME:  # all of a file is for one device
            together.append(Sheet(replace(table, data=b"", entries=table.entries[:1])))
        elif given.device is not None:
            yield from _among(rules, [sheet], given, each)
    yield from _among(rules, together, given, each)


def _among(
    rules: Sequence[LintRule], sheets: Sequence[Sheet], given: Given, each: bool
) -> Iterator[Finding]:
    for rule in rules:
        if rule.check_all is not None:
            yield from gathered(rule, rule.check_all(sheets, given), each)
