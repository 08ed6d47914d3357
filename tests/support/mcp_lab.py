"""A client of the SDK's own, connected to `rocm-tui mcp` over stdio."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.types import ElicitRequestParams, ElicitResult, TextContent

from tests.support.places import ROOT
from tests.support.torch_models import child_env

SERVER = str(ROOT / "rocm_tui_entry.py")


@dataclass
class Lab:
    """A connected client, and what the server asked the person."""

    client: Client
    asked: list[str] = field(default_factory=list)
    progress: list[str] = field(default_factory=list)

    async def answer(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that succeeds, and return its result."""
        result, failed = await self.call(tool, arguments)
        assert not failed, result
        return result

    async def error(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that is refused, and return the error."""
        result, failed = await self.call(tool, arguments)
        assert failed and result["schema"] == "rocm-tui/error/1", result
        error: dict[str, Any] = result["error"]
        return error

    async def call(
        self, tool: str, arguments: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bool | None]:
        async def note(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append(message or "")

        done = await self.client.call_tool(tool, dict(arguments), progress_callback=note)
        (content,) = done.content
        assert isinstance(content, TextContent)
        return json.loads(content.text), done.is_error


class RawServer:
    """The server without a client of the SDK, which cannot send what is wrong."""

    def __init__(self, cache: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, SERVER, "mcp", *words],
            env=child_env(cache),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        client = {"name": "raw", "version": "0"}
        head = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        self.request("initialize", head)
        self.send({"method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.send({"id": 1, "method": method, "params": params})
        return self.receive()

    def end(self, how: int) -> tuple[int, str]:
        """Return the exit code and stderr after one signal, while stdin stays open."""
        self.process.send_signal(how)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Wait for the end, and return the exit code and stderr."""
        assert self.process.stderr is not None
        code = self.process.wait(timeout=60)
        return code, self.process.stderr.read()


@asynccontextmanager
async def connected(
    cache: Path,
    *words: str,
    says: Literal["accept", "decline"] | None = None,
    mode: Literal["auto", "legacy"] = "auto",
    env: Mapping[str, str] | None = None,
    meanwhile: Callable[[list[str]], None] = lambda asked: None,
) -> AsyncIterator[Lab]:
    """Connect a client; one without `says` cannot ask a person. `meanwhile` gets the questions so
    far, while the person looks at the last one.
    """
    asked: list[str] = []

    async def elicit(context: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        meanwhile(asked)
        return ElicitResult(action=says or "cancel")

    parameters = StdioServerParameters(
        command=sys.executable, args=[SERVER, "mcp", *words], env=child_env(cache, env)
    )
    async with Client(parameters, mode=mode, elicitation_callback=elicit if says else None) as one:
        yield Lab(one, asked)
