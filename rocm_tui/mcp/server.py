"""The MCP server over stdio: lists the tools, obtains consent, runs commands, reports progress.

Each call runs the command in a process of its own. A crash or a cancelled call cannot hurt the
server, and ending the process ends its workers, as Ctrl-C does.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import shlex
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import anyio
import click
import jsonschema
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from backend.counted import counted
from backend.errors import brief
from rocm_tui.environment import COMMAND
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.harmless import plain
from rocm_tui.json_output import ErrorJson, encode
from rocm_tui.mcp.tools import MOST_TEXT, SHOWN, Tool, command_line, description_of, page, schema_of

PROGRESS_VARIABLE = "ROCM_TUI_PROGRESS"
MOST_NOTES = 20
GRACE = 10.0
"""Seconds in which a cancelled command ends its workers."""


class ReadOnly(RocmTuiError):
    """The server was started read-only, or the settings say so."""


class NotAllowed(RocmTuiError):
    """Nobody can be asked, and the server was started without --allow-changes."""

    hint = (
        "start the server as `rocm-tui mcp --allow-changes`, or use a client that can ask a person"
    )


class Declined(RocmTuiError):
    """The person said no."""


class CommandDied(RocmTuiError):
    """The command ended without an answer."""


@dataclass(frozen=True)
class Rights:
    """What the person who started the server allows."""

    read_only: bool
    allow_changes: bool


@dataclass(frozen=True)
class CommandOutcome:
    """How a command ended: its exit code, stdout, and the lines on stderr."""

    code: int
    text: str
    notes: list[str]

    @property
    def document(self) -> dict[str, Any]:
        """The last document on stdout. Raises CommandDied if there is none."""
        lines = self.text.strip().splitlines()
        try:
            document = json.loads(lines[-1]) if lines else None
        except ValueError:
            document = None
        if not isinstance(document, dict):
            last = self.notes[-1] if self.notes else "it printed nothing"
            raise CommandDied(f"the command ended with {self.code}: {last}")
        return document


class ToolServer:
    """Answers the requests of one client."""

    def __init__(
        self,
        tools: Mapping[str, tuple[Tool, click.Command]],
        rights: Rights,
        fixed: Mapping[str, str],
    ) -> None:
        self._tools = tools
        self._rights = rights
        self._fixed = fixed

    async def list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [
            types.Tool(
                name=tool.name,
                description=description_of(tool, command),
                input_schema=schema_of(tool, command),
                annotations=types.ToolAnnotations(
                    read_only_hint=not tool.acts, open_world_hint=False
                ),
            )
            for tool, command in self._tools.values()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Run a tool; what goes wrong is a result that is an error, which the agent can read."""
        try:
            return await self._call(context, params)
        except RocmTuiError as error:
            document = ErrorJson.of(error, str(error), error.hint)
            return _result(encode(document), is_error=True)

    async def _call(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if params.name not in self._tools:
            raise UsageError(f"no tool is called {brief(params.name, 60)}")
        tool, command = self._tools[params.name]
        arguments = dict(params.arguments or {})
        error = jsonschema.Draft202012Validator(schema_of(tool, command)).iter_errors(arguments)
        if wrong := next(error, None):
            place, value = ".".join(map(str, wrong.absolute_path)), repr(wrong.instance)
            message = wrong.message.replace(value, brief(value, 60))
            raise UsageError(brief(f"{place}: {message}" if place else message, 200))
        # JSON Schema takes 2.0 for an integer.
        arguments = {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in arguments.items()
        }
        words = command_line(tool, command, arguments, self._fixed)
        acting = tool.acts and not arguments.get("dry_run")
        if acting and self._rights.read_only:
            raise ReadOnly(f"read-only: {tool.name} writes files or runs jobs")
        if acting:
            answer = await self._consent(context, params, tool, words)
            if answer is not None:
                return answer
        outcome = await run([*words, "--json"], context.session.report_progress)
        return _paged(outcome, arguments)

    async def _consent(
        self,
        context: ServerRequestContext[Any],
        params: types.CallToolRequestParams,
        tool: Tool,
        words: Sequence[str],
    ) -> types.CallToolResult | types.InputRequiredResult | None:
        """Return None if the call may act. Raises NotAllowed and Declined."""
        if self._rights.allow_changes:
            return None
        session = context.session
        if session.client_capabilities is None or session.client_capabilities.elicitation is None:
            raise NotAllowed(f"{tool.name} needs a person's consent, and this client cannot ask")
        question = await _question(words)
        if not isinstance(question, str):
            return question
        # The key holds the effect too: an answer counts for what the person was shown.
        key = hashlib.sha256(question.encode()).hexdigest()[:16]
        answer = (params.input_responses or {}).get(key)
        if answer is None:
            form = types.ElicitRequestFormParams(
                message=question, requested_schema={"type": "object", "properties": {}}
            )
            if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return types.InputRequiredResult(
                    input_requests={key: types.ElicitRequest(params=form)}
                )
            answer = await session.elicit_form(
                form.message, form.requested_schema, context.request_id
            )
            if answer.action == "accept" and await _question(words) != question:
                raise Declined("something else would happen now than was agreed to; call it again")
        if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
            raise Declined("the person declined; nothing was changed")
        return None


async def _question(words: Sequence[str]) -> str | types.CallToolResult:
    """Return the question for a person, with the effect that a dry run shows.

    A call that would fail or do nothing has no question: return the result of its dry run. Raises
    UsageError for a command line of which a person would not see the end.
    """
    command = shlex.join(["rocm-tui", *words])
    if len(command) > MOST_TEXT:
        raise UsageError(
            f"a person has to see the whole command line, and it has {len(command)} characters: "
            f"shorten it to {MOST_TEXT}"
        )
    effect = await run([*words, "--dry-run"])
    if effect.code:
        return _paged(await run([*words, "--dry-run", "--json"]), {})
    lines = [brief(line, MOST_TEXT) for line in effect.text.strip().splitlines()]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"… and {counted(len(lines) - SHOWN, 'more line')}"]
    return "\n".join([f"Run `{plain(command)}`?", *lines])


def _result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], is_error=is_error
    )


def _paged(outcome: CommandOutcome, arguments: Mapping[str, Any]) -> types.CallToolResult:
    document = outcome.document
    if "error" in document:
        return _result(json.dumps(document), is_error=True)
    result = page(document, arguments.get("offset", 0), arguments.get("limit", SHOWN))
    notes = {"notes": outcome.notes[:MOST_NOTES]} if outcome.notes else {}
    return _result(json.dumps({"exit_code": outcome.code, **notes, **result}))


async def run(
    words: Sequence[str], report: Callable[..., Awaitable[None]] | None = None
) -> CommandOutcome:
    """Run a command of ours; end it if the call is cancelled."""
    reading, writing = os.pipe()
    with open(reading, "rb") as progress:  # noqa: PTH123 - a pipe
        try:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, PROGRESS_VARIABLE: str(writing)},
                pass_fds=(writing,),
                start_new_session=True,
            )
        finally:
            os.close(writing)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_follow, progress, report)
                out, err = await process.communicate()
                group.cancel_scope.cancel()
        finally:
            if process.returncode is None:
                with anyio.CancelScope(shield=True):
                    await _end(process)
    notes = err.decode("utf-8", "replace").splitlines()
    return CommandOutcome(
        process.returncode or 0,
        out.decode("utf-8", "replace"),
        [plain(brief(line.removeprefix("rocm-tui: "), 300)) for line in notes],
    )


async def _follow(stream: BinaryIO, report: Callable[..., Awaitable[None]] | None) -> None:
    """Pass on what a command writes about its progress, a document a line."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), stream
    )
    try:
        number = 0
        while line := await reader.readline():
            number += 1
            if report is not None:
                progress = json.loads(line)
                await report(number, None, f"{progress['title']}: {progress['text']}")
    finally:
        transport.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let a command end its workers, then end whatever is left in its session."""
    process.terminate()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(process.wait(), GRACE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def lines_of(stream: BinaryIO) -> AsyncIterator[str]:
    """Yield the lines of `stream`, read by a thread for which the end of the server does not wait.

    The SDK's own reader blocks in a thread that Ctrl-C has to wait for.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        # The loop has ended, or stdin was a terminal that is gone, which ends the input, too.
        with contextlib.suppress(RuntimeError, OSError):
            for line in stream:
                loop.call_soon_threadsafe(queue.put_nowait, line)
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(queue.put_nowait, b"")

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while line := await queue.get():
        yield _without_half_characters(line.decode("utf-8", "replace"))


_HALVES = re.compile("[\ud800-\udfff]")
_NO_CHARACTER = "\uffff"


def _without_half_characters(line: str) -> str:
    """Replace lone surrogates by a code that no tool accepts: the SDK drops such a message, and
    the client would wait for ever.
    """
    if "\\ud" not in line.lower():
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):  # the SDK refuses it too
        return line
    return _HALVES.sub(_NO_CHARACTER, text)


def serve(
    tools: Mapping[str, tuple[Tool, click.Command]],
    *,
    version: str,
    instructions: str,
    rights: Rights,
    fixed: Mapping[str, str],
) -> None:
    """Serve one client on stdin and stdout until it leaves.

    Raises OSError if stdout cannot be written, BrokenPipeError if nobody reads it any more, and
    KeyboardInterrupt for Ctrl-C.
    """
    answering = ToolServer(tools, rights, fixed)
    server: Server[Any] = Server(
        "rocm-tui",
        version=version,
        instructions=instructions,
        on_list_tools=answering.list_tools,
        on_call_tool=answering.call_tool,
    )

    async def main() -> None:
        stdin = cast("anyio.AsyncFile[str]", lines_of(open(0, "rb", closefd=False)))  # noqa: SIM115
        async with stdio_server(stdin) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    try:
        anyio.run(main)
    except Exception as error:
        cause: BaseException = error
        while errors := getattr(cause, "exceptions", ()):  # a group, a class that 3.10 lacks
            cause = errors[0]
        if isinstance(cause, OSError):
            raise cause from None
        # Ctrl-C closes the stream to which a task of the SDK hands on what a client has sent.
        if isinstance(cause, anyio.BrokenResourceError):
            raise KeyboardInterrupt from None
        raise
