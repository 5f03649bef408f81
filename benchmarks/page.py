"""The page in Chromium: what the first view transfers, how long it takes, and the longest task of every interaction.

    python benchmarks/page.py [--quick] [--json PATH]

The server has a store of 3,000 documents of EUR-Lex (--quick, or without RIPML_DATA: fourteen questions). The first
view is opened seven times in new contexts on loopback; its time is that until the last of its parts and answers is
there, and the median is shown. Interactions are measured by the browser itself: a long task (PerformanceObserver) holds
up the page for more than 50 milliseconds. CPU seconds are those of the server with this script, without Chromium, and
the load is that of the machine.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import Row, finish, has_data, options
from playwright.sync_api import Browser, Page

from ripml import RIPML, Store

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from page_server import QUESTIONS, chromium, data_of, serving

DOCUMENTS, VIEWS = 3000, 7
LONG = 200_000  # characters
SIZES = """() => Object.fromEntries(["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type))
    .filter(({ name }) => !name.includes("/v1/")).map((entry) => [entry.name, entry.decodedBodySize]))"""
OBSERVE = """() => {
    window.longest = 0;
    new PerformanceObserver((list) => list.getEntries().forEach((task) => (longest = Math.max(longest, task.duration))))
        .observe({ type: "longtask" });
}"""


def documents() -> list[tuple[str, list[str]]]:
    """Texts with their labels."""
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "eurlex" / "docs.jsonl.gz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for _, line in zip(range(DOCUMENTS), lines, strict=False)]
    return [(record["text"], record["labels"]) for record in records]


def first_views(browser: Browser, address: str) -> tuple[float, dict[str, int]]:
    """The median of milliseconds until the first view can be used, and the bytes of its parts."""
    seconds = []
    for _ in range(VIEWS):
        page = browser.new_page()
        page.goto(address)
        page.locator("#empty").wait_for()
        seconds.append(page.evaluate("performance.getEntriesByType('resource').at(-1).responseEnd"))
        sizes: dict[str, int] = page.evaluate(SIZES)
        page.close()
    return statistics.median(seconds), sizes


def longest(page: Page, act: Callable[[], object]) -> float:
    """The milliseconds of the longest task while something is done, 0 where none takes 50."""
    page.evaluate("longest = 0")
    act()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(200)
    return float(page.evaluate("longest"))


def interactions(page: Page, text: str) -> list[Row]:
    """The longest tasks of what people do."""
    page.evaluate(OBSERVE)
    rows = page.locator(".tag")

    def suggest() -> None:
        page.fill("#text", text)
        rows.first.wait_for()

    def more() -> None:
        for _ in range(6):
            page.evaluate("document.querySelector('#more').click()")
            page.locator("#tags[aria-busy=false]").wait_for()

    def evidence() -> None:
        rows.first.locator(".label").click()
        page.locator(".because").first.wait_for()

    def type_on() -> None:
        page.locator("#text").press("End")
        page.keyboard.type(" and so on", delay=30)

    def long_text() -> None:
        page.fill("#text", (text * (LONG // len(text) + 1))[:LONG])

    steps: list[tuple[str, Callable[[], object]]] = [
        ("suggest", suggest),
        ("evidence", evidence),
        ("accept", lambda: rows.first.locator(".accept").click()),
        ("more tags to the end", more),
        ("review", lambda: page.get_by_role("link", name="Review").click()),
        ("tables", lambda: page.get_by_role("link", name="Tables").click()),
        ("back to tag", lambda: page.get_by_role("link", name="Tag").click()),
        (f"paste {LONG:,} characters", long_text),
        (f"type in {LONG:,} characters", type_on),
    ]
    return [(f"longest task, ms: {name}", longest(page, act), "below 100") for name, act in steps]


def main() -> None:
    arguments = options(__doc__ or "")
    small = arguments.quick or not has_data()
    given = QUESTIONS if small else documents()
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(Path(folder) / "store", data_of(given), RIPML(random_state=0))
        cpu = time.process_time()
        with serving({"store": store}) as address, chromium() as browser:
            milliseconds, sizes = first_views(browser, address)
            page = browser.new_page()
            page.goto(address)
            page.wait_for_selector("#empty")
            measured = interactions(page, given[5][0][:5000])
        cpu = time.process_time() - cpu
    script = sum(size for name, size in sizes.items() if name.endswith(".js"))
    finish(
        [
            ("first view, KB of all its parts, uncompressed", sum(sizes.values()) / 1024, "at most 120"),
            ("first view, KB of its modules, uncompressed", script / 1024, "at most 60"),
            ("first view, ms on loopback, median", milliseconds, "below 300"),
            *measured,
            ("CPU, s, of server and script", cpu, ""),
            ("load of the machine", os.getloadavg()[0], ""),
        ],
        arguments.json,
    )


if __name__ == "__main__":
    main()
