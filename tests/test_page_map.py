"""The view Map in Chromium."""

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

Visitor = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.create(tmp_path / "questions", data_of(QUESTIONS), RIPML(random_state=0))
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
            opened[-1].page.goto(f"{address}#questions/map{query}")
            return opened[-1].page

        yield visit
        for one in opened:
            one.page.context.close()
            assert not one.foreign_requests
            assert not [error for error in one.errors if "409" not in error]  # the map has changed


def view(page: Page) -> list[float]:
    """The middle of what is shown, and the zoom, when it is drawn."""
    expect(page.locator("#map-middle li").first).to_be_visible()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return [float(part) for part in str(page.locator("#map-stage").get_attribute("data-view")).split()]


def place(page: Page, store: Store, id: str) -> tuple[float, float]:
    """Where the point of a document is on the screen while the whole map is shown."""
    box = page.locator("#map-stage").bounding_box()
    found = store.known_map()
    assert box is not None
    assert found is not None
    x, y = found.positions[found.ids.index(id)].tolist()
    width, height = box["width"] - 2, box["height"] - 2
    scale = 0.94 * min(width, height)
    return box["x"] + 1 + width / 2 + (x - 0.5) * scale, box["y"] + 1 + height / 2 + (y - 0.5) * scale


def colours(page: Page) -> set[str]:
    """The colours that many pixels of the drawing have."""
    return set(
        page.evaluate(
            """() => {
              const drawn = document.getElementById("map-points");
              const pen = new OffscreenCanvas(drawn.width, drawn.height).getContext("2d", { willReadFrequently: true });
              pen.drawImage(drawn, 0, 0);
              const { data } = pen.getImageData(0, 0, drawn.width, drawn.height);
              const counts = {};
              for (let i = 0; i < data.length; i += 4) {
                const key = `${data[i] >> 4} ${data[i + 1] >> 4} ${data[i + 2] >> 4}`;
                counts[key] = (counts[key] ?? 0) + 1;
              }
              return Object.keys(counts).filter((key) => counts[key] > 40);
            }"""
        )
    )


def test_the_map_is_computed_at_the_first_visit_and_shows_points_and_names(visit: Visitor, store: Store) -> None:
    page = visit()
    assert view(page) == [0.5, 0.5, 1]
    expect(page.locator("#map-state")).to_have_text("14 documents.")
    expect(page.locator("#map-legend li")).to_have_count(9)
    expect(page.locator("#map-legend li").first).to_contain_text("python")
    expect(page.locator("#map-stage")).to_have_attribute("data-names", re.compile("[1-9]"))
    assert len(colours(page)) > 4
    assert store.known_map() is not None


def test_names_near_an_edge_are_inside_the_map(visit: Visitor) -> None:
    page = visit(phone=True)
    view(page)
    stage = page.locator("#map-stage")
    expect(stage).to_have_attribute("data-names", re.compile("[1-9]"))
    expect(stage).to_have_attribute("data-inside", "true")
    stage.focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
        expect(stage).to_have_attribute("data-inside", "true")


def test_keys_move_and_zoom_the_map_while_it_has_the_focus(visit: Visitor) -> None:
    page = visit()
    view(page)
    page.locator("#map-stage").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    x, y, zoom = view(page)
    assert x > 0.5
    assert y > 0.5
    assert zoom == 1
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert view(page)[2] == pytest.approx(2.25)
    page.keyboard.press("-")
    assert view(page)[2] == pytest.approx(1.5)
    page.keyboard.press("a")
    assert view(page) == [0.5, 0.5, 1]


def test_the_wheel_zooms_around_the_pointer_and_dragging_moves(visit: Visitor) -> None:
    page = visit()
    view(page)
    box = page.locator("#map-stage").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    page.mouse.wheel(0, -500)
    expect(page.locator("#map-stage")).to_have_attribute("data-view", re.compile(r" 2\.000$"))
    x, y, _ = view(page)
    assert x < 0.5
    assert y < 0.5
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 150, steps=4)
    page.mouse.up()
    moved = view(page)
    assert moved[0] < x
    assert moved[1] < y
    assert page.url.endswith("#questions/map")  # to drag is not to click


def test_a_point_tells_its_document_and_a_click_opens_it(visit: Visitor, store: Store) -> None:
    page = visit()
    view(page)
    x, y = place(page, store, "10")
    page.mouse.move(x - 3, y)
    page.mouse.move(x, y)
    expect(page.locator("#map-about")).to_contain_text(QUESTIONS[10][0])
    expect(page.locator("#map-about .chips")).to_contain_text("ملفات")
    page.mouse.click(x, y)
    expect(page.locator("#text")).to_have_value(QUESTIONS[10][0])
    assert page.url.endswith("#questions?document=10")
    page.go_back()
    expect(page.locator("#map-legend li")).to_have_count(9)


def test_points_are_coloured_by_label_or_by_doubt(visit: Visitor) -> None:
    page = visit()
    view(page)
    labels = colours(page)
    page.get_by_role("button", name="Doubt").click()
    expect(page.locator("#map-ramp")).to_be_visible()
    expect(page.locator("#map-legend")).to_be_hidden()
    expect(page.locator("#map-meaning")).to_contain_text("similar documents have other labels")
    view(page)
    assert colours(page) != labels
    page.keyboard.press("c")
    expect(page.locator("#map-legend")).to_be_visible()


def test_a_label_stands_out_and_has_an_address(visit: Visitor) -> None:
    page = visit()
    view(page)
    page.keyboard.press("/")
    page.locator("#map-find").press_sequentially("data-f")
    expect(page.locator("#map-options")).to_contain_text("data-frame")
    page.locator("#map-find").press("Enter")
    expect(page.locator("#map-chosen")).to_contain_text("data-frame 2 documents")
    assert page.url.endswith("#questions/map?label=data-frame")
    page.reload()
    expect(page.locator("#map-chosen")).to_contain_text("data-frame 2 documents")
    expect(page.locator("#map-legend [aria-pressed=true]")).to_contain_text("data-frame")
    page.get_by_role("button", name="Show all labels").click()
    expect(page.locator("#map-chosen")).to_be_hidden()


def test_the_list_of_the_middle_follows_the_map_and_opens_documents(visit: Visitor, store: Store) -> None:
    page = visit()
    view(page)
    first = page.locator("#map-middle").inner_text()
    page.locator("#map-stage").focus()
    for _ in range(6):
        page.keyboard.press("+")
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#map-middle")).not_to_have_text(first)
    page.keyboard.press("a")
    expect(page.locator("#map-middle a")).to_have_count(8)
    text = page.locator("#map-middle .excerpt").first.inner_text()
    page.locator("#map-middle a").first.click()
    expect(page.locator("#text")).to_have_value(re.compile(re.escape(text[:30])))


def test_a_forgotten_document_leaves_the_map(visit: Visitor, store: Store) -> None:
    page = visit()
    view(page)
    x, y = place(page, store, "10")
    store.forget(["10"])
    page.mouse.move(x, y)  # which notices that the map has changed
    expect(page.locator("#map-state")).to_have_text("13 documents.")
    expect(page.locator("#map-about")).to_be_hidden()


def test_on_a_phone_a_tap_shows_the_document_with_a_link_and_two_fingers_zoom(visit: Visitor, store: Store) -> None:
    page = visit(phone=True)
    view(page)
    page.locator("#map-stage").scroll_into_view_if_needed()
    page.touchscreen.tap(*place(page, store, "10"))
    expect(page.locator("#map-about.docked")).to_contain_text(QUESTIONS[10][0])
    page.evaluate(
        """() => {
          const stage = document.getElementById("map-stage");
          stage.setPointerCapture = () => {};
          const { left, top } = stage.getBoundingClientRect();
          const finger = (kind, pointerId, x) => stage.dispatchEvent(new PointerEvent(kind, {
            pointerId, pointerType: "touch", clientX: left + x, clientY: top + 100, bubbles: true }));
          finger("pointerdown", 1, 100);
          finger("pointerdown", 2, 140);
          finger("pointermove", 2, 180);
          finger("pointerup", 1, 100);
          finger("pointerup", 2, 180);
        }"""
    )
    assert view(page)[2] == pytest.approx(2)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Show all", exact=True).click()
    page.touchscreen.tap(*place(page, store, "10"))
    page.get_by_role("link", name="Open in Tag").click()
    expect(page.locator("#text")).to_have_value(QUESTIONS[10][0])


@pytest.mark.parametrize(
    ("scheme", "phone"), [("light", False), ("dark", False), ("light", True)], ids=["light", "dark", "phone"]
)
def test_the_view_is_accessible(visit: Visitor, scheme: str, phone: bool) -> None:
    page = visit("?label=python", phone=phone, color_scheme=scheme, reduced_motion="reduce")
    view(page)
    expect(page.locator("#map-chosen")).to_be_visible()
    assert violations(page) == []
    page.get_by_role("button", name="Doubt").click()
    view(page)
    assert violations(page) == []


def test_an_empty_store_invites(browser: Browser, store: Store) -> None:
    store.forget(store.ids())
    with serving({"questions": store}) as address:
        page = browser.new_page()
        page.goto(f"{address}#questions/map")
        expect(page.get_by_role("heading", name="A map of your documents.")).to_be_visible()
        page.locator("#map-link").click()
        expect(page.locator("#text")).to_be_visible()
        page.close()


def test_those_who_may_only_read_see_the_map(browser: Browser, store: Store, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.json", "reader", "read")
    with serving({"questions": store}, Settings(keys=tmp_path / "keys.json")) as address:
        page = browser.new_page()
        page.add_init_script(f"sessionStorage.setItem('ripml-key', '{key}')")
        page.goto(f"{address}#questions/map")
        expect(page.locator("#map-state")).to_have_text("14 documents.")
        expect(page.locator("#map-middle a")).to_have_count(8)
        page.close()
