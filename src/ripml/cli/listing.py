"""What datasets list, info and get do."""

from __future__ import annotations

from pathlib import Path

from ripml import datasets
from ripml.cli.output import bar, facts, print_json, table
from ripml.cli.summaries import statistics

__all__ = ["run_datasets_get", "run_datasets_info", "run_datasets_list"]


def run_datasets_list(as_json: bool) -> None:
    """Print the names of the sets that are here and of the originals."""
    here, originals = datasets.available(), datasets.fetch.ORIGINALS
    if as_json:
        print_json({"here": here, "originals": {name: original.url for name, original in originals.items()}})
        return
    print(f"Here (ripml train NAME …): {', '.join(here)}\n")
    facts("Originals (ripml datasets get NAME):", {name: original.url for name, original in originals.items()})


def run_datasets_info(name: str, as_json: bool) -> None:
    """Print the statistics of the parts of a named set."""
    train, test = (statistics(part) for part in datasets.load(name))
    if as_json:
        print_json({"train": train, "test": test})
    else:
        lines = [[key.replace("_", " "), f"{train[key]:,}", f"{test[key]:,}"] for key in train]
        table(name, ["", "train", "test"], lines)


def run_datasets_get(name: str, folder: Path | None, sha256: str | None, url: str | None, as_json: bool) -> None:
    """Fetch an original and print where it is."""
    with bar(f"fetching {name}", None, "bytes") as advance:
        seen = 0

        def progress(done: int, total: int | None) -> None:
            nonlocal seen
            advance(done - seen)
            seen = done

        path = datasets.fetch.get(name, folder, sha256=sha256, url=url, progress=progress)
    print_json({"path": str(path)}) if as_json else print(path)
