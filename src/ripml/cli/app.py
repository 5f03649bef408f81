"""The shell command: its commands, a group of them a module."""

from __future__ import annotations

from typing import Annotated

import typer

from ripml.cli.asking_commands import asking_app
from ripml.cli.dataset_commands import datasets_app
from ripml.cli.serving_commands import keys_app, serving_app
from ripml.cli.store_commands import store_app
from ripml.cli.training_commands import training_app

__all__ = ["app"]

app = typer.Typer(
    name="ripml",
    help="Tag things out of thousands to millions of labels, on ordinary CPUs, in minutes.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for some in (training_app, asking_app, store_app, serving_app):
    app.add_typer(some)
app.add_typer(keys_app, name="keys")
app.add_typer(datasets_app, name="datasets")


def _version(wanted: bool) -> None:
    if wanted:
        from ripml import __version__

        print(f"ripml {__version__}")
        raise typer.Exit()


@app.callback()
def ripml(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="With any command: a traceback when something fails.")] = False,
) -> None:
    """Tag things out of thousands to millions of labels, on ordinary CPUs, in minutes."""
