"""The root command `ripml`, put together from the commands of the other modules."""

from __future__ import annotations

from typing import Annotated

import typer

from ripml.cli import audit, datasets, inspect, lab, maintenance, mcp, serve, store, suggest, train, vocabulary

__all__ = ["app"]

app = typer.Typer(
    name="ripml",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for commands in (
    train.app, suggest.app, inspect.app, audit.app, store.app, vocabulary.app, maintenance.app, serve.app, mcp.app,
):  # fmt: skip
    app.add_typer(commands)
app.add_typer(store.labels_app, name="labels")
app.add_typer(serve.keys_app, name="keys")
app.add_typer(datasets.app, name="datasets")
app.add_typer(lab.app)


def _print_version(requested: bool) -> None:
    if requested:
        from ripml import __version__

        print(f"ripml {__version__}")
        raise typer.Exit()


@app.callback()
def ripml(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="With any command: print a traceback on errors.")] = False,
) -> None:
    """Tag texts and other data with labels from a set of thousands to millions, on ordinary CPUs, in minutes."""
