"""Write the pictures of docs/page.md: `make pictures`, or `python docs/_site/pictures.py docs/page [NAME …]`.

A store of numpydoc docstrings is made and served, and Chromium shows it. A picture is one line of `PICTURES`: its name,
the address of a view, the steps until it is worth seeing, and how it looks: light, dark, or on a phone.
"""

from __future__ import annotations

import csv
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from PIL import Image
from playwright.sync_api import Browser, Page

from ripml import RIPML, Store
from ripml.datasets import load
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


PICTURES: Final[dict[Callable[[Path], Store], list[Picture]]] = {
    _numpydoc: [
        Picture("evidence", "", _evidence, "light"),
        Picture("phone", "", _evidence, "phone"),
        Picture("card", "", _card, "light"),
        Picture("review", "/review", _question, "light"),
        Picture("tables", "/tables", _table, "light"),
        Picture("learnt", "", _learnt, "dark"),
    ],
    _subjects: [Picture("quality", "/quality", _report, "tall")],
}
SIZES: Final = {"phone": (360, 740), "tall": (1280, 1000)}  # others are 1280 × 800


def main(folder: Path, names: list[str]) -> None:
    """Write all pictures, or those with these names."""
    for make, pictures in PICTURES.items():
        wanted = [picture for picture in pictures if not names or picture.name in names]
        if not wanted:
            continue
        with tempfile.TemporaryDirectory() as place, chromium() as browser:
            store = make(Path(place))
            name = make.__name__.strip("_")
            with serving({name: store}, Settings(tables=Path(place) / "tables")) as address:
                for picture in wanted:
                    _write(picture, browser, f"{address}#{name}{picture.address}", folder)


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
        small.save(folder / f"{picture.name}.png", optimize=True)
    page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
