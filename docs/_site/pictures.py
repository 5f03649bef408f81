"""Write the pictures of the page: `make pictures`, or `pictures.py FOLDER [--stores STORES] [NAME …]`.

Stores are made and served, and Chromium shows them. A picture is one line of `PICTURES`: its name, the address of a
view, the steps until it is worth seeing, and how it looks: light, dark, or on a phone. A store that is in STORES is
copied from there, because those of laws and of library records take minutes; they need RIPML_DATA.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, Literal, NamedTuple

from PIL import Image
from playwright.sync_api import Browser, Page

from ripml import RIPML, Store
from ripml.datasets import documents_given, load
from ripml.server import Settings

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from page_server import QUESTIONS, chromium, data_of, serving
from test_quality import documents, learn

Look = Literal["light", "dark", "phone", "tall"]
TEXT: Final = (
    "Compute the singular value decomposition of a sparse matrix.\n\n"
    "The largest singular values are found with an iterative eigensolver, so that the matrix is never made dense. "
    "Returns the left and right singular vectors as arrays."
)
RECIPE: Final = (
    "Lemon sponge\n\nWhisk three eggs with sugar until pale and fluffy, then fold in the flour, and the grated zest. "
    "Pour the batter into a buttered tin and bake it for half an hour, until a skewer comes out clean. "
    "Let it cool on a rack, drizzle the juice over it, dust it with icing sugar, and serve thick slices "
    "with whipped cream and ripe strawberries."
)
DOCUMENTS: Final = 1500
NEW: Final = 20  # documents that wait for review


class Picture(NamedTuple):
    """A picture: `look` is light, dark, phone, or light and tall."""

    name: str
    address: str
    steps: Callable[[Page], object]
    look: Look


def _suggested(page: Page) -> None:
    page.fill("#text", TEXT)
    page.locator(".tag").first.wait_for()


def _evidence(page: Page) -> None:
    _suggested(page)
    page.click(".tag .accept")
    page.click(".tag:nth-child(3) .reject")
    page.click(".tag:nth-child(2) .label")
    page.locator(".because").wait_for()


def _learnt(page: Page) -> None:
    _suggested(page)
    for row, verdict in ((1, "accept"), (2, "accept"), (3, "reject")):
        page.click(f".tag:nth-child({row}) .{verdict}")
    page.keyboard.press("Control+s")
    page.locator(".decision").first.wait_for()


def _card(page: Page) -> None:
    page.locator("#card-open").click()
    page.locator("#card[open]").wait_for()


def _question(page: Page) -> None:
    page.locator("#review-question").wait_for()


def _table(page: Page) -> None:
    page.locator("#tables-choose").wait_for()
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["nr", "question"], *enumerate(text for text, _ in QUESTIONS)])
    table = {"name": "questions.csv", "mimeType": "text/csv", "buffer": text.getvalue().encode()}
    page.set_input_files("#tables-files", [table])  # type: ignore[list-item]
    page.locator("#tables-columns input").first.wait_for()
    page.click("#tables-setup .main")
    page.locator("#tables-formats button").first.wait_for()
    page.locator("#tables-rows li").first.wait_for()


def _doubtful(page: Page) -> None:
    page.locator("#review-begin").click()
    page.locator("#review-near li").first.wait_for()


def _unlike(page: Page) -> None:
    page.fill("#text", RECIPE)
    page.locator("#unlike").wait_for()


def _document(page: Page) -> None:
    page.locator(".documents-row mark").first.wait_for()


def _merge(page: Page) -> None:
    page.locator("#labels-card").wait_for()
    page.click('#labels-actions [data-do="merge"]')
    page.fill("#labels-into", "fishing")
    page.locator("#labels-options li").first.click()
    page.locator("#labels-preview", has_text="document").wait_for()


def _map(page: Page) -> None:
    page.locator("#map-legend li").first.wait_for(timeout=300_000)
    page.wait_for_timeout(1000)  # until the names are drawn


def _unseen(page: Page) -> None:
    page.locator("#quality-confidence").wait_for()


def _record(page: Page) -> None:
    with _new_records().open(encoding="utf-8") as file:
        record = list(csv.DictReader(file))[2]
    page.fill("#text", f"{record['title']}\n\n{record['abstract']}")
    page.locator(".tag").first.wait_for()
    page.click(".tag .label")
    page.locator(".because").wait_for()


def _records(page: Page) -> None:
    page.locator("#tables-choose").wait_for()
    page.set_input_files("#tables-files", _new_records())
    page.locator("#tables-columns input[value=title]").check()
    page.click("#tables-setup .main")
    page.locator("#tables-formats button").first.wait_for()
    page.locator("#tables-rows li").first.wait_for()


def _report(page: Page) -> None:
    page.click("#quality-begin")
    page.locator("#quality-labels tbody th").first.wait_for()
    page.evaluate("scrollTo(0, 0)")


def _numpydoc(folder: Path) -> Store:
    """Docstrings with what they refer to, and some that wait for review."""
    data, _ = load("numpydoc")
    documents = [(text, data.row_labels(i)) for i, text in enumerate(data.texts or [])][:DOCUMENTS]
    store = Store.create(folder / "numpydoc", data_of(documents), RIPML(random_state=0))
    store.learn([{"id": f"new-{i}", "text": text, "labels": []} for i, text in enumerate((data.texts or [])[-NEW:])])
    return store


def _subjects(folder: Path) -> Store:
    """Generated documents that were learnt, refitted and decided on, so that there is a history to report."""
    store = Store.create(folder / "subjects", data_of(documents(400, noise=4)), RIPML(random_state=0))
    for seed in (1, 2, 3):
        learn(store, 100, seed, noise=4)
        store.refit()
    for i, (text, labels) in enumerate(documents(40, 4, noise=4)):
        (found,) = store.model.suggest([text])
        suggested = [label for label, _ in found]
        accepted = [label for label in suggested if label in labels]
        store.decide({"id": f"new {i}", "text": text}, accepted, [one for one in suggested if one not in labels])
    return store


def laws(folder: Path) -> Store:
    """4,000 laws of the European Union with concepts of EuroVoc, and 300 without, from RIPML_DATA."""
    train, test = load("eurlex")
    texts, new = ([text[:4000] for text in (part.texts or [])[:n]] for part, n in ((train, 4000), (test, 300)))
    store = Store.create(
        folder / "laws", documents_given(texts, [train.row_labels(i) for i in range(4000)]), RIPML(random_state=0)
    )
    store.learn(documents_given(new, [[]] * len(new)))
    return store


def library(folder: Path) -> Store:
    """Library records with subjects of the GND, from RIPML_DATA: the store of docs/library.md, with English names."""
    home = Path(os.environ["RIPML_DATA"]) / "tibkat"
    with gzip.open(home / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if row["split"] == "train"]
    with gzip.open(home / "names-en.tsv.gz", "rt", encoding="utf-8") as file:
        names = [line.rstrip("\n").split("\t") for line in file]
    with (folder / "subjects.csv").open("w", encoding="utf-8", newline="") as table:
        csv.writer(table).writerows([("id", "name_en"), *names])
    records = documents_given([{key: row[key] for key in ("id", "text", "labels")} for row in rows])
    return Store.create(folder / "library", records, RIPML(random_state=0), vocabulary=folder / "subjects.csv")


@cache
def _new_records() -> Path:
    """A table of 200 English records that the store has not."""
    path = Path(tempfile.mkdtemp()) / "new.csv"
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "tibkat" / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if row["split"] == "test" and row["lang"] == "en"]
    with path.open("w", encoding="utf-8", newline="") as table:
        some = rows[:: len(rows) // 200][:200]
        csv.writer(table).writerows(
            [("id", "title", "abstract"), *((row["id"], *row["text"].split("\n", 1)) for row in some)]
        )
    return path


PICTURES: Final[dict[Callable[[Path], Store], list[Picture]]] = {
    _numpydoc: [
        Picture("evidence", "", _evidence, "light"),
        Picture("phone", "", _evidence, "phone"),
        Picture("card", "", _card, "light"),
        Picture("review", "/review", _question, "light"),
        Picture("tables", "/tables", _table, "light"),
        Picture("tables-dark", "/tables", _table, "dark"),
        Picture("tables-phone", "/tables", _table, "phone"),
        Picture("learnt", "", _learnt, "dark"),
    ],
    _subjects: [Picture("quality", "/quality", _report, "tall")],
    laws: [
        Picture("documents", "/documents?q=fishing+licence", _document, "light"),
        Picture("documents-dark", "/documents?q=fishing+licence", _document, "dark"),
        Picture("documents-phone", "/documents?q=fishing+licence", _document, "phone"),
        Picture("labels", "/labels?label=fishery+resources", _merge, "light"),
        Picture("labels-dark", "/labels?label=fishery+resources", _merge, "dark"),
        Picture("labels-phone", "/labels?label=fishery+resources", _merge, "phone"),
        Picture("map", "/map", _map, "light"),
        Picture("map-dark", "/map", _map, "dark"),
        Picture("map-phone", "/map", _map, "phone"),
        Picture("review-dark", "/review", _question, "dark"),
        Picture("review-phone", "/review", _question, "phone"),
        Picture("doubtful", "/review?queue=doubtful", _doubtful, "light"),
        Picture("unseen", "/quality", _unseen, "light"),
        Picture("quality-dark", "/quality", _unseen, "dark"),
        Picture("quality-phone", "/quality", _unseen, "phone"),
        Picture("unlike", "", _unlike, "light"),
    ],
    library: [
        Picture("library-tag", "", _record, "light"),
        Picture("library-tables", "/tables", _records, "light"),
        Picture("library-quality", "/quality", _unseen, "light"),
        Picture("library-map", "/map", _map, "light"),
    ],
}
SIZES: Final = {"phone": (360, 740), "tall": (1280, 1000)}  # others are 1280 × 800


def main(folder: Path, names: list[str], made: Path | None) -> None:
    """Write all pictures, or those with these names."""
    for make, pictures in PICTURES.items():
        wanted = [picture for picture in pictures if not names or picture.name in names]
        if not wanted:
            continue
        with tempfile.TemporaryDirectory() as place, chromium() as browser:
            name = make.__name__.strip("_")
            store = copied(made, name, Path(place)) or make(Path(place))
            with serving({name: store}, Settings(tables=Path(place) / "tables")) as address:
                for picture in wanted:
                    _write(picture, browser, f"{address}#{name}{picture.address}", folder)


def copied(made: Path | None, name: str, place: Path) -> Store | None:
    """A copy of the store of this name in a folder, if it is there."""
    if made is None or not (made / name).is_dir():
        return None
    return Store.open(shutil.copytree(made / name, place / name))


def _write(picture: Picture, browser: Browser, address: str, folder: Path) -> None:
    width, height = SIZES.get(picture.look, (1280, 800))
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if picture.look == "dark" else "light",
        reduced_motion="reduce",
    )
    page.set_default_timeout(60_000)
    page.goto(address)
    page.locator("#size").wait_for(state="attached")
    picture.steps(page)
    page.wait_for_load_state("networkidle")
    with Image.open(io.BytesIO(page.screenshot())) as image:
        small = image.convert("RGB").quantize(64, dither=Image.Dither.NONE)
        if "map" in picture.name:  # few pixels have the colour of a label: keep the most frequent colours as they are
            colours = sorted(image.convert("RGB").getcolors(1 << 24) or [], reverse=True)[:112]
            palette = Image.new("P", (1, 1))
            palette.putpalette([part for _, colour in colours for part in colour])
            small = image.convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE)
        small.save(folder / f"{picture.name}.png", optimize=True)
    page.close()


if __name__ == "__main__":
    given = sys.argv[1:]
    stores = Path(given.pop(given.index("--stores") + 1)) if "--stores" in given else None
    main(Path(given[0]), [name for name in given[1:] if name != "--stores"], stores)
