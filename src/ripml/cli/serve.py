"""`ripml serve` and `ripml keys`: the HTTP server and its API keys."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option, Typer

from ripml.cli import options, output

__all__ = ["app", "keys_app"]

app = Typer(rich_markup_mode=None)
keys_app = Typer(help="Create, list and remove API keys.", rich_markup_mode=None)

KeysArgument = Annotated[Path, Argument(metavar="FILE", help="The key file; adding the first key creates it.")]
NameArgument = Annotated[str, Argument(metavar="NAME", help="The name of the key's owner.")]


@app.command(short_help="Serve stores over HTTP, with a web page.")
def serve(
    stores: Annotated[
        list[str],
        Argument(metavar="STORE", help="The folder of a store, or NAME=FOLDER to serve it under another name."),
    ],
    host: Annotated[str, Option(help="The address to listen on; a public one requires --keys.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="The port, or 0 for any free port.")] = 8000,
    keys: Annotated[Path | None, Option(metavar="FILE", help="A file of API keys; see ripml keys add.")] = None,
    allowed_host: Annotated[
        list[str] | None, Option(metavar="NAME", help="Another host name, for example behind a proxy; repeatable.")
    ] = None,
    origin: Annotated[
        list[str] | None,
        Option(metavar="ORIGIN", help="A web origin that may call the server, e.g. https://example.org; repeatable."),
    ] = None,
    read_only: Annotated[
        bool, Option("--read-only", help="Allow no changes, and follow the changes of another process.")
    ] = False,
    warm: Annotated[
        bool, Option("--warm", help="Prepare for the first change at the start, which takes time and memory.")
    ] = False,
    workers: Annotated[
        int, Option(metavar="N", help="Processes that answer, on Linux; more than one needs --read-only.")
    ] = 1,
    access_log: Annotated[
        bool, Option("--access-log", help="Log each request with the name of its key, without its text.")
    ] = False,
    backups: Annotated[
        Path | None, Option(metavar="FOLDER", help="The folder that POST …/backup writes to. Default: no backups.")
    ] = None,
    tables: Annotated[
        Path | None,
        Option(
            metavar="FOLDER",
            help="The folder of tables to tag. Default: ripml-tables beside the first store; none with --keys.",
        ),
    ] = None,
    max_table: Annotated[int, Option(metavar="BYTES", help="Maximum size of such a table.")] = 100_000_000,
    max_body: Annotated[int, Option(metavar="BYTES", help="Maximum size of a request.")] = 5_000_000,
    max_text: Annotated[int, Option(metavar="CHARACTERS", help="Maximum length of a text.")] = 1_000_000,
    max_texts: Annotated[int, Option(metavar="N", help="Maximum number of texts in a request.")] = 1_000,
    max_labels: Annotated[int, Option(metavar="N", help="Maximum number of labels of a document.")] = 1_000,
    max_vocabulary: Annotated[
        int, Option(metavar="BYTES", help="Maximum size of a vocabulary that is sent as a file.")
    ] = 50_000_000,
    max_requests: Annotated[int, Option(metavar="N", help="Maximum number of concurrent requests.")] = 256,
    max_bytes: Annotated[
        int, Option(metavar="BYTES", help="Maximum size of the concurrent requests and large responses together.")
    ] = 128_000_000,
    rate: Annotated[
        float | None,
        Option(metavar="R", help="Requests per second and caller, 0: no limit. Default: 100, no limit on localhost."),
    ] = None,
    stop_seconds: Annotated[
        float, Option(metavar="S", help="Time to answer what is in progress and to save the model when stopped.")
    ] = 1.2,
) -> None:
    """Serve stores over HTTP: a page to tag and teach on, and an API for programs, described at /openapi.json.

    Ctrl+C stops the server after the requests that are in progress, and within two seconds. Requires the extra serve.

    Example: ripml serve store/ --port 8000

    Example: ripml serve news=stores/news wiki=stores/wiki --host 0.0.0.0 --keys keys.jsonl
    """
    from ripml.server import Settings, run

    settings = Settings(
        host=host, port=port, keys=keys, allowed_hosts=tuple(allowed_host or ()), origins=tuple(origin or ()),
        read_only=read_only, access_log=access_log, max_body=max_body, max_text=max_text, max_texts=max_texts,
        max_labels=max_labels, max_vocabulary=max_vocabulary, max_requests=max_requests, max_bytes=max_bytes, rate=rate,
        backups=backups, tables=tables, max_table=max_table, warm=warm, workers=workers, stop_seconds=stop_seconds,
    )  # fmt: skip
    run(stores, settings)


@keys_app.command("add", short_help="Create a key.")
def keys_add(
    file: KeysArgument,
    name: NameArgument,
    role: Annotated[Literal["read", "write"], Option(help="Read only, or also change stores.")] = "read",
    json: options.Json = False,
) -> None:
    """Create a key and print it. The file holds only its hash, so the key cannot be shown again.

    A running server accepts the key at once.

    Example: ripml keys add keys.jsonl alice --role write
    """
    from ripml.server import add_key

    key = add_key(file, name, role)
    output.print_result({"name": name, "role": role, "key": key}, key, json)
    print("Save this key now; it is not shown again.", file=sys.stderr)


@keys_app.command("list", short_help="List the keys.")
def keys_list(file: KeysArgument, json: options.Json = False) -> None:
    """List the owners of the keys, with their roles and the dates of creation.

    Example: ripml keys list keys.jsonl
    """
    from ripml.server import list_keys

    keys = list_keys(file)
    if json:
        for key in keys:
            output.print_json({"name": key.name, "role": key.role, "created": key.created})
        return
    rows = [[output.printable(key.name), key.role, key.created] for key in keys]
    output.print_table(f"The keys in {file}", ["name", "role", "created"], rows, n_left=3)


@keys_app.command("remove", short_help="Remove a key.")
def keys_remove(file: KeysArgument, name: NameArgument, json: options.Json = False) -> None:
    """Remove a key. A running server rejects it from then on.

    Example: ripml keys remove keys.jsonl alice
    """
    from ripml.server import remove_key

    remove_key(file, name)
    output.print_result({"removed": name}, f"the key of {output.printable(name)} was removed", json)
