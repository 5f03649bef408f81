"""Write the moving picture of the landing page: `make pictures`, or `python docs/_site/film.py FILE [STORES]`.

A store of EU laws is served, and Chromium tags a law that it has not seen, learns, reviews a document, and shows
Quality and the Map. A frame is a screenshot with a pointer, a caption below it, and the milliseconds that it stays.
The store is copied from the folder STORES, or made by `laws` of pictures.py. Both need RIPML_DATA.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw
from playwright.sync_api import Locator, Page

from ripml import datasets

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from page_server import chromium, serving
from pictures import copied, laws

SCALE: Final = 0.8  # of the page in the film
WIDTH, HEIGHT, CAPTION = 1024, 656, 44
LAW: Final = 335  # of the test part: Spain suspends customs duties on seed of sunflowers
MOVE: Final = 6  # frames of a movement of the pointer
ARROW: Final = [(0, 0), (0, 17), (4, 13), (7, 19), (10, 18), (7, 12), (12, 12)]
STYLE: Final = (
    "margin:0;height:100vh;display:grid;place-items:center;background:#0b5a50;color:#fff;font:500 24px system-ui"
)


class Film:
    """Frames of a page, taken one after the other."""

    def __init__(self, page: Page, captions: Page) -> None:
        self.page, self.captions = page, captions
        self.at = (640.0, 720.0)  # of the pointer, in pixels of the page
        self.frames: list[Image.Image] = []
        self.durations: list[int] = []

    def caption(self, text: str) -> None:
        """What stands below the frames from now on."""
        self.captions.set_content(f'<body style="{STYLE}">{text}')
        self.below = _picture(self.captions.screenshot())

    def show(self, milliseconds: int) -> None:
        """Add a frame of the page as it is now; one that shows the same as the last prolongs it."""
        self._add(_picture(self.page.screenshot()), milliseconds)

    def _add(self, shown: Image.Image, milliseconds: int) -> None:
        frame = Image.new("RGB", (WIDTH, HEIGHT + CAPTION))
        frame.paste(shown)
        frame.paste(self.below, (0, HEIGHT))
        large = Image.new("RGBA", (64, 96))  # four times as large, for smooth edges
        ImageDraw.Draw(large).polygon([(4 * x + 4, 4 * y + 4) for x, y in ARROW], "black", "white", 5)
        arrow = large.resize((16, 24), Image.Resampling.LANCZOS)
        frame.paste(arrow, (int(SCALE * self.at[0]) - 1, int(SCALE * self.at[1]) - 1), arrow)
        if self.frames and frame.tobytes() == self.frames[-1].tobytes():
            self.durations[-1] += milliseconds
            return
        self.frames.append(frame)
        self.durations.append(milliseconds)

    def move(self, place: Locator, x: float = 0.5) -> None:
        """Move the pointer over an element, `x` of its width from the left."""
        place.scroll_into_view_if_needed()
        box = place.bounding_box()
        assert box is not None
        shown = _picture(self.page.screenshot())
        (left, top), goal = self.at, (box["x"] + x * box["width"], box["y"] + box["height"] / 2)
        for step in range(1, MOVE + 1):
            part = (step / MOVE) ** 2 * (3 - 2 * step / MOVE)  # slow, fast, slow
            self.at = (left + part * (goal[0] - left), top + part * (goal[1] - top))
            self._add(shown, 40)
        self.page.mouse.move(*self.at)

    def click(self, place: Locator, milliseconds: int = 500) -> None:
        """Click an element, and show what it did."""
        self.move(place)
        self.page.mouse.click(*self.at)
        self.page.wait_for_load_state("networkidle")
        self.show(milliseconds)

    def view(self, name: str, caption: str) -> None:
        """Go to a view by its link."""
        self.move(self.page.locator(f'#views [data-view="{name}"]'))
        self.page.mouse.click(*self.at)
        self.caption(caption)

    def save(self, path: Path) -> None:
        """Write an animation that starts again at its end."""
        first, *others = self.frames
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=self.durations,
            loop=0,
            quality=60,
            method=4,
        )


def _picture(screenshot: bytes) -> Image.Image:
    return Image.open(io.BytesIO(screenshot)).convert("RGB")


def play(film: Film, text: str) -> None:
    """The use of the page that the film shows."""
    page = film.page
    title, rest = text[:98], text[98:]
    film.caption("A new law, and 2,175 labels")
    film.show(600)
    page.click("#text")
    for start in range(0, len(title), 7):
        page.keyboard.insert_text(title[start : start + 7])
        page.evaluate("scrollTo(0, 0)")
        film.show(60)
    page.keyboard.insert_text(rest)
    page.evaluate("() => { document.querySelector('#text').scrollTop = 0; scrollTo(0, 0) }")
    film.show(200)
    page.locator(".tag .label", has_text="sunflower").wait_for()
    page.wait_for_load_state("networkidle")
    film.caption("Tags appear while you type")
    film.show(1500)

    film.caption("Each says why: words, and similar documents")
    film.click(page.locator(".tag .label", has_text="sunflower"), 0)
    page.locator(".because").wait_for()
    film.show(2200)

    film.caption("One is right, one is wrong; nothing is learnt of the others")
    film.click(page.locator(".tag .label", has_text="sunflower"), 200)
    film.click(page.locator(".tag", has_text="sunflower").locator(".accept"), 500)
    film.click(page.locator(".tag", has=page.get_by_text("seed", exact=True)).locator(".reject"), 700)
    film.caption("Learnt at once, and exactly: each score shows its change")
    film.click(page.locator("#learn"), 0)
    page.locator(".tag .change", has_text=re.compile(r"\d")).first.wait_for()
    page.wait_for_load_state("networkidle")
    film.show(2300)

    film.view("review", "Review asks about the documents that teach most")
    question = page.locator("#review-question")
    question.wait_for()
    page.wait_for_load_state("networkidle")
    film.show(1500)
    asked = question.inner_text()
    film.click(page.locator("#review-yes"), 0)
    page.wait_for_function("(asked) => document.querySelector('#review-question').innerText !== asked", arg=asked)
    film.show(1300)

    film.view("quality", "Quality says how much needs no review")
    slider = page.locator("#quality-confidence")
    slider.wait_for()
    page.wait_for_load_state("networkidle")
    film.show(900)
    film.move(slider, 0.5)
    for percent in range(50, 92, 3):
        slider.fill(str(percent / 100))
        box = slider.bounding_box()
        assert box is not None
        film.at = (box["x"] + percent / 100 * box["width"], box["y"] + box["height"] / 2)
        film.show(90)
    film.show(1300)

    film.view("map", "The Map shows all documents")
    page.locator("#map-legend li").first.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1000)
    film.show(2600)


def main(path: Path, made: Path | None) -> None:
    """Make the film from a copy of a store, or from a new one."""
    test = datasets.load("eurlex")[1]
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        store = copied(made, "laws", Path(place)) or laws(Path(place))
        with serving({"laws": store}) as address:
            look = browser.new_context(
                viewport={"width": int(WIDTH / SCALE), "height": int(HEIGHT / SCALE)},
                device_scale_factor=SCALE,
                reduced_motion="reduce",
            )
            page, captions = look.new_page(), look.new_page()
            captions.set_viewport_size({"width": int(WIDTH / SCALE), "height": int(CAPTION / SCALE)})
            page.set_default_timeout(120_000)
            for view in ("map", "review", ""):  # what takes seconds is ready before it is shown
                page.goto(f"{address}#laws/{view}")
                page.reload()
                page.locator(
                    {"map": "#map-legend li", "review": "#review-question"}.get(view, "#text")
                ).first.wait_for()
            film = Film(page, captions)
            play(film, (test.texts or [])[LAW])
            film.save(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
