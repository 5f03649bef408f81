"""The commands that serve stores by HTTP and keep the keys for it, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ripml.cli.options import JsonOption
from ripml.cli.words import Role

__all__ = ["keys_app", "serving_app"]

serving_app = typer.Typer(rich_markup_mode=None)
keys_app = typer.Typer(help="Make, list, remove the API keys of a server.", rich_markup_mode=None)

KeysArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The file of keys; adding the first one makes it.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.")]


@serving_app.command(short_help="Serve stores by HTTP, with a page.")
def serve(
    stores: Annotated[
        list[str],
        typer.Argument(metavar="STORE", help="The folder of a store, or NAME=FOLDER to serve it under another name."),
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but this machine's own needs --keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 8000,
    keys: Annotated[Path | None, typer.Option(metavar="FILE", help="API keys; see ripml keys add.")] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A further name of the server, as behind a proxy.")
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="A web origin whose pages may call the server, like https://example.org."),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Change nothing; a store that another process writes is followed.")
    ] = False,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="A line for each request, without its text.")
    ] = False,
    max_body: Annotated[int, typer.Option(metavar="BYTES", help="The largest request.")] = 5_000_000,
    max_text: Annotated[int, typer.Option(metavar="CHARACTERS", help="The longest text.")] = 1_000_000,
    max_texts: Annotated[int, typer.Option(metavar="N", help="The most texts of a request.")] = 1_000,
    max_labels: Annotated[int, typer.Option(metavar="N", help="The most labels of a document.")] = 1_000,
    max_requests: Annotated[int, typer.Option(metavar="N", help="The most requests at a time.")] = 256,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="R", help="Requests a second of a caller, 0 for no limit; 100 otherwise, but none on this machine."
        ),
    ] = None,
) -> None:
    """Serve stores by HTTP: a page to tag and teach on, and an API for programs, described at /openapi.json.

    Ctrl+C stops the server when all that was begun is done. Needs the extra serve.

    Example: ripml serve store/ --port 8000

    Example: ripml serve news=stores/news wiki=stores/wiki --host 0.0.0.0 --keys keys.jsonl
    """
    from ripml.server import Settings, run

    settings = Settings(
        host=host, port=port, keys=keys, allowed_hosts=tuple(allowed_host or ()), origins=tuple(origin or ()),
        read_only=read_only, access_log=access_log, max_body=max_body, max_text=max_text, max_texts=max_texts,
        max_labels=max_labels, max_requests=max_requests, rate=rate,
    )  # fmt: skip
    run(stores, settings)


@keys_app.command("add", short_help="Make a key.")
def keys_add(
    file: KeysArgument,
    name: NameArgument,
    role: Annotated[Role, typer.Option(help="To ask only, or to change stores as well.")] = Role.read,
    json: JsonOption = False,
) -> None:
    """Make a key and print it, this once: the file has but its hash. A server that runs takes it up.

    Example: ripml keys add keys.jsonl alice --role write
    """
    from ripml.cli.serving import run_add_key

    run_add_key(file, name, role.value, as_json=json)


@keys_app.command("list", short_help="List the keys.")
def keys_list(file: KeysArgument, json: JsonOption = False) -> None:
    """List whose keys there are, with their roles and when they were made.

    Example: ripml keys list keys.jsonl
    """
    from ripml.cli.serving import run_list_keys

    run_list_keys(file, as_json=json)


@keys_app.command("remove", short_help="Remove a key.")
def keys_remove(file: KeysArgument, name: NameArgument, json: JsonOption = False) -> None:
    """Remove a key; a server that runs takes it no more.

    Example: ripml keys remove keys.jsonl alice
    """
    from ripml.cli.serving import run_remove_key

    run_remove_key(file, name, as_json=json)
