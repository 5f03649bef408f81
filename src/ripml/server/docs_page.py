"""The page /docs: the OpenAPI description for people, as HTML without scripts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from itertools import groupby
from typing import Any

__all__ = ["docs_page"]

_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<link rel="stylesheet" href="page/docs.css"><link rel="icon" href="page/icon.svg"></head><body><main>'
)


def docs_page(description: Mapping[str, Any]) -> str:
    """The page for an OpenAPI description.

    >>> operation = {"description": "200 if < 1 problem.", "responses": {"200": {"description": "ok"}}}
    >>> page = docs_page({"info": {"title": "ripml", "version": "1"}, "paths": {"/health": {"get": operation}}})
    >>> '<h2 id="get-health"><code>GET /health</code></h2><p>200 if &lt; 1 problem.</p>' in page
    True
    """
    info, schemas = description["info"], description.get("components", {}).get("schemas", {})
    operations = [
        (path, method, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    listed = "".join(
        f"<li>{', '.join(_link(path, method) for path, method, _ in some)}</li>"
        for _, some in groupby(operations, key=lambda one: one[0])
    )
    parts = [
        _HEAD.format(title=f"{escape(info['title'])} API"),
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        "<p>Requests and responses are JSON. For programs: <a href='openapi.json'>openapi.json</a>. Where the server "
        "has keys, send <code>Authorization: Bearer KEY</code>.</p>",
        f"<nav><ul>{listed}</ul></nav>",
        *(part for one in operations for part in _operation(*one)),
        "<h1>Objects</h1>",
        *(part for name, schema in sorted(schemas.items()) for part in _object(name, schema)),
        "</main></body></html>",
    ]
    return "\n".join(parts)


def _anchor(path: str, method: str) -> str:
    letters = "".join(char if char.isalnum() else "-" for char in path)
    return "-".join(part for part in f"{method}-{letters}".split("-") if part)


def _link(path: str, method: str) -> str:
    return f'<a href="#{_anchor(path, method)}"><code>{method.upper()} {escape(path)}</code></a>'


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    title = f"<code>{method.upper()} {escape(path)}</code>"
    text = operation.get("description") or operation.get("summary", "")
    yield f'<h2 id="{_anchor(path, method)}">{title}</h2><p>{escape(text)}</p>'
    given = [{**one["schema"], **one} for one in operation.get("parameters", ())]
    parameters = [(one["name"], one["in"], _type(one["schema"]), one.get("description")) for one in given]
    if parameters:
        yield _table(("parameter", "in", "type", ""), parameters)
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body: <code>{escape(kind)}</code>, {_type(content.get('schema', {}))}</p>"
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            kinds = response.get("content", {}).items()
            shown = ", ".join(f"<code>{escape(kind)}</code> {_type(one.get('schema', {}))}" for kind, one in kinds)
            yield f"<p>Answer {status}: {shown or 'nothing'}</p>"


def _object(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    text = escape(schema.get("description", ""))
    yield f'<h2 id="object-{escape(name)}"><code>{escape(name)}</code></h2><p>{text}</p>'
    required = schema.get("required", ())
    rows = [
        (field, "yes" if field in required else _default(one), _type(one), one.get("description"))
        for field, one in schema.get("properties", {}).items()
    ]
    if rows:
        yield _table(("field", "required, or default", "type", ""), rows)


def _default(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema["default"]) if "default" in schema else "no"


def _table(head: Iterable[str], rows: Iterable[tuple[str, str, str, str | None]]) -> str:
    """Rows of a name, a plain word, a type, which is HTML, and a sentence."""
    first = "".join(f"<th>{cell}</th>" for cell in head)
    cells = (
        (f"<code>{escape(name)}</code>", escape(word), kind, escape(text or "")) for name, word, kind, text in rows
    )
    lines = ("".join(f"<td>{cell}</td>" for cell in row) for row in cells)
    return f"<table><tr>{first}</tr><tr>{'</tr><tr>'.join(lines)}</tr></table>"


def _type(schema: Mapping[str, Any]) -> str:
    """The type of a value, as HTML: a link where it is an object with a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#object-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema and schema.get("title") != "Store":
        return " or ".join(escape(json.dumps(value)) for value in schema["enum"])
    if "const" in schema:
        return escape(json.dumps(schema["const"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    bounds = "" if low is None and high is None else f" ({'' if low is None else low} … {'' if high is None else high})"
    return escape(str(schema.get("type", "any")) + bounds)
