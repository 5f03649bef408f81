"""`ripml mcp`: a store as tools for agents, by the Model Context Protocol over standard input and output.

A message is a line of JSON-RPC 2.0: requests have an id and get one response, notifications have none and get none. See
https://modelcontextprotocol.io/specification; of the server's features there are tools alone. What a tool refuses is an
answer with `isError`, which an agent reads; a method or a tool that does not exist is an error of the protocol.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option, Typer

from ripml.base.errors import RipmlError
from ripml.cli import options
from ripml.cli.store import login_name, open_store

if TYPE_CHECKING:
    from typing import BinaryIO

    from ripml.store.tools import Tools

__all__ = ["app", "responses"]

app = Typer(rich_markup_mode=None)

_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # of the protocol, the newest first
_PARSE_ERROR, _INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS, _INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
_INSTRUCTIONS = (
    "Tags for texts, from a model that learns. suggest gives labels for a text, explain the reasons. search_labels "
    "finds the labels that there are, search_documents documents. To label what the model would learn most "
    "from: review, then relabel each."
)


@app.command(short_help="Give agents a store as tools.")
def mcp(
    store: options.Store,
    read_only: Annotated[
        bool, Option("--read-only", help="Only tools that change nothing; another process may write.")
    ] = False,
    actor: Annotated[str | None, Option(help="Who appears in the history. Default: the name of the user.")] = None,
) -> None:
    """Serve a store to one agent by the Model Context Protocol (MCP) over standard input and output.

    The tools are suggest, explain, search_labels, search_documents and read_document, and, unless --read-only is given,
    learn, relabel, review and release. An agent starts this command itself; in its settings, the command is ripml and
    the arguments are mcp and the folder of the store. It ends when standard input does.

    Example: ripml mcp store/ --read-only
    """
    from ripml.store.tools import Tools

    with open_store(store, readonly=read_only) as opened:
        tools = Tools(opened, read_only, actor or login_name())
        for line in responses(tools, sys.stdin.buffer):
            print(line, flush=True)


def responses(tools: Tools, requests: BinaryIO) -> Iterator[str]:
    """The lines that answer lines of requests."""
    for line in requests:
        if not line.strip():
            continue
        try:
            message = json.loads(line)
        except ValueError:
            yield _dumped(_error(None, _PARSE_ERROR, "this line is not JSON."))
            continue
        if isinstance(message, list) and message:  # a batch, which the version of 2025-03-26 has
            answers = [answer for one in message if (answer := _answer(tools, one)) is not None]
            if answers:
                yield _dumped(answers)
        elif (answer := _answer(tools, message)) is not None:
            yield _dumped(answer)


def _dumped(message: Any) -> str:
    return json.dumps(message, ensure_ascii=True, separators=(",", ":"))


def _answer(tools: Tools, message: Any) -> dict[str, Any] | None:
    """The response to a request; None for a notification, or a response of the client."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return _error(None, _INVALID_REQUEST, 'a message is an object with "jsonrpc": "2.0".')
    if "method" not in message:
        return None if "result" in message or "error" in message else _error(None, _INVALID_REQUEST, "no method.")
    id, method, parameters = message.get("id"), message["method"], message.get("params", {})
    if "id" not in message:
        return None
    if isinstance(id, bool) or not isinstance(id, (str, int)) or not isinstance(parameters, dict):
        return _error(None, _INVALID_REQUEST, "an id is a string or an integer, and params are an object.")
    if method == "initialize":
        return _result(id, _initialized(parameters))
    if method == "ping":
        return _result(id, {})
    if method == "tools/list":
        return _result(id, {"tools": [_described(tool) for tool in tools.by_name.values()]})
    if method == "tools/call":
        return _called(tools, id, parameters)
    return _error(id, _NO_METHOD, f"there is no method {str(method)[:100]!r}.")


def _initialized(parameters: dict[str, Any]) -> dict[str, Any]:
    """The version of the client if it is known, else the newest."""
    from ripml import __version__

    wanted = parameters.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in _VERSIONS else _VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "ripml", "title": "ripml", "version": __version__},
        "instructions": _INSTRUCTIONS,
    }


def _described(tool: Any) -> dict[str, Any]:
    hints = {"readOnlyHint": not tool.writes, "openWorldHint": False}
    if tool.writes:  # documents can be learnt again, and labels set back
        hints |= {"destructiveHint": tool.name in ("learn", "relabel"), "idempotentHint": tool.name != "learn"}
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.schema,
        "annotations": hints,
    }


def _called(tools: Tools, id: str | int, parameters: dict[str, Any]) -> dict[str, Any]:
    name, arguments = parameters.get("name"), parameters.get("arguments", {})
    if not isinstance(name, str) or name not in tools.by_name:
        return _error(id, _INVALID_PARAMS, f"there is no tool {str(name)[:100]!r}.")
    try:
        found = tools.call(name, arguments)
    except RipmlError as error:
        return _result(id, {"content": [{"type": "text", "text": str(error)}], "isError": True})
    except Exception as error:  # the agent goes on, and the log has the reason
        print(f"ripml: {name}: {type(error).__name__}: {error}", file=sys.stderr)
        return _error(id, _INTERNAL_ERROR, f"{name} failed ({type(error).__name__}).")
    text = json.dumps(found, ensure_ascii=False)
    return _result(id, {"content": [{"type": "text", "text": text}], "structuredContent": found, "isError": False})


def _result(id: str | int, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def _error(id: str | int | None, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}
