"""The view Labels in Chromium: a list of all labels, what is known of each, and changes that can be undone."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_server import QUESTIONS, Visit, chromium, data_of, needs_chromium, serving, violations
from playwright.sync_api import Browser, Page, expect

from ripml import RIPML, Store
from ripml.labels.concepts import Concept, Concepts
from ripml.server import Settings, add_key

pytestmark = needs_chromium

MILLION = 1_000_000
VOCABULARY = Concepts.of(
    [
        Concept("science", {"en": "Science"}),
        Concept("python", {"en": "Python", "ar": "بايثون"}, {"en": ("CPython",)}, broader=("science",)),
        Concept("numpy", {"en": "NumPy", "de": "Numerisches Python"}, broader=("python",), related=("scipy",)),
        Concept("pandas", {"en": "pandas"}, broader=("python",)),
        Concept("scipy", {"en": "SciPy"}, broader=("python",)),
    ]
)
Visitor = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    model = RIPML(n_jobs=1, random_state=0)
    store = Store.create(tmp_path / "questions", data_of(QUESTIONS), model, vocabulary=VOCABULARY)
    yield store
    store.close()


@pytest.fixture
def visit(browser: Browser, store: Store) -> Iterator[Visitor]:
    opened: list[Visit] = []
    with serving({"questions": store}) as address:

        def visit(query: str = "", phone: bool = False, **options: Any) -> Page:
            size = {"width": 360, "height": 740} if phone else {"width": 1280, "height": 800}
            context = browser.new_context(viewport=size, has_touch=phone, is_mobile=phone, **options)  # type: ignore[arg-type]
            opened.append(Visit(context.new_page(), address))
            opened[-1].page.goto(f"{address}#questions/labels{query}")
            return opened[-1].page

        yield visit
        for one in opened:
            one.page.context.close()
            assert not one.foreign_requests
            assert all("status of 422" in error for error in one.errors)  # a refusal that a test asks for


def measure(store: Store) -> Any:
    """The report of a store that has too few documents for one otherwise; the quality of each label."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ripml.model.quality.ENOUGH_ROWS", 1)
        return {one.label: one for one in store.quality().labels}


def row(page: Page, name: str) -> Any:
    return page.locator(".labels-row").filter(has=page.get_by_text(name, exact=True))


def opened(page: Page, name: str) -> None:
    expect(page.locator("#labels-name")).to_have_text(name)
    expect(page.locator("#labels-card")).to_be_visible()


def test_labels_are_listed_in_an_order_and_opened_by_keys_and_the_address_carries_it(visit: Visitor) -> None:
    page = visit()
    expect(page.locator(".labels-row").first).to_contain_text("arrays")
    page.select_option("#labels-order", "count")
    expect(page.locator(".labels-row").first).to_contain_text("Python4")
    page.focus("#labels-list")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    opened(page, "NumPy")
    assert page.url.endswith("#questions/labels?order=count&label=numpy")
    page.reload()
    opened(page, "NumPy")
    expect(page.locator(".labels-row").nth(1)).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(page.locator("#labels-invite")).to_be_visible()


def test_a_label_is_found_by_other_names_and_with_a_mistake_and_opened_by_enter(visit: Visitor) -> None:
    page = visit()
    expect(page.locator(".labels-row").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("cpyhton")
    expect(page.locator(".labels-row")).to_have_count(1)
    page.keyboard.press("Enter")
    opened(page, "Python")
    expect(page.locator("#labels-facts")).to_contain_text("4 documents")
    assert page.url.endswith("?label=python&q=cpyhton")
    page.fill("#labels-search", "")
    expect(row(page, "pandas")).to_be_visible()


def test_a_label_shows_its_place_its_other_names_its_documents_and_its_quality(visit: Visitor, store: Store) -> None:
    quality = measure(store)["numpy"]
    page = visit("?label=numpy")
    opened(page, "NumPy")
    expect(page.locator("#labels-path a")).to_have_text(["Science", "Python"])
    expect(page.locator("#labels-concept")).to_contain_text("Numerisches Python")
    expect(page.locator("#labels-examples li")).to_have_count(3)
    expect(page.locator("#labels-examples a").first).to_have_attribute("href", "#questions?document=0")
    expect(page.locator("#labels-quality")).to_contain_text(f"found of {quality.rows} documents")
    for label, _ in quality.confused_with:
        expect(page.locator(f"#labels-quality a[href$='label={label}']")).to_be_visible()
    page.locator("#labels-path a").last.click()
    opened(page, "Python")
    page.locator(".labels-tree").get_by_text("pandas").click()
    opened(page, "pandas")


def test_a_merge_says_what_it_will_change_and_is_undone(visit: Visitor, store: Store) -> None:
    before = {id: store.document(id) for id in store.ids()}
    page = visit("?label=arrays")
    opened(page, "arrays")
    page.keyboard.press("g")
    page.keyboard.type("numpy")
    expect(page.locator("#labels-options li").first).to_contain_text("NumPy")
    page.keyboard.press("Enter")
    preview = "2 documents will have “NumPy” instead of “arrays”; 2 of them have both already. “arrays” is removed."
    expect(page.locator("#labels-preview")).to_have_text(preview)
    page.keyboard.press("Enter")
    opened(page, "NumPy")
    expect(page.locator("#toast")).to_contain_text("2 documents have NumPy instead of arrays.")
    expect(row(page, "arrays")).to_have_count(0)
    assert "arrays" not in store.document("0")["labels"]
    page.click("#toast-undo")
    opened(page, "arrays")
    expect(row(page, "arrays")).to_have_count(1)
    assert {id: store.document(id) for id in store.ids()} == before


def test_a_label_is_renamed_and_retired_by_keys_and_both_are_undone_one_after_the_other(
    visit: Visitor, store: Store
) -> None:
    page = visit("?label=dates")
    opened(page, "dates")
    page.keyboard.press("r")
    expect(page.locator("#labels-preview")).to_contain_text("Scores stay the same")
    page.keyboard.type("plotting")
    page.keyboard.press("Enter")
    expect(page.locator("#banner-text")).to_contain_text("merge the two labels instead")
    page.fill("#labels-to", "Dates and times")
    page.keyboard.press("Enter")
    opened(page, "Dates and times")
    assert page.url.endswith("label=Dates+and+times")
    page.keyboard.press("t")
    expect(page.locator("#labels-preview")).to_contain_text("the 1 document with it keep it")
    page.keyboard.press("Enter")
    expect(page.locator("#labels-facts")).to_contain_text("retired: not suggested")
    assert store.label("Dates and times").retired
    page.keyboard.press("u")
    expect(page.locator("#labels-facts")).not_to_contain_text("retired")
    page.keyboard.press("u")
    opened(page, "dates")
    assert store.label("dates").count == 1


def test_a_label_that_is_not_found_can_be_added_with_words_and_taken_back(visit: Visitor, store: Store) -> None:
    page = visit("?q=quaternions")
    expect(page.locator("#labels-none")).to_contain_text("No label has this name.")
    page.click("#labels-add-typed")
    page.fill("#labels-new-words", "quaternions\nhypercomplex numbers")
    page.get_by_role("button", name="Add", exact=True).click()
    opened(page, "quaternions")
    found = store.model.suggest(["hypercomplex numbers"], store.model.rules.but(max_count=0))[0]
    assert "quaternions" in [label for label, _ in found]
    page.click("#toast-undo")
    expect(page.locator("#labels-none")).to_be_visible()
    assert not store.labels("quaternions")


def test_readers_see_labels_and_change_nothing(browser: Browser, store: Store, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "reader", "read")
    with serving({"questions": store}, Settings(keys=tmp_path / "keys")) as address:
        one = Visit(browser.new_page(), address)
        one.page.goto(f"{address}#questions/labels?label=numpy")
        one.page.fill("#key-value", key)
        one.page.keyboard.press("Enter")
        opened(one.page, "NumPy")
        for place in ("#labels-add", "#labels-actions"):
            expect(one.page.locator(place)).to_be_hidden()
        one.page.keyboard.press("r")
        expect(one.page.locator("#labels-form")).to_be_hidden()
        one.page.close()


def test_a_million_labels_are_listed_found_and_scrolled_to_the_end(visit: Visitor, store: Store) -> None:
    version, estimator = store._version, copy.copy(store._version.estimator)
    estimator.add_labels([f"topic {i:06d}" for i in range(MILLION)])
    numbers = np.arange(1, len(estimator.classes_) + 1)
    store._version = replace(version, model=replace(version.model, model=estimator, label_numbers=numbers))
    page = visit()
    expect(page.locator("#labels-total")).to_have_text(f"{len(numbers):,}")
    page.focus("#labels-list")
    page.keyboard.press("End")
    expect(page.locator(".labels-row").last).to_contain_text("文件")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".labels-active")).to_contain_text("ملفات")
    page.evaluate("document.getElementById('labels-list').scrollTop = 6e6")
    expect(page.locator(".labels-row").first).to_contain_text(re.compile(r"topic (49|50)\d{4}"))
    assert page.locator(".labels-row").count() < 40
    page.fill("#labels-search", "topc 777777")
    expect(page.locator(".labels-row")).to_have_count(1)
    expect(page.locator(".labels-row")).to_contain_text("topic 777777")
    page.fill("#labels-search", "")
    page.select_option("#labels-order", "newest")
    expect(page.locator(".labels-row").first).to_contain_text("topic 999999")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("phone", [False, True])
def test_the_view_has_no_violation_that_axe_finds_and_does_not_scroll_sideways(
    visit: Visitor, store: Store, scheme: str, phone: bool
) -> None:
    measure(store)
    page = visit("?order=count&label=numpy", phone, color_scheme=scheme, reduced_motion="reduce")
    opened(page, "NumPy")
    for step in ("card", "merge", "new", "list"):
        if step == "merge":
            page.keyboard.press("g")
            page.keyboard.type("pan")
            expect(page.locator("#labels-options li").first).to_be_visible()
            page.keyboard.press("Enter")
            expect(page.locator("#labels-preview")).to_contain_text("is removed")
        elif step == "new":
            page.keyboard.press("Escape")
            page.evaluate("document.activeElement.blur()")
            page.keyboard.press("a")
            expect(page.locator("#labels-new")).to_be_visible()
        elif step == "list":
            page.click("#labels-new-cancel")
            page.evaluate("location.hash = '#questions/labels?order=count'")
            expect(page.locator("#labels-card")).to_be_hidden()
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
