"""The view Review in Chromium: questions about new documents and about doubtful tags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_server import QUESTIONS, Visit, chromium, data_of, needs_chromium, serving, violations
from playwright.sync_api import Browser, Page, expect

from ripml import RIPML, Store
from ripml.server import Settings, add_key

pytestmark = needs_chromium

NEW = {
    "new-1": "Matplotlib legend and colour bar of a plot",
    "new-2": "كيف أرسم رسما بيانيا في بايثون",
    "new-3": "pandas data frame and numpy arrays " + "with a very long text " * 200,
}
Visitor = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with three documents that wait."""
    store = Store.create(tmp_path / "questions", data_of(QUESTIONS), RIPML(random_state=0))
    store.learn([{"id": id, "text": text, "labels": []} for id, text in NEW.items()])
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
            opened[-1].page.goto(f"{address}#questions/review{path}")
            return opened[-1].page

        yield visit
        for one in opened:
            one.page.context.close()
            assert not one.foreign_requests
            assert not one.errors


def question(page: Page, words: str) -> None:
    expect(page.locator("#review-question")).to_contain_text(words)


def answer_all(page: Page, key: str) -> None:
    """Answer every question about the tags of the document with the same key."""
    expect(page.locator("#review-card")).to_be_visible()
    while "all its tags" not in (asked := page.locator("#review-question").inner_text()) and "no tag" not in asked:
        place = page.locator("#review-place").inner_text()
        page.keyboard.press(key)
        expect(page.locator("#review-place")).not_to_have_text(place)


def test_a_new_document_is_decided_by_keys_and_can_be_changed(visit: Visitor, store: Store) -> None:
    page = visit()
    question(page, "belong to this text?")
    text = page.locator("#review-text").inner_text()
    expect(page.locator("#review-why")).to_contain_text("The model learns most from this document")
    expect(page.locator("#review-about")).to_have_text(re.compile(r"^The model gives it \d+%\.$"))
    assert page.locator("#review-card").inner_text().count("%") == 1  # one number for a tag
    first = page.locator("#review-question bdi").inner_text()
    page.keyboard.press("y")
    expect(page.locator("#review-chips")).to_have_text(first)
    page.keyboard.press("n")
    page.keyboard.press("u")
    expect(page.locator("#review-place")).to_have_text("Tag 2 of 5")
    answer_all(page, "n")
    page.keyboard.press("n")  # perhaps not all
    expect(page.locator("#review-progress")).to_have_text("1 document reviewed")
    expect(page.locator("#review-text")).not_to_have_text(text)
    id = next(id for id, known in NEW.items() if known == text)
    assert store.document(id)["accepted"] == [first]
    assert len(store.document(id)["rejected"]) == 4
    expect(page.locator("#review-last .decision")).to_have_count(1)
    expect(page.locator("#review-brought")).to_contain_text("the first tag was right in 1 of 1")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("#review-text")).to_have_text(text)
    expect(page.locator("#review-last .decision")).to_have_count(0)
    assert store.document(id)["labels"] == []
    assert "accepted" not in store.document(id)
    answer_all(page, "s")
    page.keyboard.press("y")  # no tag fits
    expect(page.locator("#review-progress")).to_have_text("1 document reviewed")
    assert [
        one.id for one in store.review(10, caller="somebody")
    ] == []  # this one is decided, and the others are leased


def test_a_tag_can_be_added_and_the_last_question_says_whether_these_are_all(visit: Visitor, store: Store) -> None:
    page = visit()
    question(page, "belong")
    text = page.locator("#review-text").inner_text()
    page.keyboard.press("/")
    page.locator("#review-add").press_sequentially("unheard-of")
    expect(page.locator("#review-options")).to_contain_text("new label")
    page.locator("#review-add").press("Enter")
    expect(page.locator("#review-chips")).to_have_text("unheard-of")
    page.locator("#review-question").click()
    answer_all(page, "n")
    question(page, "Are these all its tags?")
    page.get_by_role("button", name="Yes").click()
    expect(page.locator("#review-progress")).to_have_text("1 document reviewed")
    id = next(id for id, known in NEW.items() if known == text)
    assert store.document(id)["labels"] == ["unheard-of"]
    page.get_by_role("button", name="Open").click()
    expect(page.locator("#text")).to_have_value(text)
    page.go_back()
    expect(page.locator("#review-last .decision")).to_have_count(1)


def test_the_end_of_the_queue_says_so_and_skipped_documents_wait_for_others(visit: Visitor, store: Store) -> None:
    page = visit()
    seen = set()
    for n in range(len(NEW)):
        expect(page.locator("#review-card")).to_be_visible()
        seen.add(page.locator("#review-text").inner_text())
        page.keyboard.press("d")  # nothing was said
        if n < len(NEW) - 1:
            expect(page.locator("#review-text")).not_to_have_text(re.compile(f"^({'|'.join(map(re.escape, seen))})$"))
    expect(page.get_by_role("heading", name="Nothing waits for review.")).to_be_visible()
    assert len(seen) == len(NEW)
    expect(page.get_by_role("link", name="Open Tag")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert len(store.review(10, caller="somebody")) == len(NEW)


def test_two_people_get_different_documents_and_one_who_comes_back_the_same(visit: Visitor, store: Store) -> None:
    store.learn([{"id": f"more-{i}", "text": f"{text} again", "labels": []} for i, (text, _) in enumerate(QUESTIONS)])
    texts = []
    for page in (visit(), visit()):
        question(page, "belong")
        texts.append(page.locator("#review-text").inner_text())
        page.reload()
        question(page, "belong")
        expect(page.locator("#review-text")).to_have_text(texts[-1])
    assert texts[0] != texts[1]


def test_doubtful_tags_are_found_and_corrected(visit: Visitor, store: Store) -> None:
    store.learn([
        {"id": f"{id}-{i}", "text": f"{text} (version {i})", "labels": labels}
        for i in range(7)
        for id, (text, labels) in enumerate(QUESTIONS)
    ])  # fmt: skip
    store.relabel("6", ["pandas", "dates"])  # a legend of a plot
    page = visit("?queue=doubtful")
    page.get_by_role("button", name="Find doubtful tags").click()
    question(page, "belong to this text?")
    expect(page.locator("#review-about")).to_contain_text("probability")
    label = page.locator("#review-question bdi").inner_text()
    missing = "does not have" in page.locator("#review-about").inner_text()
    page.keyboard.press("y" if missing else "n")
    while page.locator("#review-progress").inner_text() == "":
        page.keyboard.press("s")
    version = store.version
    [entry] = page.locator("#review-last .decision").all()
    expect(entry).to_contain_text(label)
    entry.get_by_role("button", name="Change").click()
    expect(page.locator("#review-last .decision")).to_have_count(0)
    assert store.version > version


def test_a_store_that_is_too_small_to_doubt_tags_says_so(visit: Visitor) -> None:
    page = visit("?queue=doubtful")
    page.get_by_role("button", name="Find doubtful tags").click()
    expect(page.get_by_role("heading", name="Too few documents to doubt a tag.")).to_be_visible()
    expect(page.locator("#review-invite")).to_contain_text("fewer than 100 documents")
    assert not violations(page)


def test_a_swipe_answers(visit: Visitor) -> None:
    page = visit(phone=True)
    question(page, "belong")
    swipe = """([by]) => {
        const card = document.querySelector("#review-card");
        const event = (kind, x) => new PointerEvent(kind, { pointerType: "touch", clientX: x, bubbles: true });
        for (const [kind, x] of [["pointerdown", 100], ["pointermove", 100 + by], ["pointerup", 100 + by]])
            card.dispatchEvent(event(kind, x));
    }"""
    page.evaluate(swipe, [20])
    expect(page.locator("#review-place")).to_have_text("Tag 1 of 5")
    page.evaluate(swipe, [150])
    expect(page.locator("#review-place")).to_have_text("Tag 2 of 5")
    expect(page.locator("#review-chips li")).to_have_count(1)
    page.evaluate(swipe, [-150])
    expect(page.locator("#review-place")).to_have_text("Tag 3 of 5")
    expect(page.locator("#review-chips li")).to_have_count(1)


def test_a_reader_is_told_that_review_needs_a_key_for_writing(browser: Browser, store: Store, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "reader", "read")
    with serving({"questions": store}, Settings(keys=tmp_path / "keys")) as address:
        page = browser.new_page()
        page.goto(f"{address}#questions/review")
        page.fill("#key-value", key)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Review needs a key that may write.")).to_be_visible()
        page.close()


@pytest.mark.parametrize(("scheme", "phone"), [("light", False), ("dark", False), ("light", True)])
def test_axe_finds_no_violation(visit: Visitor, scheme: str, phone: bool) -> None:
    page = visit(phone=phone, color_scheme=scheme)
    question(page, "belong")
    expect(page.locator("#review-text")).to_be_visible()
    assert not violations(page)
    page.keyboard.press("y")
    page.keyboard.press("n")
    page.keyboard.press("d")
    expect(page.locator("#review-last .decision")).to_have_count(1)
    assert not violations(page)
    page.goto(page.url.split("#")[0] + "#questions/review?queue=doubtful")
    expect(page.get_by_role("button", name="Find doubtful tags")).to_be_visible()
    assert not violations(page)
