"""What can be done with each op that Inductor tunes, and which test has shown it.

docs/data/ops.csv has this table. A cell is the id of a test, or the reason why there is none. The
kinds of `OPS_TEST` are built, tuned, measured, pinned, verified and tried there by one worker.
"""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS = ("tune", "measure", "pin", "verify", "trial")
OPS_TEST = "tests/torch/jobs/test_ops.py"
FLEX_TEST = "tests/torch/jobs/test_flex.py"
GPU_FLEX_TEST = "tests/gpu/test_flex.py"
WEIGHTS_TEST = "tests/torch/jobs/test_weights.py"
MEASURED_TEST = "tests/torch/triton/test_measured_inside.py"
TRIED_TEST = "tests/torch/triton/test_tried_in_program.py"
BACKWARD_TEST = "tests/torch/triton/test_conv_backward.py"
_PROOFS = {
    "tune": "test_it_is_tuned_under_its_key",
    "measure": "test_all_choices_are_measured_and_right",
    "pin": "test_it_is_pinned_and_verified",
    "verify": "test_it_is_pinned_and_verified",
    "trial": "test_its_graph_is_tried",
}

ONE_CHOICE = "one choice on a CPU"
OTHER_HASHES = "hashes of its own"
ITS_PROGRAM = "its program alone"


@dataclass(frozen=True)
class Row:
    """An op, or a kind of it; `cells` in the order of the columns."""

    op: str
    cells: tuple[str, ...]

    def cell(self, column: str) -> str:
        return self.cells[COLUMNS.index(column)]


def seen(op: str, **reasons: str) -> Row:
    """A kind of `OPS_TEST`, but for the cells that have a reason or another test."""
    proofs = {column: f"{OPS_TEST}::{test}[{op}]" for column, test in _PROOFS.items()}
    return Row(op, tuple({**proofs, **reasons}.values()))


def frozen(op: str) -> Row:
    """With a C++ choice beside the library's."""
    return Row(op, tuple(f"{WEIGHTS_TEST}::{_PROOFS[column]}[{op}]" for column in COLUMNS))


def backward(op: str) -> Row:
    """With Triton's choices alone, by its interpreter."""
    pinned = f"{BACKWARD_TEST}::test_it_is_tuned_pinned_and_verified[{op}]"
    measured = f"{BACKWARD_TEST}::test_it_is_measured_and_right[{op}]"
    return Row(op, (pinned, measured, pinned, pinned, f"{BACKWARD_TEST}::test_its_graph_is_tried"))


_GPU_PROOFS = {
    "tune": "test_it_is_tuned_under_its_key",
    "measure": "test_two_choices_are_measured_and_right",
    "pin": "test_it_is_pinned_and_verified",
    "verify": "test_it_is_pinned_and_verified",
    "trial": "test_its_graph_is_tried_with_two_choices",
}


def on_gpu(op: str, column: str) -> str:
    return f"{GPU_FLEX_TEST}::{_GPU_PROOFS[column]}[{op}]"


def flex(op: str) -> Row:
    """With choices on GPUs alone."""
    return Row(op, tuple(on_gpu(op, column) for column in COLUMNS))


def in_program(op: str, measured: str, pinned: str, tried: str) -> Row:
    """A kernel that is called with what its program alone knows."""
    return Row(op, (ITS_PROGRAM, measured, pinned, pinned, tried))


def nowhere(op: str, reason: str) -> Row:
    return Row(op, (reason,) * len(COLUMNS))


ROWS: tuple[Row, ...] = (
    seen("mm"),
    seen("addmm"),
    seen("bmm"),
    seen("baddbmm"),
    seen("int_mm"),
    seen("mm_plus_mm"),
    seen("scaled_mm, one scale"),
    seen("scaled_mm, one scale a row"),
    nowhere("scaled_mm, scales of blocks; scaled_grouped_mm", "GPUs alone"),
    seen("grouped_mm of rows"),
    frozen("int8 weights"),
    frozen("int4 weights"),
    seen("packed_linear"),
    seen("linear_unary"),
    frozen("linear_unary, with an activation"),
    frozen("linear_binary"),
    frozen("quantized linear"),
    frozen("quantized linear, with a sum"),
    seen("convolution 1d", tune=ONE_CHOICE, pin=ONE_CHOICE, verify=ONE_CHOICE),
    seen("convolution 2d"),
    seen("convolution 2d, groups and dilation"),
    seen("convolution 2d, depthwise"),
    seen("convolution 3d", tune=ONE_CHOICE, pin=ONE_CHOICE, verify=ONE_CHOICE),
    seen("convolution, transposed", tune=ONE_CHOICE, pin=ONE_CHOICE, verify=ONE_CHOICE),
    seen("mm, rows dynamic"),
    seen("bmm, batch dynamic"),
    seen("convolution 2d, images dynamic"),
    seen("mm, dynamic=True", **dict.fromkeys(COLUMNS[:4], OTHER_HASHES)),
    backward("convolution_bwd_weight"),
    backward("convolution_bwd_input"),
    Row(
        "flex_attention",
        (
            on_gpu("flex_attention", "tune"),
            f"{FLEX_TEST}::test_its_one_choice_on_a_cpu_is_measured_and_right",
            on_gpu("flex_attention", "pin"),
            f"{FLEX_TEST}::test_the_generated_code_calls_it",
            f"{FLEX_TEST}::test_its_graph_is_tried",
        ),
    ),
    flex("flex_attention_backward"),
    flex("flex_decoding"),
    in_program(
        "Inductor's Triton kernels",
        f"{MEASURED_TEST}::test_the_fastest_config_is_found_again_with_the_programs_arguments",
        "tests/torch/pins/test_best_configs.py"
        "::test_stock_inductor_takes_it_from_the_file_and_through_a_kept_graph",
        f"{TRIED_TEST}::test_a_pinned_kernel_of_inductors_is_launched_on_one_side_alone",
    ),
    in_program(
        "@triton.autotune",
        f"{MEASURED_TEST}::test_a_kernel_of_triton_is_measured_with_what_its_tuner_restores",
        "tests/unit/cli/test_kernels.py"
        "::test_a_pin_is_active_once_its_program_was_seen_to_launch_it",
        f"{TRIED_TEST}::test_a_pinned_kernel_of_triton_is_launched_on_one_side_alone",
    ),
)


def is_proof(cell: str) -> bool:
    """Whether it is the id of a test."""
    return cell.startswith("tests/")


def kinds(column: str) -> list[str]:
    """Those whose cell a test of `OPS_TEST` has to show."""
    test = f"{OPS_TEST}::{_PROOFS[column]}"
    return [row.op for row in ROWS if row.cell(column) == f"{test}[{row.op}]"]


def words() -> list[list[str]]:
    """Return the table as docs/data/ops.csv has it: a word for each cell."""
    return [["op", *COLUMNS], *([row.op, *map(_word, row.cells)] for row in ROWS)]


def _word(cell: str) -> str:
    if cell.startswith("tests/gpu/"):
        return "on an H200"
    return "yes" if is_proof(cell) else cell
