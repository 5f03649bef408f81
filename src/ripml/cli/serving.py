"""What keys does."""

from __future__ import annotations

import sys
from pathlib import Path

from ripml.cli.output import print_json, printable, table
from ripml.server import add_key, list_keys, remove_key

__all__ = ["run_add_key", "run_list_keys", "run_remove_key"]


def run_add_key(file: Path, name: str, role: str, as_json: bool) -> None:
    """Make a key and print it."""
    key = add_key(file, name, role)
    print_json({"name": name, "role": role, "key": key}) if as_json else print(key)
    print("This key is shown once; keep it.", file=sys.stderr)


def run_list_keys(file: Path, as_json: bool) -> None:
    """Print whose keys there are."""
    keys = list_keys(file)
    if as_json:
        for key in keys:
            print_json({"name": key.name, "role": key.role, "created": key.created})
        return
    lines = [[printable(key.name), key.role, key.created] for key in keys]
    table(f"The keys in {file}", ["name", "role", "created"], lines, n_words=3)


def run_remove_key(file: Path, name: str, as_json: bool) -> None:
    """Remove a key."""
    remove_key(file, name)
    print_json({"removed": name}) if as_json else print(f"the key of {printable(name)} is removed")
