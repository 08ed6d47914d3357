"""A real client reads, is asked or refused, and cannot hurt anything."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any, Literal

import pytest

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from tests.support.log_lab import BMM
from tests.support.screen_lab import inputs, write_cache

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from rocm_tui.cli.mcp import TOOLS
from rocm_tui.mcp.server import lines_of
from rocm_tui.mcp.tools import SHOWN
from tests.support.mcp_lab import RawServer, connected

ID = TuningKey("mm", inputs(8), "highest").id
MODES: tuple[Literal["auto", "legacy"], ...] = ("auto", "legacy")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    write_cache(tmp_path / "cache", 8)
    (tmp_path / "a.log").write_text(BMM)
    return tmp_path / "cache"


def contents(folder: Path) -> dict[str, bytes]:
    """Return each file and its bytes, but for empty locks."""
    files = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data for name, data in files.items() if data}


@pytest.mark.parametrize("mode", MODES)
async def test_tools_are_listed_and_read_without_a_question(
    cache: Path, mode: Literal["auto", "legacy"]
) -> None:
    async with connected(cache, mode=mode, says="decline") as lab:
        tools = (await lab.client.list_tools()).tools
        assert [tool.name for tool in tools] == [tool.name for tool in TOOLS]
        assert all(tool.description and tool.annotations for tool in tools)
        listed = await lab.answer("list", limit=1)
        assert listed["document"]["schema"] == "rocm-tui/ls/1" and listed["exit_code"] == 0
        assert [tuning["id"] for tuning in listed["document"]["tunings"]] == [ID]
        shown = await lab.answer("show", id=ID)
        assert shown["document"]["num_choices"] == 4
        log = str(cache.parent / "a.log")
        report = await lab.answer("report", paths=[log])
        assert report["document"]["schema"] == "rocm-tui/report/2"
        none = await lab.answer("list", paths=[str(cache.parent / "none")])
        assert none["exit_code"] == 1 and none["document"]["tunings"] == [] and none["notes"]
        assert lab.asked == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_person_sees_the_effect_and_decides(
    cache: Path, mode: Literal["auto", "legacy"]
) -> None:
    before = contents(cache)
    async with connected(cache, mode=mode, says="decline") as lab:
        assert (await lab.error("pin", id=ID, choice="mm-bb"))["code"] == "declined"
        (message,) = lab.asked
        assert f"rocm-tui pin {ID} mm-bb" in message and "2 numbers are raised" in message
    assert contents(cache) == before
    async with connected(cache, mode=mode, says="accept") as lab:
        pinned = await lab.answer("pin", id=ID, choice="mm-bb", note="it's a test")
        assert pinned["document"]["schema"] == "rocm-tui/pin/1"
        assert "--note=it" in lab.asked[0]
        pins = await lab.answer("pins")
        assert [pin["id"] for pin in pins["document"]["pins"]] == [ID]
        undone = await lab.answer("undo")
        assert undone["document"]["dry_run"] is False and len(lab.asked) == 2
        nothing = await lab.answer("undo")  # there is no effect to ask about
        assert nothing["exit_code"] == 1 and len(lab.asked) == 2
    after = contents(cache)
    assert all(after[name] == data for name, data in before.items())


async def test_a_client_that_cannot_ask_needs_the_flag(cache: Path) -> None:
    before = contents(cache)
    async with connected(cache) as lab:
        refused = await lab.error("pin", id=ID, choice="mm-bb")
        assert refused["code"] == "not-allowed" and "--allow-changes" in refused["hint"]
    assert contents(cache) == before
    async with connected(cache, "--allow-changes") as lab:
        assert (await lab.answer("pin", id=ID, choice="mm-bb"))["exit_code"] == 0
        assert (await lab.answer("unpin", all=True))["document"]["unpinned"] == [ID]


ACTS: dict[str, dict[str, Any]] = {
    "measure": {"id": ID},
    "tune": {"words": [ID]},
    "trial": {"id": ID},
    "pin": {"id": ID, "choice": "mm-bb"},
    "unpin": {"all": True},
    "undo": {},
    "verify": {},
}


async def test_read_only_refuses_what_acts_and_reading_writes_nothing(cache: Path) -> None:
    assert {*ACTS} == {tool.name for tool in TOOLS if tool.acts}
    before = contents(cache.parent)
    log = str(cache.parent / "a.log")
    reads: dict[str, dict[str, Any]] = {
        "show": {"id": ID},
        "compare": {"a": log, "b": log},
        "lint": {"tables": [log]},
        "cover": {"paths": [log]},
    }
    async with connected(cache, "--read-only", says="accept") as lab:
        for name, arguments in ACTS.items():
            assert (await lab.error(name, **arguments))["code"] == "read-only", name
            planned, _ = await lab.call(name, {**arguments, "dry_run": True})
            assert "read-only" not in json.dumps(planned)
        for tool in (await lab.client.list_tools()).tools:
            assert tool.annotations is not None
            if tool.annotations.read_only_hint:
                result, _ = await lab.call(tool.name, reads.get(tool.name, {}))
                assert "read-only" not in json.dumps(result), tool.name
            else:
                assert tool.name in ACTS
        assert lab.asked == []
    assert contents(cache.parent) == before


async def test_the_settings_of_the_screen_hold_here(cache: Path, tmp_path: Path) -> None:
    settings = tmp_path / "config" / "rocm-tui" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[watch]\nread_only = true\n")
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    async with connected(cache, "--allow-changes", env=env) as lab:
        assert (await lab.error("unpin", all=True))["code"] == "read-only"
    async with connected(cache, "--allow-changes", "--no-read-only", env=env) as lab:
        await lab.answer("unpin", all=True)


HUGE = "x" * 5_000_000
HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("pin", {"id": "../../../etc/passwd", "choice": "#1"}),
    ("pin", {"id": "..", "choice": "../.."}),
    ("pin", {"id": ID, "choice": "no such"}),
    ("pin", {"id": ID, "choice": "#99"}),
    ("pin", {"id": ID, "choice": "[bold]x[/]\x1b[31m"}),
    ("pin", {"id": ID, "choice": "mm-bb", "note": "a\nb"}),
    ("pin", {"id": ID, "choice": "mm-bb", "note": HUGE}),
    ("pin", {"id": HUGE, "choice": "#1"}),
    ("pin", {"id": 5, "choice": "#1"}),
    ("pin", {"id": ID, "choice": "mm-bb", "dry_run": "no"}),
    ("pin", {"id": ID, "choice": "mm-bb", "python": "/bin/sh"}),
    ("pin", {"id": ID}),
    ("pin", {"id": "--undo", "choice": "x"}),
    ("unpin", {"ids": ["zzz"]}),
    ("unpin", {"ids": ["../pins.json:1"]}),
    ("unpin", {}),
    ("undo", {"limit": 0}),
    ("measure", {"id": "'; touch /tmp/x; '"}),
    ("measure", {"id": ID, "budget": "never"}),
    ("measure", {"id": ID, "budget": -1}),
    ("tune", {"words": ["mm", "8xa", "3x4"], "dtype": "f32"}),
    ("tune", {"words": ["-o", "/tmp/x"]}),
    ("tune", {"words": ["x"] * 101}),
    ("trial", {"id": "zzz", "graph": "../../x"}),
    ("show", {"id": "$(id)"}),
    ("show", {"id": ID, "reproducer": "/tmp/x"}),
    ("list", {"filter": "op:((("}),
    ("list", {"sort": "nonsense"}),
    ("list", {"paths": ["-"]}),
    ("cover", {"paths": ["a.log"], "write": "/tmp/x"}),
    ("lint", {"tables": ["/etc/shadow\x00"]}),
    ("verify", {"ids": ["zzz"], "program": ["true"]}),
    ("nothing", {}),
]


@pytest.mark.parametrize("asks", [False, True])
async def test_hostile_arguments_are_one_error_each_and_write_nothing(
    cache: Path, asks: bool
) -> None:
    """A person is not asked about what cannot work."""
    before = contents(cache.parent)
    words = [] if asks else ["--allow-changes"]
    async with connected(cache, *words, says="accept" if asks else None) as lab:
        for name, arguments in HOSTILE:
            error = await lab.error(name, **arguments)
            said = (name, str(arguments)[:100], error)
            assert error["message"].isprintable() and len(error["message"]) < 1_000, said
            assert "Traceback" not in error["message"] and error["code"] != "command-died", said
            assert "\x1b" not in json.dumps(error)
        assert (await lab.answer("list"))["exit_code"] == 0
        assert lab.asked == []
    assert contents(cache.parent) == before


@pytest.mark.parametrize(
    ("tool", "arguments", "effect"),
    [
        (
            "measure",
            {"id": ID, "budget": 5, "repeat": 2},
            "would measure ID mm 8×64 · 64×64 f32 for",
        ),
        ("measure", {"id": ID, "budget": 5, "repeat": 2}, "at most 10 s: "),
        ("tune", {"words": [ID]}, ID),
        ("unpin", {"all": True}, "would unpin mm-bb of ID"),
        ("unpin", {"ids": [ID]}, "would unpin mm-bb of ID"),
        ("verify", {}, "would verify ID mm 8×64"),
    ],
)
async def test_a_question_shows_the_effect(
    cache: Path, tool: str, arguments: dict[str, Any], effect: str
) -> None:
    PinStore(Layout(cache)).pin(None, TuningKey("mm", inputs(8), "highest"), "mm-bb", label="mm-bb")
    async with connected(cache, says="decline") as lab:
        assert (await lab.error(tool, **arguments))["code"] == "declined"
        assert effect.replace("ID", ID) in lab.asked[0]


async def test_a_question_hides_no_part_of_the_command(cache: Path) -> None:
    """A long note comes before --wrong, the id and the choice, which a person would not see."""
    before = contents(cache)
    async with connected(cache, says="accept") as lab:
        error = await lab.error("pin", id=ID, choice="mm-bb", note="x" * 2_000, wrong=True)
        assert error["code"] == "usage-error" and "shorten it to 2000" in error["message"]
        assert lab.asked == []
    assert contents(cache) == before


async def test_a_question_says_how_much_of_the_effect_it_leaves_out(tmp_path: Path) -> None:
    sizes = range(8, 8 + SHOWN + 3)
    write_cache(tmp_path, *sizes)
    for size in sizes:
        key = TuningKey("mm", inputs(size), "highest")
        PinStore(Layout(tmp_path)).pin(None, key, "mm-bb", label="mm-bb")
    async with connected(tmp_path, says="decline") as lab:
        assert (await lab.error("unpin", all=True))["code"] == "declined"
        _, *effect, last = lab.asked[0].splitlines()
    assert len(effect) == SHOWN and last == "… and 3 more lines"


async def test_nothing_to_do_is_no_question(cache: Path) -> None:
    async with connected(cache, says="accept") as lab:
        unpinned = await lab.answer("unpin", all=True)
        assert unpinned["exit_code"] == 1 and unpinned["document"]["would"] == []
        verified = await lab.answer("verify")
        assert verified["exit_code"] == 1 and verified["document"]["pins"] == []
        assert (await lab.answer("measure", suspects=True))["exit_code"] == 1
        assert lab.asked == []


@pytest.mark.parametrize("messages", [0, 1_000])
def test_one_interrupt_ends_the_server(cache: Path, messages: int) -> None:
    """With many messages it comes while one of them is handed on."""
    server = RawServer(cache)
    for _ in range(messages):
        server.send({"method": "notifications/initialized"})
    assert server.end(signal.SIGINT) == (130, "")


def test_a_client_that_is_gone_ends_the_server(cache: Path) -> None:
    server = RawServer(cache)
    assert server.process.stdout is not None
    server.process.stdout.close()
    server.send({"id": 2, "method": "tools/list", "params": {}})
    assert server.ended() == (1, "")


async def test_a_terminal_that_is_gone_ends_the_input() -> None:
    ours, theirs = os.openpty()
    with open(theirs, "rb") as stream:  # noqa: PTH123 - a terminal
        lines = lines_of(stream)
        os.write(ours, b"hi\n")
        async with asyncio.timeout(20):
            assert await anext(lines) == "hi\n"
            os.close(ours)  # reading fails with EIO from now on
            assert [line async for line in lines] == []


@pytest.mark.parametrize("half", ["\ud800", "\udc00 \ud83d", "\\ud800"])
def test_half_a_character_has_an_answer(cache: Path, half: str) -> None:
    server = RawServer(cache)
    arguments = {"id": ID, "choice": half, "dry_run": True}
    answer = server.request("tools/call", {"name": "pin", "arguments": arguments})
    (content,) = answer["result"]["content"]
    error = json.loads(content["text"])["error"]
    refused = "choice has characters that cannot be printed"
    assert (error["message"] == refused) is (half != "\\ud800")
    assert "choice" in error["message"] or "no choice" in error["message"]
    server.end(signal.SIGKILL)


@pytest.mark.parametrize("mode", MODES)
async def test_consent_counts_for_what_was_shown_only(
    cache: Path, mode: Literal["auto", "legacy"]
) -> None:
    """Another pin is made while the person looks at what `undo` would do."""
    key = TuningKey("mm", inputs(8), "highest")
    store = PinStore(Layout(cache))
    store.pin(None, key, "mm-bb", label="second")

    def meanwhile(asked: list[str]) -> None:
        if len(asked) == 1:
            store.pin(None, key, "triton_mm-cc", label="third")

    async with connected(cache, mode=mode, says="accept", meanwhile=meanwhile) as lab:
        outcome = await lab.client.call_tool("undo", {})
        if mode == "legacy":
            assert outcome.is_error and "something else would happen now" in str(outcome.content)
        else:  # the person is asked again, and sees the new step
            assert len(lab.asked) == 2 and "third" in lab.asked[1]
    (status,) = store.status()
    assert status.pin.hash == ("triton_mm-cc" if mode == "legacy" else "mm-bb")


async def test_a_whole_float_is_an_integer(cache: Path) -> None:
    async with connected(cache, says="decline") as lab:
        listed = await lab.answer("list", limit=1.0, offset=0.0)
        assert len(listed["document"]["tunings"]) == 1
