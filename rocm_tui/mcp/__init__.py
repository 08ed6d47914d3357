"""The MCP server: tools for agents, each of which runs one command of ours with `--json`.

`tools` is plain data and needs nothing installed; `server` needs the extra `mcp`.
"""
