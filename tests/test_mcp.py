"""Tools for agents: the protocol over standard input and output, and that tools answer as the store does."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ripml import RIPML
from ripml.base.errors import DataError, ParameterError
from ripml.cli.mcp import responses
from ripml.datasets import documents_given
from ripml.store import Store
from ripml.store.tools import Tools

ROWS = [
    {"id": "a", "text": "ripe red apple", "labels": ["fruit"]}, {"id": "b", "text": "green pear", "labels": ["fruit"]},
    {"id": "c", "text": "grey rain", "labels": ["weather"]}, {"id": "d", "text": "blue sky", "labels": ["weather"]},
    {"id": "e", "text": "football match", "labels": []}, {"id": "f", "text": "football team", "labels": []},
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Store.create(tmp_path / "store", documents_given(ROWS), RIPML.linear(random_state=0)).close()
    return tmp_path / "store"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    with Store.open(folder) as opened:
        yield opened


def asked(tools: Tools, *messages: Any) -> list[Any]:
    lines = [message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages]
    return [json.loads(line) for line in responses(tools, io.BytesIO(b"\n".join(lines)))]


def request(method: str, id: int = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def called(tools: Tools, name: str, **arguments: Any) -> dict[str, Any]:
    (answer,) = asked(tools, request("tools/call", name=name, arguments=arguments))
    result: dict[str, Any] = answer["result"]
    assert answer["id"] == 1
    return result


def test_an_agent_in_another_process_starts_lists_and_calls_tools(folder: Path) -> None:
    messages = [
        request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "t", "version": "1"}),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request("tools/list", 2),
        request("tools/call", 3, name="suggest", arguments={"text": "an apple — 苹果", "n": 1}),
        request("tools/call", 4, name="learn", arguments={"documents": [{"text": "football", "labels": ["sport"]}]}),
        request("tools/call", 5, name="suggest", arguments={"text": "a football"}),
    ]
    command = [sys.executable, "-m", "ripml", "mcp", str(folder), "--actor", "agent"]
    lines = "\n".join(map(json.dumps, messages)) + "\n"
    done = subprocess.run(command, input=lines.encode(), capture_output=True, timeout=120, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2, 3, 4, 5]
    begun = answers[0]["result"]
    assert (begun["protocolVersion"], begun["serverInfo"]["name"]) == ("2025-06-18", "ripml")
    assert begun["capabilities"] == {"tools": {"listChanged": False}}
    listed = answers[1]["result"]["tools"]
    assert {tool["name"] for tool in listed} >= {"suggest", "explain", "learn", "review", "search_labels"}
    assert all(tool["inputSchema"]["type"] == "object" and tool["description"] for tool in listed)
    assert answers[2]["result"]["structuredContent"]["labels"][0]["label"] == "fruit"
    assert answers[4]["result"]["structuredContent"]["labels"][0]["label"] == "sport"
    with Store.open(folder, readonly=True) as after:
        assert after.history(1)[0]["actor"] == "agent"


def test_tools_answer_as_the_store_does(store: Store) -> None:
    tools = Tools(store, actor="ana")
    text = "red pear in the rain"
    suggested = called(tools, "suggest", text=text)["structuredContent"]["labels"]
    assert suggested == [{"label": label, "score": round(score, 4)} for label, score in store.model.suggest([text])[0]]
    (why, *_) = called(tools, "explain", text=text)["structuredContent"]["labels"]
    assert why["label"] == suggested[0]["label"]
    assert why["examples"] and why["words"]  # noqa: PT018
    found = called(tools, "search_labels", prefix="wether")["structuredContent"]["labels"]
    assert found == [{"label": "weather", "documents": 2, "retired": False}]
    (one,) = called(tools, "review", n=1)["structuredContent"]["documents"]
    assert one["text"].startswith("football")
    changed = called(tools, "relabel", id=one["id"], labels=["sport"])["structuredContent"]
    assert (changed["before"], changed["version"]) == ([], store.version)
    assert called(tools, "read_document", id=one["id"])["structuredContent"] == store.document(one["id"])
    (other,) = called(tools, "review", n=5)["structuredContent"]["documents"]
    assert called(tools, "release", ids=[other["id"]])["structuredContent"] == {"ids": [other["id"]]}
    content = called(tools, "suggest", text=text)
    assert json.loads(content["content"][0]["text"]) == content["structuredContent"]


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("suggest", {}, "`text` is missing in `arguments`."),
        ("suggest", {"text": 5}, "`text` must be a string; got 5."),
        ("suggest", {"text": "a", "n": 0}, "`n` must be from 1 to 1000; got 0."),
        ("suggest", {"text": "a", "n": True}, "`n` must be an integer; got True."),
        ("suggest", {"text": "a", "top": 3}, "`top` is not one of text, n."),
        ("learn", {"documents": []}, "`documents` must have 1 to 1000 items; got 0."),
        ("learn", {"documents": [{"text": "a", "labels": "x"}]}, "`documents[0].labels` must be an array; got x."),
        ("read_document", {"id": "nobody"}, "there is no document 'nobody'; ids here are such as 'a'."),
    ],
)
def test_what_a_tool_refuses_is_an_answer_that_says_what_is_wrong(
    name: str, arguments: dict[str, Any], sentence: str, store: Store
) -> None:
    tools = Tools(store)
    assert called(tools, name, **arguments) == {"content": [{"type": "text", "text": sentence}], "isError": True}
    with pytest.raises((ParameterError, DataError)) as refused:
        tools.call(name, arguments)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("message", "code", "id"),
    [
        (b"{", -32700, None),
        ([], -32600, None),
        ({"id": 1, "method": "ping"}, -32600, None),
        ({"jsonrpc": "2.0", "id": 1}, -32600, None),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, -32600, None),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}, -32600, None),
        (request("resources/list", 7), -32601, 7),
        (request("tools/call", 8, name="delete_everything"), -32602, 8),
    ],
)
def test_mistakes_in_the_protocol_have_its_codes(message: Any, code: int, id: int | None, store: Store) -> None:
    (answer,) = asked(Tools(store), message)
    assert (answer["error"]["code"], answer["id"]) == (code, id)


def test_notifications_and_responses_get_no_answer_and_batches_get_one(store: Store) -> None:
    tools = Tools(store)
    assert asked(tools, {"jsonrpc": "2.0", "method": "no such"}, {"jsonrpc": "2.0", "id": 1, "result": {}}, b"") == []
    (batch,) = asked(tools, [request("ping", 1), {"jsonrpc": "2.0", "method": "x"}, request("ping", 2)])
    assert batch == [{"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 2, "result": {}}]
    (answer,) = asked(tools, request("initialize", protocolVersion="1999-01-01"))
    assert answer["result"]["protocolVersion"] == "2025-11-25"


def test_a_reader_follows_the_writer_and_has_no_tool_that_changes_anything(store: Store, folder: Path) -> None:
    with Store.open(folder, readonly=True) as reader:
        tools = Tools(reader, readonly=True)
        assert set(tools.by_name) == {"suggest", "explain", "search_labels", "search_documents", "read_document"}
        (answer,) = asked(tools, request("tools/call", name="learn", arguments={}))
        assert answer["error"]["code"] == -32602
        store.relabel("e", ["sport"])
        assert called(tools, "suggest", text="football")["structuredContent"]["labels"][0]["label"] == "sport"
