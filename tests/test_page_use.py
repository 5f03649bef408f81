"""Tag in use: an example to begin with, many tags, copies, evidence at a glance, slow networks and several people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from page_server import QUESTIONS, Visit, chromium, data_of, needs_chromium, serving, violations
from playwright.sync_api import Browser, Page, Route, expect

from ripml import RIPML, Store

pytestmark = needs_chromium

Visitor = Callable[..., Page]
MANY = 240  # labels


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    folder = tmp_path_factory.mktemp("stores")
    return {
        "questions": Store.create(folder / "questions", data_of(QUESTIONS), RIPML(random_state=0)),
    }


@pytest.fixture(scope="module")
def address(stores: dict[str, Store]) -> Iterator[str]:
    with serving(stores) as address:
        yield address


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visitor]:
    opened: list[Visit] = []

    def visit(path: str = "", phone: bool = False, **options: Any) -> Page:
        size = {"width": 360, "height": 740} if phone else {"width": 1280, "height": 800}
        context = browser.new_context(viewport=size, has_touch=phone, is_mobile=phone, **options)  # type: ignore[arg-type]
        opened.append(Visit(context.new_page(), address))
        opened[-1].page.goto(address + path)
        return opened[-1].page

    yield visit
    for one in opened:
        one.page.context.close()
        assert not one.foreign_requests
        assert not one.errors


def test_an_example_fills_an_empty_page(visit: Visitor) -> None:
    page = visit()
    page.get_by_role("button", name="Try an example").click()
    expect(page.locator(".tag")).to_have_count(5)
    assert page.input_value("#text") in [text for text, _ in QUESTIONS]
    expect(page.locator("#first")).to_be_visible()
    page.locator(".tag .accept").first.click()
    expect(page.locator("#first")).to_be_hidden()


def give_many(route: Route) -> None:
    n = (route.request.post_data_json or {}).get("n") or 7
    labels = [{"label": f"label {i}", "score": 1 - i / MANY} for i in range(min(n, MANY))]
    route.fulfill(json={"version": 0, "labels": labels})


def with_many_tags(page: Page) -> Page:
    """A page whose server has as many labels as it is asked for; its rules give seven."""
    summary = {"name": "questions", "documents": 14, "labels": MANY}
    page.route("**/v1/stores", lambda route: route.fulfill(json={"stores": [summary], "role": "write"}))
    page.route("**/suggest", give_many)
    page.reload()
    return page


def test_more_tags_come_to_the_end_below_a_line(visit: Visitor) -> None:
    page = with_many_tags(visit())
    page.fill("#text", QUESTIONS[0][0])
    rows = page.locator(".tag")
    expect(rows.first).to_be_visible()
    expect(rows).to_have_count(7)
    page.get_by_role("button", name="Show more").click()
    expect(rows.nth(7)).to_have_class("tag beyond line")
    expect(rows.nth(6)).to_have_class("tag")
    while (before := rows.count()) < MANY:
        rows.last.scroll_into_view_if_needed()
        expect(rows.nth(before)).to_be_attached()
    expect(page.locator(".line")).to_have_count(1)


def test_tags_are_copied_in_three_forms(visit: Visitor) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.fill("#text", "Plot a histogram with matplotlib")
    expect(page.locator(".tag")).to_have_count(5)
    copied = "navigator.clipboard.readText()"
    labels = page.locator(".tag .label bdi").all_text_contents()
    page.locator("#copy").get_by_role("button", name="commas").click()
    expect(page.locator("#toast")).to_contain_text("5 tags copied.")
    assert page.evaluate(copied) == ", ".join(labels)
    for row in (0, 1):
        page.locator(".tag .accept").nth(row).click()
    expect(page.locator("#copy")).to_contain_text("Copy 2 right tags as")
    page.locator(".tag .label").first.focus()
    page.keyboard.press("y")
    expect(page.locator("#toast")).to_contain_text("2 tags copied.")
    assert page.evaluate(copied) == "\n".join(labels[:2])


def test_the_evidence_says_first_what_is_shared_with_how_many(visit: Visitor) -> None:
    page = visit()
    page.fill("#text", "A sparse matrix times a vector")
    page.get_by_role("button", name="Accept sparse-matrix").locator("xpath=..").locator(".label").click()
    expect(page.locator(".because")).to_contain_text("Because of sparse")
    expect(page.locator(".because")).to_contain_text("tagged so.")
    assert "sparse" in [word.lower() for word in page.locator(".excerpt mark").all_text_contents()]
    expect(page.locator(".words")).to_be_hidden()
    page.get_by_text("More", exact=True).click()
    expect(page.locator(".words")).to_be_visible()
    assert violations(page) == []


def test_a_very_long_text_gets_tags_and_can_be_typed_on(visit: Visitor) -> None:
    page = visit()
    text = "Plot a histogram with matplotlib. كيف أقرأ ملفا. 如何读取文件。 " * 3600
    assert len(text) >= 200_000
    page.fill("#text", text)
    expect(page.locator(".tag")).to_have_count(5)
    page.locator("#text").press("Control+End")
    page.keyboard.type("pandas")
    expect(page.locator("#text")).to_have_value(text + "pandas")
    expect(page.locator("#tags")).to_have_attribute("aria-busy", "false")


def test_a_slow_network_shows_that_it_waits(visit: Visitor) -> None:
    page = visit()
    expect(page.locator("#size")).to_be_visible()
    session = page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 1500, "downloadThroughput": 50_000, "uploadThroughput": 50_000}
    session.send("Network.emulateNetworkConditions", slow)
    page.fill("#text", "Plot a histogram")
    expect(page.locator("#waiting")).to_be_visible()
    expect(page.locator(".tag")).to_have_count(5)
    expect(page.locator("#waiting")).to_be_hidden()


def test_three_people_decide_on_one_store(visit: Visitor, stores: dict[str, Store]) -> None:
    pages = [visit(), visit(), visit(phone=True)]
    texts = [f"Plot number {i} with matplotlib" for i in range(3)]
    before = stores["questions"].version
    for page, text in zip(pages, texts, strict=True):
        page.fill("#text", text)
    for page in pages:
        expect(page.locator(".tag")).to_have_count(5)
        page.locator(".tag .accept").first.click()
    for page in pages:
        page.get_by_role("button", name="Learn", exact=True).click()
    for page in pages:
        expect(page.locator("#note")).to_have_text("Learnt: 1 right.")
    assert stores["questions"].version >= before + 3
    pages[0].reload()
    for text in texts:
        expect(pages[0].locator(".decision").filter(has_text=text)).to_have_count(1)


def test_axe_finds_no_violation_with_more_tags_on_a_phone_in_the_dark(visit: Visitor) -> None:
    page = with_many_tags(visit(phone=True, color_scheme="dark"))
    page.fill("#text", QUESTIONS[5][0])
    expect(page.locator(".tag").first).to_be_visible()
    page.get_by_role("button", name="Show more").click()
    expect(page.locator(".line")).to_be_visible()
    # The bar at the bottom covers a part of some row, wherever the page is scrolled to; at its end it covers none.
    rows = page.locator(".tag")
    while (before := rows.count()) < MANY:
        rows.last.scroll_into_view_if_needed()
        expect(rows.nth(before)).to_be_attached()
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    assert violations(page) == []
