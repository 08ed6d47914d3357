"""The rules of the house: pure functions from source files to violations, each a line of text.

A rule sees all product files at once, `{"backend/demo.py": text}`, so it applies to a new file or
folder from the start. Its exceptions are tables here, each with its reason; an exception that
nothing needs any more is a violation too.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from tests.support.ambiguous_classes import AMBIGUOUS
from tests.support.dotted_names import BY_NAME, DottedNames, Imported, walk
from tests.support.import_graph import wrong_arrows
from tests.support.places import ROOT

Files = Mapping[str, str]
"""The text of each file by its path from the root."""
Rule = Callable[[Files], list[str]]

WITH_TORCH = ("backend/inductor/", "backend/worker/")
IMPORT_TORCH = {
    "backend/demo.py": "it is the program that `rocm-tui demo` starts, and compiles with torch",
}
DEPENDENCIES = frozenset({"backend", "torch", "jinja2", "sympy", "filelock", "triton"})
"""What `backend` may import beside the standard library: what installing torch installs."""
OPTIONAL = {
    ("backend/toolchain/resources.py", "msgpack"): "notes of AMD code, where it is installed",
}

PRIVATE_TORCH = "backend/inductor/torch/"

OUTPUT = {
    "rocm_tui/say.py": "the way out of all text: it makes the text of files harmless",
    "rocm_tui/cli/entry.py::_prepare_streams": "replaces streams that are closed or lack letters",
    "rocm_tui/cli/entry.py::_drop_stdout": "points stdout at /dev/null when its reader has gone",
    "rocm_tui/cli/run.py::run_line": "asks whether stdout is a terminal",
    "rocm_tui/cli/work.py::LiveLine._write": "asks how wide the terminal on stderr is",
    "rocm_tui/hook_path/rocm_tui_autoload.py::_say": "runs in programs that cannot import rocm_tui",
    "rocm_tui/launch/run.py::_in_foreground": "asks who owns the terminal; opens it to read",
    "rocm_tui/launch/stderr.py::StderrRelay._detach": "lets go of stdout: readers await its end",
    "rocm_tui/tui/terminal.py::require_terminal": "asks whether stdout is a terminal",
    "rocm_tui/tui/terminal.py::keyboard_apart_from_stdin": "reads keys from the terminal",
    "rocm_tui/tui/terminal.py::_end": "restores the terminal when Textual hangs; constant bytes",
    "backend/demo.py::main": "the program that `rocm-tui demo` starts; what it prints is its own",
    "backend/inductor/guard.py::say": "the one line on stderr in a user's program, shortened",
    "backend/inductor/hooks/activation.py::_say_off": "must never raise, and `guard.say` may",
    "backend/inductor/benchmark/child.py::_serve": "what kernels print goes to stderr",
    "backend/processes/supervisor.py::_become_worker": "a worker's stderr goes to its supervisor",
    "backend/processes/supervisor.py::_supervise": "copies that stderr into its log",
    "backend/templates/triton/choice.py::main": "stdout carries the answer of a compiling child",
    "backend/worker/__main__.py::_private_stdout": "stdout carries a worker's JSON lines",
    "backend/worker/__main__.py::_answer": "the traceback of a failed job goes into its log",
}
"""Where a file, or `file::function`, may reach stdout, stderr or the terminal, and why."""

STREAMS = frozenset("sys.stdout sys.stderr sys.__stdout__ sys.__stderr__".split())
HARMLESS = frozenset({"isatty", "flush"})
"""Methods of a stream that write no text of ours."""
PRINTERS = frozenset(
    "print builtins.print rich.print rich.get_console rich.console.Console pprint.pprint pprint.pp "
    "traceback.print_exc traceback.print_exception traceback.print_last traceback.print_stack "
    "traceback.print_tb warnings.warn warnings.warn_explicit faulthandler.enable "
    "faulthandler.dump_traceback logging.StreamHandler logging.basicConfig logging.lastResort "
    "logging.debug logging.info logging.warning logging.error logging.critical logging.exception "
    "logging.log click.echo click.secho click.echo_via_pager click.confirm click.prompt".split()
)
ON_DESCRIPTORS = frozenset(
    "os.write os.writev os.pwrite os.sendfile os.dup os.dup2 os.fdopen open builtins.open io.open "
    "io.FileIO".split()
)
DEVICES = frozenset(
    "/dev/stdout /dev/stderr /dev/tty /dev/fd/1 /dev/fd/2 /proc/self/fd/1 /proc/self/fd/2".split()
)

MANY = frozenset(
    "actions arms calls choices cores elements errors events facts failures files folders graphs "
    "inputs jobs kernels lines links logs machines measurements names numbers operands ops others "
    "outputs pairs passes pins problems processes programs rivals rounds rows runs screens "
    "sessions settings sources spills steps suspects threads times trials tunings types verdicts "
    "watches".split()
)
"""Plurals that follow a number: `1 choice`, `2 choices`."""
ALWAYS_MANY = {
    ("backend/inductor/result_checks.py", "times"): "a ratio, above a limit that is above one",
    ("backend/processes/supervisor.py", "processes"): "one has its own words",
    ("backend/sharing/lookup_table.py", "choices of addmm separately, and times them against it"): (
        "no number, but whose choices they are"
    ),
    ("backend/templates/legality.py", "threads a block,"): "more than a block may have",
    ("backend/templates/problem.py", "times"): "no number, but a type: float16 times float32",
    ("backend/templates/triton/kernel.py", "calls the hook of"): "no number, but who calls it",
    ("rocm_tui/cli/measure.py", "measurements:"): "only below several",
    ("rocm_tui/cli/run.py", "processes:"): "one has its own words",
    ("rocm_tui/render/detail.py", "others"): "one is named",
    ("rocm_tui/render/detail.py", "times)"): "only of more than one",
    ("rocm_tui/render/problems.py", "times)"): "only of more than one",
    ("rocm_tui/tui/processes.py", "processes:"): "one has its own words",
}
"""A file, the words behind the number, and why that number is at least two (or no count)."""


class Finding(NamedTuple):
    """One line of a file that may violate a rule, and the function around it."""

    line: int
    scope: str
    what: str


class Facts(NamedTuple):
    """All that the rules look at in one file."""

    imported: tuple[Imported, ...]
    private: frozenset[tuple[int, str]]
    output: tuple[Finding, ...]
    classes: frozenset[str]
    uncounted: tuple[tuple[int, str], ...]


@cache
def product() -> Files:
    """The files of the two packages."""
    paths = [path for name in ("backend", "rocm_tui") for path in (ROOT / name).rglob("*.py")]
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sorted(paths)}


@cache
def facts(path: str, text: str) -> Facts:
    """Parse a file once for all rules; the tree is dropped, 700 of them are 200 MB."""
    tree = ast.parse(text, path)
    names = DottedNames(path, tree)
    return Facts(
        imported=tuple(names.imported),
        private=frozenset(_private(tree, names)),
        output=tuple(_output(tree, names)),
        classes=frozenset(_classes(tree.body)),
        uncounted=tuple(_uncounted(tree)),
    )


def foreign_imports(files: Files) -> list[str]:
    """torch outside its two folders; in `backend`, anything that torch does not install."""
    lines: list[str] = []
    needed: set[object] = set()
    for path, text in files.items():
        for line, name in facts(path, text).imported:
            top = name.partition(".")[0]
            if top == "torch" and path in IMPORT_TORCH:
                needed.add(path)
            elif top == "torch" and not path.startswith(WITH_TORCH):
                lines.append(f"{path}:{line}: imports {name}; only {' and '.join(WITH_TORCH)} may")
            elif (path, top) in OPTIONAL:
                needed.add((path, top))
            elif path.startswith("backend/") and top not in DEPENDENCIES | sys.stdlib_module_names:
                lines.append(f"{path}:{line}: imports {name}, which torch does not install")
    return lines + _unneeded([*IMPORT_TORCH, *OPTIONAL], needed)


def private_torch_names(files: Files) -> list[str]:
    """Names of torch that begin with `_`, outside the one folder for them; dunders are public."""
    return [
        f"{path}:{line}: {name} belongs in {PRIVATE_TORCH}"
        for path, text in files.items()
        if not path.startswith(PRIVATE_TORCH)
        for line, name in sorted(facts(path, text).private)
    ]


def stray_output(files: Files) -> list[str]:
    """Ways to stdout, stderr or the terminal that go around `rocm_tui/say.py`."""
    lines: list[str] = []
    needed: set[object] = set()
    for path, text in files.items():
        for line, scope, what in facts(path, text).output:
            allowed = [place for place in OUTPUT if is_within(f"{path}::{scope}", place)]
            needed.update(allowed)
            if not allowed:
                lines.append(f"{path}:{line}: {what} in {scope or 'the module'}; use rocm_tui.say")
    return lines + _unneeded(OUTPUT, needed)


def arrows(files: Files) -> list[str]:
    """Imports that go up, or in a circle."""
    return wrong_arrows({path: facts(path, text).imported for path, text in files.items()})


def ambiguous_classes(files: Files) -> list[str]:
    """Names of public classes that mean two things; those of today may only become fewer."""
    places = defaultdict(list)
    for path, text in files.items():
        for name in facts(path, text).classes:
            places[name].append(path)
    several = {name: paths for name, paths in places.items() if len(paths) > 1}
    new = [f"{name}: defined in {', '.join(several[name])}" for name in {*several} - AMBIGUOUS]
    gone = [f"{name}: has one meaning now; remove it" for name in AMBIGUOUS - {*several}]
    return sorted(new) + sorted(gone)


def uncounted_numbers(files: Files) -> list[str]:
    """Numbers in f-strings before a fixed plural, and `(s)`; `backend.counted` is for these."""
    lines: list[str] = []
    needed: set[object] = set()
    for path, text in files.items():
        for line, words in facts(path, text).uncounted:
            needed.add((path, words))
            if (path, words) not in ALWAYS_MANY:
                lines.append(f"{path}:{line}: a number before {words!r}; use backend.counted")
    return lines + _unneeded(ALWAYS_MANY, needed)


RULES: tuple[Rule, ...] = (
    foreign_imports,
    private_torch_names,
    stray_output,
    arrows,
    ambiguous_classes,
    uncounted_numbers,
)


def _unneeded(table: Iterable[object], needed: set[object]) -> list[str]:
    return [f"{entry}: no exception is needed any more" for entry in table if entry not in needed]


def is_within(place: str, allowed: str) -> bool:
    """Whether `rocm_tui/say.py::out` is in the file or the function that an exception names."""
    return place == allowed or place.startswith((f"{allowed}::", f"{allowed}."))


def _private(tree: ast.Module, names: DottedNames) -> Iterator[tuple[int, str]]:
    mentioned = [(line, name) for line, name in names.imported]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
            mentioned += [(node.lineno, name) for name in names.of(node)]
    for line, name in mentioned:
        parts = name.split(".")
        # `torch.ops.aten._grouped_mm` names an operator, whose schema PyTorch keeps compatible.
        for at, part in enumerate(parts[:3] if parts[:2] == ["torch", "ops"] else parts):
            dunder = part.startswith("__") and part.endswith("__")
            if parts[0] == "torch" and part.startswith("_") and not dunder:
                yield line, ".".join(parts[: at + 1])
                break


def _output(tree: ast.Module, names: DottedNames) -> Iterator[Finding]:
    harmless = set()
    for scope, node in walk(tree):
        for what in _ways_out(node, names):
            if id(node) not in harmless:
                yield Finding(getattr(node, "lineno", 0), scope, what)
        if isinstance(node, ast.Attribute) and node.attr in HARMLESS:
            harmless.add(id(node.value))


def _ways_out(node: ast.AST, names: DottedNames) -> Iterator[str]:
    if isinstance(node, ast.Constant) and node.value in DEVICES:
        yield repr(node.value)
    elif isinstance(node, ast.ImportFrom) and node.module == "sys":
        yield from (full for alias in node.names if (full := f"sys.{alias.name}") in STREAMS)
    elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
        yield from sorted(names.of(node) & (STREAMS | PRINTERS))
    elif isinstance(node, ast.Call):
        yield from sorted(names.of(node) & STREAMS)
        yield from _calls_out(node, names)


def _calls_out(node: ast.Call, names: DottedNames) -> Iterator[str]:
    called = names.of(node.func)
    numbers = {names.number(given) for given in node.args[: 2 if "os.dup2" in called else 1]}
    numbers |= {names.number(given.value) for given in node.keywords}
    if called & ON_DESCRIPTORS and numbers & {1, 2}:
        yield ast.unparse(node)
    ends = called & {"sys.exit", "SystemExit"}
    if ends and any(isinstance(g, ast.JoinedStr) or names.text(g) for g in node.args):
        yield f"{ast.unparse(node)}, which prints its text"
    if "input" in called:
        yield ast.unparse(node)
    if called & BY_NAME and "sys" in names.of(node.args[0]) and not names.text(node.args[1]):
        yield f"{ast.unparse(node)}, which may be a stream"


def _classes(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Public classes of a module, also those in an `if` or `try` of it."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            if not statement.name.startswith("_"):
                yield statement.name
        elif isinstance(statement, ast.If | ast.Try):
            yield from _classes([*statement.body, *statement.orelse])
            if isinstance(statement, ast.Try):
                yield from _classes([part for h in statement.handlers for part in h.body])


def _uncounted(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for string in ast.walk(tree):
        if not isinstance(string, ast.JoinedStr):
            continue
        for value, text in zip(string.values, string.values[1:], strict=False):
            words = str(text.value) if isinstance(text, ast.Constant) else ""
            if "(s)" in words:
                yield string.lineno, words.strip()
            first = words[1:].split(" ")[0].strip(".,:;)") if words[:1] == " " else ""
            fixed = isinstance(value, ast.FormattedValue) and ast.unparse(value.value).isupper()
            if first in MANY and not fixed:
                yield string.lineno, words.strip()
