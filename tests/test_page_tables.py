"""The view Tables in Chromium: a table is dropped, fills, is reviewed and downloaded; and documents become texts."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broken_files import xlsx
from page_server import QUESTIONS, Visit, chromium, data_of, needs_chromium, serving, violations
from playwright.sync_api import Browser, FilePayload, Page, expect

from ripml import RIPML, Store
from ripml.server import Settings

pytestmark = needs_chromium

Visitor = Callable[..., Page]
TEXTS = [text for text, _ in QUESTIONS]


def payload(name: str, content: bytes) -> FilePayload:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": content}


def csv_table(n: int) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["nr", "Body"], *([str(i), TEXTS[i % len(TEXTS)]] for i in range(n))])
    return text.getvalue().encode()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Store.create(tmp_path / "questions", data_of(QUESTIONS), RIPML(random_state=0)).close()
    return tmp_path


@pytest.fixture
def visit(browser: Browser, folder: Path) -> Iterator[Visitor]:
    opened: list[Visit] = []
    with serving(
        {"questions": Store.open(folder / "questions", readonly=False)}, Settings(tables=folder / "tables")
    ) as address:

        def visit(path: str = "", phone: bool = False, **options: Any) -> Page:
            size = {"width": 360, "height": 740} if phone else {"width": 1280, "height": 800}
            context = browser.new_context(viewport=size, has_touch=phone, is_mobile=phone, **options)  # type: ignore[arg-type]
            opened.append(Visit(context.new_page(), address))
            opened[-1].page.goto(f"{address}#questions/{path}")
            return opened[-1].page

        yield visit
        for one in opened:
            one.page.context.close()
            assert not one.foreign_requests
            assert not [error for error in one.errors if "422" not in error]  # Chromium logs what a test expects


def choose(page: Page, *files: FilePayload) -> None:
    expect(page.get_by_role("heading", name="Drop a table here")).to_be_visible()
    page.set_input_files("#tables-files", list(files))


def begin(page: Page) -> None:
    expect(page.locator("#tables-columns input").first).to_be_visible()
    page.get_by_role("button", name="Tag this table").click()


def test_a_table_fills_is_corrected_row_by_row_and_downloaded(visit: Visitor, folder: Path) -> None:
    page = visit("tables")
    choose(page, payload("tickets.csv", csv_table(120)))
    expect(page.locator("#tables-found")).to_contain_text("2 columns in 120 rows")
    expect(page.get_by_role("checkbox", name="Body")).to_be_checked()
    expect(page.get_by_role("checkbox", name="nr")).not_to_be_checked()
    begin(page)
    expect(page.locator("#tables-state")).to_have_text("120 rows")
    rows = page.locator("#tables-rows > li")
    expect(rows.first.locator(".chips li").first).to_contain_text("0.")
    rows.nth(49).scroll_into_view_if_needed()
    expect(rows).to_have_count(100)
    rows.nth(99).scroll_into_view_if_needed()
    expect(rows).to_have_count(120)  # the rest came when it was about to be seen
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert download.value.suggested_filename == "tickets with tags.csv"
    lines = list(csv.reader(io.StringIO(Path(download.value.path()).read_text("utf-8"))))
    assert lines[0] == ["nr", "Body", "tags", "scores"]
    assert len(lines) == 121
    rows.nth(118).get_by_role("link").click()
    expect(page.locator("#text")).to_have_value(TEXTS[118 % len(TEXTS)])
    expect(page.locator("#about")).to_have_text("tickets.csv · row 119")
    page.locator(".tag .accept").first.click()
    page.get_by_role("button", name="Learn and next").click()
    expect(page.locator("#text")).to_have_value(TEXTS[119 % len(TEXTS)])
    page.get_by_role("button", name="Back to the table").click()
    expect(page.locator("#tables-title")).to_have_text("tickets.csv")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    reviewed = list(csv.reader(io.StringIO(Path(download.value.path()).read_text("utf-8"))))
    assert reviewed[119][3].split("|")[0] == "1.0"
    assert reviewed[119][2] == lines[119][2]  # the first tag was right, and nothing was said of the others
    assert [*reviewed[:119], reviewed[120]] == [*lines[:119], lines[120]]


def test_what_looks_wrong_in_a_table_is_said_before_it_is_tagged(visit: Visitor) -> None:
    page = visit("tables")
    rain = "It rains in the north"
    lines = ["nr,Body,Other", f"1,{rain},a b", "2,,c d", f"3,{rain},e f", "4,Dry roads and sunshine,g h", ""]
    choose(page, payload("odd.csv", "\n".join(lines).encode()))
    findings = page.locator("#tables-findings li")
    expect(findings).to_have_text([
        "1 text is empty. They get no tags: is this the column of the texts?",
        "1 row repeats the text of another row. Each copy gets the same tags.",
    ])  # fmt: skip
    assert not violations(page)
    page.get_by_role("checkbox", name="Body").uncheck()
    page.get_by_role("checkbox", name="Other").check()
    expect(page.locator("#tables-findings")).to_be_hidden()
    begin(page)
    expect(page.locator("#tables-state")).to_contain_text("4 rows")


def test_a_table_is_found_again_after_a_reload_and_deleted(visit: Visitor) -> None:
    page = visit("tables")
    choose(page, payload("a.csv", csv_table(3)), payload("b.xlsx", xlsx([["Title", "Body"], ["x", TEXTS[0]]])))
    begin(page)
    expect(page.locator("#tables-name")).to_have_text("b.xlsx")
    page.get_by_role("checkbox", name="Title").check()
    begin(page)
    expect(page.locator("#tables-title")).to_have_text("b.xlsx")
    page.reload()
    expect(page.locator("#tables-rows > li")).to_have_count(1)
    expect(page.locator("#tables-rows a")).to_contain_text(f"x\n{TEXTS[0]}")
    page.keyboard.press("Escape")
    jobs = page.locator("#tables-jobs > li")
    expect(jobs).to_have_count(2)
    page.get_by_role("button", name="Delete b.xlsx").click()
    expect(jobs).to_have_count(1)
    expect(page.locator("#toast")).to_contain_text("b.xlsx was deleted.")


def test_a_table_can_be_dropped_on_any_view_and_what_is_wrong_is_told(visit: Visitor) -> None:
    page = visit()
    expect(page.get_by_role("heading", name="What is it about?")).to_be_visible()
    page.evaluate(
        """() => {
      const data = new DataTransfer();
      data.items.add(new File(["text\\n"], "empty.csv"));
      document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
    }"""
    )
    expect(page.locator("#tables-wrong")).to_have_text("Empty.csv has no rows.")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", name="Drop a table here")).to_be_visible()


def test_a_job_goes_on_when_the_server_is_started_again(browser: Browser, folder: Path) -> None:
    settings = Settings(tables=folder / "tables")
    with serving({"questions": Store.open(folder / "questions", readonly=False)}, settings) as address:
        page = browser.new_page()
        page.goto(f"{address}#questions/tables")
        choose(page, payload("long.csv", csv_table(4_000)))
        begin(page)
        expect(page.locator("#tables-rows > li").first).to_be_visible(timeout=60_000)
        hash = page.evaluate("location.hash")
        page.close()
    with serving({"questions": Store.open(folder / "questions", readonly=False)}, settings) as address:
        page = browser.new_page()
        page.goto(address + hash)
        expect(page.locator("#tables-state")).to_have_text("4,000 rows", timeout=120_000)
        expect(page.locator("#tables-rows > li")).to_have_count(50)
        page.close()


def test_a_document_becomes_a_text(visit: Visitor) -> None:
    page = visit()
    expect(page.get_by_role("heading", name="What is it about?")).to_be_visible()
    message = b"Subject: Plot\nContent-Type: text/plain\n\nMatplotlib legend of a histogram"
    page.set_input_files("#files", [payload("letter.eml", message)])
    expect(page.locator("#text")).to_have_value("Plot\nMatplotlib legend of a histogram")
    expect(page.locator("#about")).to_have_text("letter.eml")


@pytest.mark.parametrize(("scheme", "phone"), [("light", False), ("dark", True)])
def test_axe_finds_no_violation_in_any_state_of_tables(visit: Visitor, scheme: str, phone: bool) -> None:
    page = visit("tables", phone=phone, color_scheme=scheme)
    expect(page.get_by_role("heading", name="Drop a table here")).to_be_visible()
    assert violations(page) == []
    choose(page, payload("a.csv", csv_table(60)))
    expect(page.locator("#tables-columns input").first).to_be_visible()
    assert violations(page) == []
    begin(page)
    expect(page.locator("#tables-state")).to_have_text("60 rows")
    expect(page.locator("#tables-rows .chips").first).to_be_visible()
    assert violations(page) == []
    page.get_by_role("link", name="All tables").click()
    expect(page.locator("#tables-jobs > li")).to_have_count(1)
    assert violations(page) == []
