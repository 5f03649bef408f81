"""The view Documents in Chromium: search as one types, filters, reading, changing and forgetting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_server import QUESTIONS, Visit, chromium, data_of, needs_chromium, serving, violations
from playwright.sync_api import Browser, Page, expect

from ripml import RIPML, Store
from ripml.server import Settings, add_key

pytestmark = needs_chromium

Visitor = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a long text, many tags, a document without tags and one with decisions."""
    store = Store.create(tmp_path / "questions", data_of(QUESTIONS), RIPML(random_state=0))
    many, long = [f"tag-{i}" for i in range(200)], "A plot of bars. " * 5000
    store.learn([
        {"id": "long", "text": f"{long}An <b>aardvark</b> & a zebra. {long}", "labels": many},
        {"id": "bare", "text": "pandas data frame that waits", "labels": []},
    ])  # fmt: skip
    store.decide({"id": "half", "text": "pandas and numpy side by side"}, ["pandas"], ["numpy"])
    yield store
    store.close()


@pytest.fixture
def visit(browser: Browser, store: Store) -> Iterator[Visitor]:
    opened: list[Visit] = []
    with serving({"questions": store}) as address:

        def visit(path: str = "", phone: bool = False, **options: Any) -> Page:
            size = {"width": 360, "height": 740} if phone else {"width": 1280, "height": 800}
            context = browser.new_context(viewport=size, has_touch=phone, is_mobile=phone, **options)  # type: ignore[arg-type]
            opened.append(Visit(context.new_page(), address))
            opened[-1].page.goto(f"{address}#questions/documents{path}")
            expect(opened[-1].page.locator("#documents-found")).to_contain_text("document")
            return opened[-1].page

        yield visit
        for one in opened:
            one.page.context.close()
            assert not one.foreign_requests
            assert not one.errors


def ids(page: Page, expected: list[str]) -> None:
    expect(page.locator(".documents-facts bdi")).to_have_text(expected)


def test_documents_appear_while_one_types_and_the_address_can_be_shared(visit: Visitor) -> None:
    page = visit()
    expect(page.locator("#documents-found")).to_have_text(f"{len(QUESTIONS) + 3} documents")
    ids(page, ["half", "bare", "long", *(str(i) for i in reversed(range(len(QUESTIONS))))])
    page.keyboard.press("/")
    page.keyboard.type("matplot")
    ids(page, ["6", "5"])
    expect(page.locator(".documents-row mark").first).to_have_text("Matplotlib")
    page.keyboard.type("lib -legend")
    ids(page, ["5"])
    expect(page).to_have_url(page.url.split("#")[0] + "#questions/documents?q=matplotlib+-legend")
    other = visit(page.url.split("documents")[1])
    ids(other, ["5"])
    expect(other.locator("#documents-query")).to_have_value("matplotlib -legend")
    page.keyboard.press("Escape")
    expect(page.locator("#documents-found")).to_have_text(f"{len(QUESTIONS) + 3} documents")


def test_every_script_is_found_and_odd_queries_are_no_errors(visit: Visitor) -> None:
    page = visit()
    for query, found in (("文本", ["11"]), ("بايثون", ["10"]), ('"file line by line"', ["9"]), ("AND NOT (", [])):
        page.fill("#documents-query", query)
        expect(page.locator(".documents-row")).to_have_count(len(found))
        ids(page, found)
    expect(page.get_by_role("heading", name="No document matches.")).to_be_visible()
    page.get_by_role("button", name="Clear search and filters").click()
    expect(page.locator(".documents-row")).to_have_count(len(QUESTIONS) + 3)
    for query in ('"', "-", '"unfinished', "*", "';--"):
        page.fill("#documents-query", query)
        expect(page.locator("#documents-list")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#banner")).to_be_hidden()


def test_several_documents_are_changed_at_once_and_taken_back_by_one_undo(visit: Visitor, store: Store) -> None:
    page = visit("?q=pandas")
    shown = ["bare", "half", "3", "4"]
    expect(page.locator(".documents-row")).to_have_count(4)
    before = {id: store.document(id) for id in shown}
    page.locator(".documents-open").first.focus()
    page.keyboard.press("x")
    expect(page.locator("#documents-picked")).to_have_text("1 document selected")
    page.get_by_role("button", name="Select all shown").click()
    expect(page.locator("#documents-picked")).to_have_text("4 documents selected")
    assert not violations(page)
    page.locator("#documents-bulk-tag").press_sequentially("numpy")
    page.locator("#documents-bulk-options li").first.click()
    expect(page.locator("#toast-text")).to_have_text("Added numpy: 4 documents.")
    assert set(store.document("3")["labels"]) == {*before["3"]["labels"], "numpy"}
    assert set(store.document("half")["accepted"]) == {"pandas", "numpy"}
    assert store.document("bare")["accepted"] == ["numpy"]  # the others stay open
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#say")).to_have_text("Undone.")
    for id in shown:
        for name in ("labels", "accepted", "rejected"):
            assert set(store.document(id).get(name, ())) == set(before[id].get(name, ()))
    page.select_option("#documents-bulk-what", "remove")
    page.locator("#documents-bulk-tag").press_sequentially("data-fr")
    page.locator("#documents-bulk-options li").first.click()
    expect(page.locator("#toast-text")).to_have_text("Removed data-frame: 2 documents.")
    assert "data-frame" not in store.document("3")["labels"]
    page.locator("#documents-bulk-forget").click()
    expect(page.locator("#toast-text")).to_have_text("Forgot: 4 documents.")
    expect(page.locator("#documents-bulk")).to_be_hidden()
    assert not set(shown) & set(store.ids())
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".documents-row")).to_have_count(4)
    assert set(shown) <= set(store.ids())


def test_filters_are_chips_that_can_be_taken_away(visit: Visitor) -> None:
    page = visit()
    page.get_by_role("button", name="Some decided").click()
    ids(page, ["half"])
    page.get_by_role("button", name="Without tags").click()
    ids(page, ["bare"])
    page.get_by_role("button", name="Without tags").click()
    page.get_by_text("More filters").click()
    page.locator("#documents-label").press_sequentially("pand")
    page.locator("#documents-options li").first.click()
    ids(page, ["half", "4", "3"])
    page.select_option("#documents-kind", "rejected")
    page.locator("#documents-label").press_sequentially("numpy")
    page.locator("#documents-options li").first.click()
    ids(page, ["half"])
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Remove the filter wrong tag: numpy").click()
    ids(page, ["half", "4", "3"])
    page.get_by_text("More filters").click()
    page.fill("#documents-since", "2020-01-01")
    ids(page, ["half"])
    page.reload()
    ids(page, ["half"])
    page.get_by_role("button", name="Remove the filter from: 2020-01-01").click()
    ids(page, ["half", "4", "3"])


def test_a_document_is_opened_and_its_change_is_shown_on_the_way_back(visit: Visitor, store: Store) -> None:
    page = visit("?q=pandas")
    ids(page, ["bare", "half", "3", "4"])
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("#text")).to_have_value("pandas data frame that waits")
    store.relabel("bare", ["dates"])
    page.go_back()
    expect(page.locator(".documents-row").first.locator(".chips li")).to_have_text(["dates"])


def test_tags_are_edited_in_place_and_taken_back(visit: Visitor, store: Store) -> None:
    page = visit("?q=legend")
    ids(page, ["6"])
    page.keyboard.press("j")
    page.keyboard.press("e")
    expect(page.locator(".documents-row form .chips li")).to_have_count(2)
    page.get_by_role("button", name="Remove plotting").click()
    page.locator("#documents-add").press_sequentially("legends")
    expect(page.locator("#documents-add-options")).to_contain_text("new label")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".documents-row .documents-main > .chips li")).to_have_text(["matplotlib", "legends"])
    assert store.document("6")["labels"] == ["matplotlib", "legends"]
    page.locator("#toast-undo").click()
    expect(page.locator(".documents-row .documents-main > .chips li")).to_have_text(["matplotlib", "plotting"])
    assert store.document("6")["labels"] == ["matplotlib", "plotting"]
    page.locator(".documents-row .edit").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".documents-row form")).to_have_count(0)


def test_decisions_on_some_tags_stay_decisions(visit: Visitor, store: Store) -> None:
    page = visit("?prefix=half")
    page.locator(".documents-row .edit").click()
    page.locator("#documents-add").press_sequentially("python")
    page.locator("#documents-add-options li").first.click()
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".documents-row .documents-main > .chips li")).to_have_count(3)
    document = store.document("half")
    assert (document["labels"], set(document["accepted"]), document["rejected"]) == (
        [],
        {"pandas", "python"},
        ["numpy"],
    )


def test_a_document_is_forgotten_and_comes_back(visit: Visitor, store: Store) -> None:
    page = visit("?q=pandas")
    ids(page, ["bare", "half", "3", "4"])
    before = store.document("half")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("f")
    ids(page, ["bare", "3", "4"])
    assert "half" not in store.ids()
    expect(page.locator("#documents-found")).to_have_text("3 documents")
    page.keyboard.press("u")
    ids(page, ["bare", "half", "3", "4"])
    assert store.document("half") == before


def test_many_documents_come_page_by_page(visit: Visitor, store: Store) -> None:
    store.learn([{"id": f"more-{i:03}", "text": f"one of many, number {i}", "labels": ["files"]} for i in range(75)])
    page = visit("?q=many&sort=newest")
    expect(page.locator("#documents-found")).to_have_text("75 documents")
    for _ in range(3):
        page.locator(".documents-row").last.scroll_into_view_if_needed()
        page.mouse.wheel(0, 5000)
        page.wait_for_load_state("networkidle")
    ids(page, [f"more-{i:03}" for i in reversed(range(75))])
    expect(page.locator("#documents-next")).to_be_hidden()


def test_long_texts_and_two_hundred_tags_stay_small(visit: Visitor) -> None:
    page = visit("?q=zebra")
    ids(page, ["long"])
    row = page.locator(".documents-row")
    expect(row.locator("mark")).to_have_text("zebra")
    expect(row).to_contain_text("<b>aardvark</b>")
    expect(row.locator(".chips li")).to_have_count(13)
    box = row.bounding_box()
    assert box is not None
    assert box["height"] < 300
    page.get_by_role("button", name="188 more").click()
    expect(row.locator(".chips li")).to_have_count(200)


def test_a_reader_can_search_and_change_nothing(browser: Browser, store: Store, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "reader", "read")
    with serving({"questions": store}, Settings(keys=tmp_path / "keys")) as address:
        page = browser.new_page()
        page.goto(f"{address}#questions/documents?q=legend")
        page.fill("#key-value", key)
        page.keyboard.press("Enter")
        ids(page, ["6"])
        expect(page.get_by_role("button", name="Forget")).to_have_count(0)
        page.keyboard.press("j")
        page.keyboard.press("f")
        page.keyboard.press("e")
        expect(page.locator(".documents-row form")).to_have_count(0)
        assert "6" in store.ids()
        page.close()


def test_an_empty_store_invites(browser: Browser, tmp_path: Path) -> None:
    with Store.create(tmp_path / "news", data_of(QUESTIONS), RIPML.linear(random_state=0)) as store:
        store.forget(store.ids())
        with serving({"news": store}) as address:
            page = browser.new_page()
            page.goto(f"{address}#news/documents")
            expect(page.get_by_role("heading", name="No documents yet.")).to_be_visible()
            page.get_by_role("link", name="Open Tag").click()
            expect(page.locator("#text")).to_be_visible()
            page.close()


@pytest.mark.parametrize(("scheme", "phone"), [("light", False), ("dark", False), ("light", True), ("dark", True)])
def test_axe_finds_no_violation(visit: Visitor, scheme: str, phone: bool) -> None:
    page = visit("?q=pandas&label=pandas", phone=phone, color_scheme=scheme)
    expect(page.locator(".documents-row")).to_have_count(3)
    assert not violations(page)
    page.locator(".documents-row .edit").first.click()
    expect(page.locator(".documents-row form")).to_be_visible()
    assert not violations(page)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("More filters").click()
    assert not violations(page)
    page.fill("#documents-query", "unheard-of")
    expect(page.locator("#documents-invite")).to_be_visible()
    assert not violations(page)
