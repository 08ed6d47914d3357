"""The documentation: plain English, links and paths that exist, commands and options that exist."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rocm_tui.cli.entry import COMMANDS, rocm_tui
from tests.support.places import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MOST_WORDS = 25_000
"""In README and docs together: a person reads them, generated tables are in docs/data."""

BANNED = (
    r"tells?|told|telling",
    r"stands?|stood|standing",
    r"befell|befall",
    r"heeds?|heeded",
    r"lies? below|lay below",
    r"comes? of|came of",
    r"asks? for|asked for|asking for",
    r"so many",
    r"in turns?",
    r"by itself",
    r"(is|are) apart",
    r"mended",
    r"put aside",
    r"(takes?|taken|took) back",
    r"nobody knows",
    r"that which|those that|those which",
    r"as there",
    r"of it",
    r"what is there",
)
"""Words and phrases of which a plainer one exists; each is matched as whole words."""

PLAIN: tuple[str, ...] = ()
"""Sentences in which a word has its plain meaning."""


def prose(page: Path) -> str:
    """Return the text without code, tables of generated words, and link targets."""
    text = re.sub(r"<!-- (\w+) -->.*?<!-- end of \1 -->", "", page.read_text(), flags=re.DOTALL)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "CODE", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def banned(text: str) -> list[str]:
    """Return the banned phrases of a text, each with its surroundings."""
    text = " ".join(text.split())
    for phrase in PLAIN:
        text = text.replace(phrase, "")
    return [
        text[max(0, match.start() - 40) : match.end() + 20]
        for match in re.finditer(rf"\b({'|'.join(BANNED)})\b", text, re.IGNORECASE)
    ]


def unreleased(changes: str) -> str:
    """Return the part of the change log that is not released yet."""
    return changes.partition("## Unreleased")[2].partition("\n## ")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_english_is_plain(page: Path) -> None:
    assert banned(prose(page)) == []


def test_the_english_of_new_changes_is_plain() -> None:
    assert banned(re.sub(r"`[^`\n]*`", "CODE", unreleased(prose(ROOT / "CHANGELOG.md")))) == []


@pytest.mark.parametrize(
    "table", sorted((ROOT / "docs" / "data").glob("*.csv")), ids=lambda path: path.name
)
def test_the_english_of_tables_is_plain(table: Path) -> None:
    assert banned(table.read_text()) == []


CLEAN_ROOMS = (
    "backend/cache",
    "backend/disk",
    "backend/inductor",
    "backend/measure",
    "backend/model",
    "backend/pins",
    "backend/processes",
    "backend/ranks",
    "backend/sharing",
    "backend/tables",
    "backend/templates",
    "backend/toolchain",
    "backend/wire",
    "backend/worker",
    "rocm_tui/actions",
    "rocm_tui/cli",
    "rocm_tui/compare",
    "rocm_tui/config",
    "rocm_tui/fleet",
    "rocm_tui/hook_path",
    "rocm_tui/ingest",
    "rocm_tui/jobs",
    "rocm_tui/launch",
    "rocm_tui/mcp",
    "rocm_tui/render",
    "rocm_tui/report",
    "rocm_tui/search",
    "rocm_tui/session",
    "rocm_tui/tables",
    "rocm_tui/tui",
)
"""Folders whose docstrings and other texts have no banned phrase; a folder is never removed."""


def texts(source: str) -> Iterator[str]:
    """Yield the docstrings and string literals of Python source, without code in backticks."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield re.sub(r"`[^`]*`", "CODE", node.value)


@pytest.mark.parametrize("room", (*CLEAN_ROOMS, "backend/*.py", "rocm_tui/*.py"))
def test_the_english_of_code_is_plain(room: str) -> None:
    pattern = room if room.endswith(".py") else f"{room}/**/*.py"
    paths = sorted(ROOT.glob(pattern))
    assert paths
    wrong = {
        str(path.relative_to(ROOT)): phrases
        for path in paths
        if (phrases := [each for text in texts(path.read_text()) for each in banned(text)])
    }
    assert wrong == {}


def test_a_banned_phrase_in_code_is_reported() -> None:
    source = 'def f():\n  """Say what is told."""\n  return f"{1} of it", "`told` is a name"\n'
    assert sorted(bool(banned(text)) for text in texts(source)) == [False, True, True]


def test_a_person_can_read_all_of_it() -> None:
    pages = [page for page in PAGES if page.name != "CONTRIBUTING.md"]
    assert sum(len(page.read_text().split()) for page in pages) <= MOST_WORDS


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


def test_every_link_leads_somewhere() -> None:
    wrong, count = [], 0
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([\w-]+))?\)", page.read_text()):
            target = (page.parent / link) if link else page
            count += 1
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                wrong.append(f"{page.name}: {link}#{anchor}")
    assert wrong == [] and count > 40


def test_every_table_is_named_by_a_page() -> None:
    named = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"\]\(([^)#:]*\.csv)\)", page.read_text())
    }
    assert named == set((ROOT / "docs" / "data").iterdir())


def _tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("no checkout of git")
    return [ROOT / name for name in done.stdout.split("\0") if name]


def test_every_page_that_the_tree_names_exists() -> None:
    """In code, help texts, messages, the Makefile, and in the pages themselves."""
    wrong, count = [], 0
    for path in _tracked():
        if path.suffix not in {".py", ".md", ".toml", ".jinja", ".h", ""} or not path.is_file():
            continue
        for name in re.findall(r"(?<![\w/])docs/[\w./-]*\.(?:md|csv)\b", path.read_text()):
            count += 1
            if not (ROOT / name).exists():
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert wrong == [] and count > 30


FOREIGN = {"--log-dir": "torchrun", "--tee": "torchrun"}
"""Options that a page names and that belong to another program."""


def _options(command: click.Command) -> set[str]:
    context = click.Context(command)
    return {
        option
        for parameter in command.get_params(context)
        for option in (*parameter.opts, *parameter.secondary_opts)
    } | {"--help", "-h"}


def _command(name: str) -> click.Command:
    command = rocm_tui.get_command(click.Context(rocm_tui), name)
    assert command is not None
    return command


def calls(text: str) -> Iterator[list[str]]:
    """Yield the words of each `rocm-tui ...` of a page, in blocks and in sentences."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    rest = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", rest)
    for line in (*lines, *spans):
        for part in re.findall(r"(?<![\w./-])rocm-tui (?=[\w-])([^#|;&`]*)", line):
            try:
                yield shlex.split(part.strip("()\"'$ "))
            except ValueError:  # prose with an apostrophe
                yield part.split()


def test_every_command_and_option_of_the_pages_exists() -> None:
    wrong, count = [], 0
    for page in PAGES:
        for words in calls(page.read_text()):
            name, *rest = words
            if name.startswith("-"):
                continue
            if name not in COMMANDS:
                wrong.append(f"{page.name}: rocm-tui {name}")
                continue
            own = rest[: rest.index("--")] if "--" in rest else rest
            given = {word.partition("=")[0] for word in own if re.match(r"--?[a-z]", word)}
            count += 1
            if unknown := given - _options(_command(name)):
                wrong.append(f"{page.name}: {name} {sorted(unknown)}")
    assert wrong == [] and count > 100


def test_every_option_in_a_sentence_exists() -> None:
    """`--budget` alone, and `compare --markdown` without the program's name."""
    known = set().union(*(_options(_command(name)) for name in COMMANDS))
    wrong = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for span in re.findall(r"`([^`\n]+)`", text):
            name, *words = span.split()
            own = words[: words.index("--")] if "--" in words else words
            options = known
            if name in COMMANDS:
                options = _options(_command(name))
            elif not name.startswith("--"):
                continue
            given = {
                word.partition("=")[0]
                for word in (name, *own)
                if re.fullmatch(r"--[a-z][a-z-]*(=.*)?", word)
            }
            wrong += [f"{page.name}: `{span}`" for _ in given - options - set(FOREIGN)]
    assert wrong == []


def test_a_banned_word_a_dead_link_and_an_unknown_option_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It tells `what is told`.\n\n```\nrocm-tui ls --jsn\n```\n")
    assert re.search(rf"\b({'|'.join(BANNED)})\b", prose(page)) and "told" not in prose(page)
    assert list(calls(page.read_text())) == [["ls", "--jsn"]]
    assert "--jsn" not in _options(_command("ls"))
