"""Which tests may be skipped, and how many: a plugin that reports skips by their reason.

Every run ends with its skips grouped by reason. In CI (`CI` is set), or with `--skip-limits`, the
run fails when a reason has more skips than its ceiling in `CEILINGS`. A reason without a ceiling
may not occur in CI at all, so that a broken installation cannot silence tests. With xdist the
controller counts for all workers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest

from tests.support.tools import in_ci, require_tool


@dataclass(frozen=True, slots=True)
class Ceiling:
    """At most `most` skips in a run may have a reason that the pattern `reason` matches."""

    reason: str
    most: int
    why: str


CEILINGS: Sequence[Ceiling] = (
    Ceiling("torch sees no GPU|no GPU|no AMD GPU|needs [24] GPUs|one GPU", 89, "CI has no GPU"),
    Ceiling(
        "no nvcc|needs nvcc|no compiler for cuda", 18, "the CUDA toolkit is not a Debian package"
    ),
    Ceiling(
        "no hipcc|no HIP runtime|no compiler here makes a library for gfx90a",
        4,
        "ROCm is not a Debian package; ziglang compiles for AMD GPUs without linking its runtime",
    ),
    Ceiling("no clang", 2, "g++ and ziglang are the compilers of CI"),
    Ceiling("this torch has one precision for all", 1, "torch 2.8"),
    Ceiling("the builtins are those of CDNA", 2, "that case exists for other GPUs only"),
    Ceiling(
        r".*corpus|needs the folder of real logs|the public tables"
        r"|got empty parameter set for \(path\)",
        40,
        "the real logs and tables are not published",
    ),
    Ceiling(r"got empty parameter set for \(python\)", 1, "versions of torch that are not named"),
    Ceiling("ROCM_TUI_T(ABLES|ORCHES) names no", 3, "public tables and other versions of torch"),
    Ceiling("five processes with Inductor: TEST_EVERYTHING", 1, "too long for every run"),
    Ceiling("(mounting|namespaces) (is|are) not permitted", 7, "containers may forbid both"),
    Ceiling("needs root|needs another user|only root", 14, "two users take root"),
    Ceiling(r"\d+ elements are more than can be mapped", 6, "containers may limit addresses"),
    Ceiling("Inductor gives oneDNN no bfloat16 layer", 14, "a CPU without AVX-512 has none"),
    Ceiling("Inductor has a C\\+\\+ kernel for int4 weights on CPUs", 4, "as above"),
    Ceiling("takes Python 3.11", 8, "Python 3.10 has no `Connection.serialize`"),
    Ceiling("this Python compiles each class at once", 3, "newer than Python 3.12"),
)


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason as the test gave it, without pytest's prefix and the position."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(text.removeprefix("Skipped: ").split())


def ceiling_of(reason: str, ceilings: Sequence[Ceiling] = CEILINGS) -> Ceiling | None:
    """Return the first ceiling whose pattern matches the reason from its start."""
    return next((ceiling for ceiling in ceilings if re.match(ceiling.reason, reason)), None)


def excesses(reasons: Iterable[str], ceilings: Sequence[Ceiling] = CEILINGS) -> list[str]:
    """Return a sentence for each ceiling that is exceeded and each reason that has none."""
    allowed: Counter[Ceiling] = Counter()
    unexpected: Counter[str] = Counter()
    for reason in reasons:
        if ceiling := ceiling_of(reason, ceilings):
            allowed[ceiling] += 1
        else:
            unexpected[reason] += 1
    return [
        *(
            f"{count} tests were skipped for '{ceiling.reason}', at most {ceiling.most} may be"
            for ceiling, count in allowed.items()
            if count > ceiling.most
        ),
        *(
            f"{count} tests were skipped for '{reason}', which has no ceiling in tests/skips.py"
            for reason, count in unexpected.items()
        ),
    ]


class SkipLimits:
    """Counts skips in the process that reports to the user."""

    def __init__(self, enforced: bool) -> None:
        self._enforced = enforced
        self._reasons: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # An expected failure is reported as skipped, too.
        if report.skipped and not hasattr(report, "wasxfail"):
            self._reasons.append(skip_reason(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a file that is skipped as a whole once."""
        if report.skipped:
            self._reasons.append(skip_reason(report))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        passed = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self._enforced and passed and excesses(self._reasons):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for reason, count in Counter(self._reasons).most_common():
            terminalreporter.write_line(f"skipped {count:4}  {reason}")
        for excess in excesses(self._reasons) if self._enforced else ():
            terminalreporter.write_line(f"ERROR: {excess}", red=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--skip-limits",
        action="store_true",
        help="fail the run when more tests are skipped for a reason than tests/skips.py allows; "
        "on by default where CI is set",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs_tool(*names): skipped without these programs, in CI a failure"
    )
    if not hasattr(config, "workerinput"):  # xdist's workers report to the controller
        enforced = config.getoption("skip_limits") or in_ci()
        config.pluginmanager.register(SkipLimits(enforced), "skip-limits")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs_tool"):
        for name in mark.args:
            require_tool(name)
