"""The page in Chromium against the real server: every flow by mouse and keyboard, and axe in every state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_server import NEWS, QUESTIONS, Visit, chromium, data_of, needs_chromium, serving, stores_in, violations
from playwright.sync_api import Browser, FilePayload, Locator, Page, Route, expect

from ripml import RIPML, Store
from ripml.labels.concepts import Concept, Concepts
from ripml.server import Settings, add_key

pytestmark = needs_chromium

PAGE = Path(__file__).parents[1] / "src/ripml/server/page"
TEXT = "How do I multiply a large sparse matrix with a dense numpy array?"
Visitor = Callable[..., Page]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    return stores_in(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def address(stores: dict[str, Store]) -> Iterator[str]:
    with serving(stores) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visitor]:
    """Open the page in a new context; at the end there must be no console errors and no requests to other servers."""
    opened: list[Visit] = []
    tolerated: list[str] = []

    def visit(path: str = "", at: str = address, tolerates: str = "", phone: bool = False, **options: Any) -> Page:
        size = {"width": 360, "height": 740} if phone else {"width": 1280, "height": 800}
        context = browser.new_context(viewport=size, has_touch=phone, is_mobile=phone, **options)  # type: ignore[arg-type]
        opened.append(Visit(context.new_page(), at))
        tolerated.append(tolerates)
        opened[-1].page.goto(at + path)
        return opened[-1].page

    yield visit
    for one, tolerates in zip(opened, tolerated, strict=True):
        one.page.context.close()
        assert not one.foreign_requests
        assert not [error for error in one.errors if not tolerates or tolerates not in error]


def rows(page: Page) -> Locator:
    return page.locator(".tag")


def row(page: Page, label: str) -> Locator:
    return rows(page).filter(has=page.get_by_role("button", name=f"Accept {label}", exact=True))


def decision(page: Page, text: str) -> Locator:
    return page.locator(".decision").filter(has_text=text)


def options(page: Page) -> Locator:
    return page.locator("#options").get_by_role("option")


def labels(page: Page) -> list[str]:
    return page.locator(".tag .label bdi").all_text_contents()


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG between two CSS colours."""

    def light(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05

    return max(light(one) / light(other), light(other) / light(one))


def tagged(page: Page, text: str) -> Page:
    """Enter a text and wait for its tags."""
    with page.expect_response("**/suggest"):
        page.fill("#text", text)
    expect(page.locator("#tags")).to_have_attribute("aria-busy", "false")
    return page


# ------------------------------------------------------------------------------------------------------- suggestions


def test_a_typed_text_gets_tags_with_scores_as_bars(visit: Visitor, stores: dict[str, Store]) -> None:
    page = visit(reduced_motion="reduce")
    expect(page.get_by_role("heading", name="What is it about?")).to_be_visible()
    page.locator("#text").press_sequentially(TEXT)
    expect(rows(page)).to_have_count(5)
    (wanted,) = stores["questions"].model.suggest([TEXT])
    assert labels(page) == [label for label, _ in wanted]
    assert page.locator(".score").all_text_contents() == [f"{score:.2f}" for _, score in wanted]
    assert page.locator(".score").first.get_attribute("title") == str(wanted[0][1])
    widths = "[...document.querySelectorAll('.bar')].map((bar) => bar.firstChild.offsetWidth / bar.offsetWidth)"
    assert page.evaluate(widths) == pytest.approx([score for _, score in wanted], abs=0.01)
    expect(page.locator("#say")).to_contain_text(f"5 tags: {wanted[0][0]}")
    page.get_by_role("button", name="Show more").click()
    expect(rows(page)).to_have_count(10)


def test_outdated_responses_are_ignored(visit: Visitor, stores: dict[str, Store]) -> None:
    page = visit()
    held: list[Route] = []
    page.route("**/suggest", lambda route: held.append(route) if not held else route.continue_())
    page.fill("#text", "Matplotlib legend")
    expect(page.locator("#waiting")).to_be_visible()
    tagged(page, TEXT)
    held[0].fulfill(json={"version": 0, "labels": [{"label": "late", "score": 1.0}]})
    page.wait_for_timeout(50)
    assert labels(page) == [label for label, _ in stores["questions"].model.suggest([TEXT])[0]]


def test_a_text_without_tags_has_a_message(visit: Visitor) -> None:
    page = visit()
    page.route("**/suggest", lambda route: route.fulfill(json={"version": 0, "labels": []}))
    page.fill("#text", "?")
    expect(page.get_by_text("No tags found for this text.")).to_be_visible()


def test_the_evidence_has_examples_and_highlighted_words(visit: Visitor) -> None:
    page = tagged(visit(), "😀 Sparse 矩阵 matrix, legend of a plot")
    row(page, "sparse-matrix").locator(".label").click()
    shown = row(page, "sparse-matrix").locator(".evidence")
    expect(shown).to_contain_text("of the score")
    expect(shown).to_contain_text("Sparse matrix times dense vector in scipy is slow")
    assert {"sparse", "matrix"} <= set(shown.locator(".words .for bdi").all_text_contents())
    assert {"Sparse", "matrix"} <= set(page.locator("#marks .for").all_text_contents())
    assert {"legend", "plot"} & set(page.locator("#marks .against").all_text_contents())
    assert page.locator("#marks").text_content() == page.input_value("#text") + "\n"
    style = "(kind) => getComputedStyle(document.querySelector(`#marks .${kind}`)).textDecorationStyle"
    assert (page.evaluate(style, "for"), page.evaluate(style, "against")) == ("solid", "wavy")  # not by colour alone
    expect(page.locator("#legend")).to_contain_text("support sparse-matrix")
    page.locator("#text").press("End")
    page.keyboard.type(" slow")
    expect(page.locator("#marks mark")).to_have_count(0)
    expect(page.locator("#legend")).to_be_hidden()


# ---------------------------------------------------------------------------------------------------------- decisions


def test_accepted_tags_are_learnt_and_change_the_next_suggestion(visit: Visitor, stores: dict[str, Store]) -> None:
    text = "Sparse arrays of strings are slow to merge"
    page = tagged(visit(), text)
    first, second = labels(page)[:2]
    model = stores["questions"].model
    before = dict(model.suggest([text], model.rules.but(n=None))[0])
    page.keyboard.press("Control+s")
    expect(page.locator("#note")).to_have_text("Accept, reject or add a tag first.")
    row(page, first).locator(".accept").click()
    row(page, second).locator(".reject").click()
    page.fill("#add", "string-pr")
    page.get_by_role("option", name="string-pr new label").click()
    page.get_by_role("button", name="Learn").click()
    expect(page.locator("#note")).to_have_text("Learnt: 2 right, 1 wrong.")
    expect(page.get_by_role("button", name="Learnt")).to_be_visible()
    after = dict(stores["questions"].model.suggest([text])[0])
    step = after[first] - before[first]
    expect(row(page, first).locator(".change")).to_have_text(f"{step:+.2f}")
    expect(row(page, "string-pr").locator(".score")).to_have_text(f"{after['string-pr']:.2f}")
    expect(row(page, second)).to_have_class(re.compile("rejected"))
    expect(decision(page, text)).to_contain_text("some tags decided")
    expect(page.locator("#size")).to_have_text(f"{len(stores['questions'])} documents · 20 labels")
    (change,) = stores["questions"].history(1)
    assert (set(change["after"]), change["rejected_after"]) == ({first, "string-pr"}, [second])
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(page.locator("#note")).to_have_text("Undone.")
    assert stores["questions"].history(1)[0]["kind"] == "forget"
    expect(page.get_by_role("button", name="Learn")).to_be_enabled()
    assert set(page.locator(".accepted .label bdi").all_text_contents()) == {first, "string-pr"}


def test_a_tag_is_undecided_right_or_wrong(visit: Visitor) -> None:
    page = tagged(visit(), TEXT)
    label = labels(page)[0]
    one = row(page, label)
    accept, reject = (page.get_by_role("button", name=f"{verb} {label}", exact=True) for verb in ("Accept", "Reject"))

    def shows(state: str) -> None:
        expect(one.locator(".label")).to_have_accessible_name(re.compile(f"^{label} {state} "))
        expect(one.locator(".state")).to_have_text(state)
        expect(accept).to_have_attribute("aria-pressed", str(state == "right").lower())
        expect(reject).to_have_attribute("aria-pressed", str(state == "wrong").lower())

    shows("undecided")
    plain = "(node) => [getComputedStyle(node).borderColor, getComputedStyle(node).backgroundColor]"
    assert accept.evaluate(plain) == reject.evaluate(plain), "neither is suggested"
    for button, state in ((accept, "right"), (reject, "wrong"), (reject, "undecided")):
        button.click()
        shows(state)
        if state != "undecided":
            expect(page.locator("#say")).to_have_text(f"{label}: {state}")
            assert one.locator(".state").bounding_box()["width"] > 20, "it can be read"  # type: ignore[index]
    one.locator(".label").focus()
    for key, state in (("a", "right"), ("x", "wrong"), ("x", "undecided"), ("a", "right")):
        page.keyboard.press(key)
        shows(state)
    expect(page.locator("#found")).to_have_text("1 right, 4 undecided")
    page.fill("#add", "files")
    page.get_by_role("option", name=re.compile("^files")).first.click()
    expect(row(page, "files").locator(".state")).to_have_text("right")
    row(page, "files").locator(".reject").click()
    expect(row(page, "files").locator(".state")).to_have_text("wrong")
    page.fill("#add", "unheard-of")
    page.get_by_role("option", name="unheard-of new label").click()
    expect(row(page, "unheard-of").locator(".state")).to_have_text("right")
    row(page, "unheard-of").locator(".reject").click()  # there is nothing to reject
    expect(row(page, "unheard-of")).to_have_count(0)
    expect(page.locator("#found")).to_have_text("1 right, 1 wrong, 4 undecided")


def test_nothing_is_learnt_of_undecided_tags(visit: Visitor, stores: dict[str, Store]) -> None:
    store, text = stores["questions"], "Sparse vectors and arrays in numpy are slow"
    page = tagged(visit(), text)
    first, second, *others = labels(page)
    before = dict(store.model.suggest([text], store.model.rules.but(n=None))[0])
    row(page, first).locator(".reject").click()
    expect(page.get_by_label("These are all the tags")).not_to_be_checked()
    with page.expect_request("**/decisions") as sent:
        page.locator("#learn").click()
    assert sent.value.post_data_json == {"text": text, "accepted": [], "rejected": [first], "complete": False}
    expect(page.locator("#note")).to_have_text("Learnt: 1 wrong.")
    after = dict(store.model.suggest([text], store.model.rules.but(n=None))[0])
    assert after[first] < before[first]
    assert {label: after[label] for label in (second, *others)} == {label: before[label] for label in (second, *others)}
    (id,) = {change["id"] for change in store.history(1)}
    row(page, second).locator(".accept").click()
    page.locator("#learn").click()
    expect(page.locator("#note")).to_have_text("Learnt: 1 right, 1 wrong.")
    assert (store.document(id)["accepted"], store.document(id)["rejected"]) == ([second], [first])
    row(page, first).locator(".reject").click()  # undecided again
    page.get_by_role("button", name="Save tags").click()
    expect(page.locator("#note")).to_have_text("Learnt: 1 right.")
    assert (store.document(id)["accepted"], store.document(id)["rejected"]) == ([second], [])
    decision(page, text).get_by_role("button", name="Undo").click()
    expect(decision(page, text).locator(".wrong")).to_have_text(f"wrong: {first}")
    assert (store.document(id)["accepted"], store.document(id)["rejected"]) == ([second], [first])
    page.locator("#next").click()
    decision(page, text).get_by_role("button", name="Edit").click()
    expect(page.locator("#found")).to_contain_text("1 right, 1 wrong")
    expect(page.get_by_label("These are all the tags")).not_to_be_checked()
    expect(row(page, first).locator(".state")).to_have_text("wrong")
    store.forget([id])


def test_a_forgotten_text_is_restored_with_what_was_decided(visit: Visitor, stores: dict[str, Store]) -> None:
    store, text = stores["questions"], "Dates of a data frame as files"
    page = tagged(visit(), text)
    first, second = labels(page)[:2]
    row(page, first).locator(".accept").click()
    row(page, second).locator(".reject").click()
    page.locator("#learn").click()
    expect(decision(page, text)).to_contain_text("some tags decided")
    (id,) = {change["id"] for change in store.history(1)}
    decided = store.document(id)
    decision(page, text).get_by_role("button", name="Undo").click()
    expect(decision(page, text)).to_contain_text("forgotten")
    assert id not in store.ids()
    decision(page, text).get_by_role("button", name="Restore").click()
    expect(decision(page, text)).to_contain_text("some tags decided")
    assert store.document(id) == decided
    store.compact()
    page.reload()
    expect(decision(page, text).get_by_role("button", name="Edit")).to_be_visible()
    expect(decision(page, text).get_by_role("button", name="Undo")).to_be_hidden()  # what was before is not known
    store.forget([id])


def test_all_the_tags_are_known_if_the_user_says_so(visit: Visitor, stores: dict[str, Store]) -> None:
    store, text = stores["questions"], "Plots of a sparse matrix in pandas"
    page = tagged(visit(tolerates="422"), text)
    first, second = labels(page)[:2]
    every = page.get_by_label("These are all the tags")
    every.check()
    expect(page.locator("#note")).to_have_text("Undecided tags count as wrong.")
    row(page, second).locator(".reject").click()
    page.locator("#learn").click()
    expect(page.locator("#note")).to_contain_text("Accept or add a tag first")
    row(page, first).locator(".accept").click()
    expect(page.locator("#found")).to_have_text("1 right, all others wrong")
    with page.expect_request("**/decisions") as sent:
        page.locator("#learn").click()
    assert sent.value.post_data_json == {"text": text, "accepted": [first], "rejected": [second], "complete": True}
    expect(page.locator("#note")).to_have_text("Learnt with 1 tag.")
    (id,) = {change["id"] for change in store.history(1)}
    assert store.document(id) == {"id": id, "text": text, "labels": [first]}
    page.locator("#next").click()
    expect(every).not_to_be_checked()
    decision(page, text).get_by_role("button", name="Edit").click()
    expect(every).to_be_checked()
    every.uncheck()
    page.get_by_role("button", name="Save tags").click()
    expect(decision(page, text)).to_contain_text("some tags decided")
    assert (store.document(id)["labels"], store.document(id)["accepted"]) == ([], [first])
    page.locator("h1").click()
    page.keyboard.press("Control+z")
    expect(page.locator("#note")).to_have_text("Undone.")
    assert store.document(id)["labels"] == [first]
    expect(every).not_to_be_checked()  # what the user said stays, and can be saved again
    page.get_by_role("button", name="Save tags").click()
    expect(decision(page, text)).to_contain_text("some tags decided")
    decision(page, text).get_by_role("button", name="Undo").click()
    expect(decision(page, text)).to_contain_text("tags changed")
    assert store.document(id)["labels"] == [first]
    decision(page, text).get_by_role("button", name="Edit").click()
    expect(every).to_be_checked()
    store.merge_labels([second], "merged-away")
    every.uncheck()
    row(page, second).locator(".reject").click()
    page.get_by_role("button", name="Save tags").click()
    expect(page.get_by_role("alert")).to_contain_text(f"There is no label '{second}'.")
    assert store.document(id)["labels"] == [first], "nothing is lost"
    store.forget([id])


def test_a_text_unlike_anything_known_is_told(visit: Visitor) -> None:
    page = visit()
    answer: dict[str, Any] = {"version": 0, "labels": [{"label": "numpy", "score": 0.5}]}
    page.route("**/suggest", lambda route: route.fulfill(json=answer))
    told = page.get_by_text("This text is unlike anything that the model knows.", exact=True)
    for familiarity, shown in ((0.01, True), (0.02, False), (None, False)):
        answer["familiarity"] = familiarity
        tagged(page, f"wnqz rvvk {familiarity}")
        expect(told).to_be_visible(visible=shown)
        if shown:
            expect(page.locator("#say")).to_contain_text("unlike anything")
            assert not violations(page)


@pytest.mark.parametrize(("status", "again"), [(503, True), (404, False)])
def test_a_failed_undo_can_be_retried_unless_the_document_is_gone(
    visit: Visitor, stores: dict[str, Store], status: int, again: bool
) -> None:
    page = tagged(visit(tolerates="Failed to load resource"), f"Read a sparse array from a file ({status})")
    page.locator(".tag .accept").first.click()
    page.get_by_role("button", name="Learn", exact=True).click()
    expect(page.locator("#note")).to_have_text("Learnt: 1 right.")
    (learnt,) = stores["questions"].history(1)

    def refuse(route: Route) -> None:
        if route.request.method == "DELETE":
            route.fulfill(status=status, json={"status": status, "detail": "not now."})
        else:
            route.continue_()

    undo = page.get_by_role("button", name="Undo", exact=True)
    page.route("**/documents/*", refuse)
    undo.click()
    expect(page.get_by_role("alert")).to_contain_text("Not now.")
    page.unroute("**/documents/*")
    expect(undo).to_be_visible(visible=again)
    if again:
        undo.click()
        expect(page.locator("#note")).to_have_text("Undone.")
        assert stores["questions"].history(1)[0]["kind"] == "forget"
    else:
        stores["questions"].forget([learnt["id"]])


def test_a_decision_is_undone_restored_and_edited(visit: Visitor, stores: dict[str, Store]) -> None:
    store, text = stores["questions"], "Save a plot of a data frame to a file"
    page = tagged(visit(), text)
    page.locator(".tag .accept").first.click()
    label = labels(page)[0]
    page.get_by_label("These are all the tags").check()
    page.keyboard.press("Control+s")
    expect(decision(page, text)).to_contain_text("learnt")
    (id,) = {change["id"] for change in store.history(1)}
    page.locator("#next").click()
    expect(page.locator("#text")).to_have_value("")
    decision(page, text).get_by_role("button", name="Undo").click()
    expect(decision(page, text)).to_contain_text("forgotten")
    assert store.history(1)[0]["kind"] == "forget"
    decision(page, text).get_by_role("button", name="Restore").click()
    expect(decision(page, text)).to_contain_text("learnt")
    assert store.document(id) == {"id": id, "text": text, "labels": [label]}
    decision(page, text).get_by_role("button", name="Edit").click()
    expect(page.locator("#text")).to_have_value(text)
    expect(page.locator("#about")).to_have_text(f"Document {id}")
    expect(row(page, label).locator(".accept")).to_have_attribute("aria-pressed", "true")
    page.fill("#add", "files")
    page.locator("#add").press("Enter")
    page.get_by_role("button", name="Save tags").click()
    expect(decision(page, text)).to_contain_text("tags changed")
    assert set(store.document(id)["labels"]) == {label, "files"}
    decision(page, text).get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Save tags")).to_be_visible()
    assert store.document(id)["labels"] == [label]
    page.locator("#text").press("End")
    page.keyboard.type(" again")
    page.get_by_role("button", name="Save text").click()
    expect(page.get_by_role("button", name="Learnt")).to_be_visible()
    assert store.document(id)["text"] == f"{text} again"
    store.forget([id])


def test_completion_is_a_combobox_over_all_labels(visit: Visitor) -> None:
    page = tagged(visit(), TEXT)
    field = page.get_by_role("combobox", name="Add a tag")
    field.press_sequentially("p")
    expect(options(page).first).to_contain_text("python")
    expect(field).to_have_attribute("aria-expanded", "true")
    expect(field).to_have_attribute("aria-activedescendant", "options-0")
    field.press("ArrowUp")
    expect(options(page).last).to_have_attribute("aria-selected", "true")
    expect(options(page).last).to_contain_text("new label")
    field.press("ArrowDown")
    field.press("ArrowDown")
    field.press("Enter")
    expect(page.locator(".accepted")).to_have_count(1)
    expect(field).to_have_attribute("aria-expanded", "false")
    expect(field).to_be_focused()
    field.press_sequentially("ملف")
    expect(options(page).first).to_contain_text("ملفات")
    field.press("Escape")
    expect(field).to_have_value("")
    field.press_sequentially("cross-v")
    field.press("Enter")  # before the response
    expect(row(page, "cross-validation").locator(".score")).to_have_text("added")


# ------------------------------------------------------------------------------------------------------------- text


def test_files_are_read_one_after_the_other(visit: Visitor, stores: dict[str, Store]) -> None:
    page = visit()
    html = b"""<head><title>no</title></head><style>p{}</style><p style='color:red'>Sparse <b>matrix</b></p><script
        >alert(1)</script><li>Two &amp; three<img src=//x.example/y>"""
    files: list[FilePayload] = [
        {"name": "a.html", "mimeType": "text/html", "buffer": html},
        {"name": "ب.txt", "mimeType": "text/plain", "buffer": "كيف أقرأ ملفا؟".encode()},
        {"name": "c.md", "mimeType": "text/markdown", "buffer": b"# Legend of a plot"},
    ]
    expect(page.locator("#text")).to_be_visible()
    page.set_input_files("#files", files)
    expect(page.locator("#text")).to_have_value("Sparse matrix\nTwo & three")
    expect(page.locator("#about")).to_have_text("1 of 3 · a.html")
    page.locator(".tag .accept").first.click()
    page.get_by_role("button", name="Learn and next").click()
    expect(page.locator("#text")).to_have_value("كيف أقرأ ملفا؟")
    expect(page.locator("#about")).to_have_text("2 of 3 · ب.txt")
    expect(page.locator("#note")).to_have_text("Learnt: 1 right.")
    page.get_by_role("button", name="Next", exact=True).click()
    expect(page.locator("#text")).to_have_value("# Legend of a plot")
    page.get_by_role("button", name="New").click()
    expect(page.locator("#text")).to_have_value("")
    expect(page.get_by_role("heading", name="What is it about?")).to_be_visible()
    page.get_by_role("button", name="Undo", exact=True).or_(page.locator(".decision .back")).first.click()
    expect(page.locator(".decision").first).to_contain_text("forgotten")


def test_a_file_or_a_text_can_be_dropped_anywhere(visit: Visitor) -> None:
    page = visit()
    drop = """(file) => {
        const data = new DataTransfer();
        if (file) data.items.add(new File(["a plot from a file"], "plot.txt", { type: "text/plain" }));
        else data.setData("text/plain", "a plot in words");
        const event = (kind) => new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true });
        document.querySelector("h1").dispatchEvent(event("dragenter"));
        const shown = document.querySelector(".drop").checkVisibility();
        document.querySelector("h1").dispatchEvent(event("drop"));
        return shown;
    }"""
    expect(page.locator("#text")).to_be_visible()
    assert page.evaluate(drop, True)
    expect(page.locator("#text")).to_have_value("a plot from a file")
    expect(page.locator("#about")).to_have_text("plot.txt")
    assert page.evaluate(drop, False)
    expect(page.locator("#text")).to_have_value("a plot in words")
    expect(page.locator(".drop")).to_be_hidden()
    expect(rows(page)).to_have_count(5)
    moved = """() => {
        const data = new DataTransfer();
        data.setData("text/plain", "words");
        return document.querySelector("#text").dispatchEvent(
            new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }"""
    assert page.evaluate(moved)  # the browser handles words that are moved within the text
    expect(page.locator("#text")).to_have_value("a plot in words")


def test_names_and_texts_are_never_interpreted_as_html(visit: Visitor) -> None:
    page = tagged(visit("#news"), "<b>The central bank</b> raises interest rates")
    expect(row(page, "<img src=x onerror=alert(1)>")).to_be_visible()
    row(page, "<img src=x onerror=alert(1)>").locator(".label").click()
    expect(page.locator(".evidence .chips").first).to_be_visible()
    expect(page.locator("main img")).to_have_count(0)
    expect(page.locator("main b", has_text="The central bank")).to_have_count(0)
    assert page.locator("#marks").text_content() == "<b>The central bank</b> raises interest rates\n"
    tagged(page, "كيف أقرأ ملفا؟")
    sides = "[...document.querySelectorAll('#text, #marks')].map((node) => getComputedStyle(node).unicodeBidi)"
    assert page.evaluate(sides) == ["plaintext", "plaintext"]


# ----------------------------------------------------------------------------------------- stores, keys, model card


def test_a_store_is_selected_by_the_menu_and_by_the_url(visit: Visitor) -> None:
    page = tagged(visit(), "The goalkeeper saves a penalty")
    expect(page).to_have_title("questions · ripml")
    page.get_by_label("Store", exact=True).select_option("news")
    expect(page).to_have_title("news · ripml")
    expect(page).to_have_url(re.compile("#news$"))
    expect(rows(page).first).to_contain_text("football")
    page.go_back()
    expect(page).to_have_title("questions · ripml")


def test_the_model_card_shows_the_model_and_refits_it(visit: Visitor, stores: dict[str, Store]) -> None:
    page = visit()
    page.get_by_role("button", name="Model").click()
    card = page.get_by_role("dialog", name="questions")
    expect(card.locator("#card-figures")).to_contain_text(f"documents{len(stores['questions'])}")
    expect(card.locator("#card-precision-part")).to_be_hidden()  # of so few documents, it would be chance
    expect(card.locator("#card-since")).to_contain_text("since the model was fitted.")
    expect(card).to_contain_text("n_neighbors")
    card.get_by_role("button", name="Refit").click()
    expect(card.locator("#refit-state")).to_contain_text("Last refit:")
    expect(card.locator("#card-since")).to_have_text("No changes since the model was fitted.")
    card.get_by_role("button", name="Close").click()
    expect(card).to_be_hidden()


def test_the_page_asks_for_a_key_and_hides_changes_from_readers(
    visit: Visitor, browser: Browser, tmp_path: Path
) -> None:
    reader = add_key(tmp_path / "keys", "reader", "read")
    store = Store.create(
        tmp_path / "store", data_of(QUESTIONS[:4]), RIPML.paper(n_dims=16, n_neighbors=3, random_state=0)
    )
    with serving({"only": store}, Settings(keys=tmp_path / "keys")) as address:
        page = visit(at=address, tolerates="401")
        dialog = page.get_by_role("dialog", name="API key required")
        assert not violations(page)
        page.get_by_label("API key", exact=True).fill("wrong")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("The server does not accept this key.")
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("alert")).to_contain_text("This server requires an API key.")
        page.get_by_role("button", name="Try again").click()
        page.get_by_label("API key", exact=True).fill(reader)
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("#store-name")).to_have_text("only")
        expect(page.get_by_role("alert")).to_be_hidden()
        tagged(page, "Pandas merge")
        expect(page.locator("[data-writes]:visible")).to_have_count(0)
        page.keyboard.press("Control+Enter")
        page.keyboard.press("a")
        expect(page.locator(".accepted")).to_have_count(0)
        assert not violations(page)
        page.reload()
        expect(page.locator("#store-name")).to_have_text("only")
        assert page.evaluate("Object.keys(localStorage)") == []


# ----------------------------------------------------------------------------------------------------- keys, problems


def test_everything_can_be_done_by_keyboard(visit: Visitor, stores: dict[str, Store]) -> None:
    page = visit()
    keys = page.keyboard
    expect(page.locator("#size")).to_be_visible()
    expect(page.locator("#text")).to_be_focused()
    keys.type("Merge of sparse arrays")
    keys.press("Control+Enter")
    expect(page.locator(".tag .label").first).to_be_focused()
    names = labels(page)
    for key in ("a", "j", "x", "ArrowDown", "e"):
        keys.press(key)
    expect(page.locator("#legend")).to_contain_text(names[2])
    keys.press("Escape")
    expect(row(page, names[2]).locator(".label")).to_be_focused()
    expect(page.locator(".evidence:visible")).to_have_count(0)
    keys.press("a")
    keys.press("Control+z")
    keys.press("k")
    keys.press("k")
    keys.press("/")
    keys.type("files")
    keys.press("Enter")
    expect(row(page, "files")).to_be_visible()
    keys.press("Escape")
    assert set(page.locator(".accepted .label bdi").all_text_contents()) == {names[0], "files"}
    assert page.locator(".rejected .label bdi").all_text_contents() == [names[1]]
    page.locator(".tag .label").first.focus()
    keys.press("c")
    expect(page.locator("#complete")).to_be_checked()
    page.locator("#complete").focus()
    keys.press("Control+z")
    expect(page.locator("#complete")).not_to_be_checked()
    keys.press("Control+s")
    expect(page.locator("#note")).to_have_text("Learnt: 2 right, 1 wrong.")
    (change,) = stores["questions"].history(1)
    assert (set(change["after"]), change["rejected_after"]) == ({names[0], "files"}, [names[1]])
    expect(page.locator("#undo")).to_be_visible()  # the change is done
    keys.press("n")
    expect(page.locator("#text")).to_be_focused()
    keys.press("Escape")
    page.locator("#help-open").focus()
    keys.press("Control+z")
    expect(page.locator("#text")).to_have_value("Merge of sparse arrays")
    expect(page.locator("#note")).to_have_text("Undone.")
    assert stores["questions"].history(1)[0]["kind"] == "forget"
    expect(page.locator("#tags")).to_have_attribute("aria-busy", "false")
    keys.press("Shift+A")
    expect(page.locator(".tag:not(.accepted, .rejected)")).to_have_count(0)
    assert set(page.locator(".accepted .label bdi").all_text_contents()) == {*labels(page)} - {names[1]}
    keys.press("m")
    expect(page.get_by_role("dialog", name="questions")).to_be_visible()
    keys.press("Escape")
    keys.press("?")
    expect(page.get_by_role("dialog", name="Help and shortcuts")).to_contain_text("Ctrl Enter".replace(" ", ""))
    keys.press("Escape")
    keys.press("t")
    expect(page.locator("#text")).to_be_focused()


def test_letters_are_shortcuts_outside_text_fields_only_and_can_be_turned_off(visit: Visitor) -> None:
    page = visit()
    expect(page.locator("#text")).to_be_focused()
    page.keyboard.type("numpy jax? /array")
    expect(page.locator("#text")).to_have_value("numpy jax? /array")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".tag .label").first).to_be_focused()
    page.locator("#help-open").click()
    page.get_by_label("Single-letter shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.locator(".tag .label").first.focus()
    page.keyboard.press("a")
    expect(page.locator(".accepted")).to_have_count(0)
    page.reload()
    expect(page.locator("#single")).not_to_be_checked()


def test_an_error_shows_the_message_of_the_server(visit: Visitor) -> None:
    page = visit(tolerates="413")
    problem = {
        "type": "about:blank",
        "title": "Too large",
        "status": 413,
        "detail": "a text has 9 characters; the limit is 8.",
    }
    page.route("**/suggest", lambda route: route.fulfill(status=413, json=problem))
    page.fill("#text", "too large")
    banner = page.get_by_role("alert")
    expect(banner).to_contain_text("A text has 9 characters; the limit is 8.")
    assert not violations(page)
    page.unroute("**/suggest")
    page.get_by_role("button", name="Try again").click()
    expect(banner).to_be_hidden()
    expect(rows(page)).to_have_count(5)


def test_the_page_continues_when_the_server_is_back(visit: Visitor) -> None:
    page = visit(tolerates="ERR_INTERNET_DISCONNECTED")
    expect(page.locator("#text")).to_be_visible()
    page.clock.install()
    page.context.set_offline(True)
    page.fill("#text", TEXT)
    page.clock.run_for(400)
    expect(page.get_by_role("alert")).to_contain_text("The server does not respond.")
    page.clock.run_for(3100)
    expect(page.get_by_role("alert")).to_be_visible()
    page.context.set_offline(False)
    page.clock.run_for(3100)
    expect(rows(page)).to_have_count(5)
    expect(page.get_by_role("alert")).to_be_hidden()


# --------------------------------------------------------------------------------------------------------- appearance


def test_the_theme_follows_the_system_and_the_switch(visit: Visitor) -> None:
    page = visit(color_scheme="dark", reduced_motion="reduce")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    assert page.evaluate(ground) == "rgb(18, 20, 22)"
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate(ground) == "rgb(247, 245, 241)"
    page.reload()
    assert page.evaluate(ground) == "rgb(247, 245, 241)"
    tagged(page, TEXT)
    assert page.evaluate("getComputedStyle(document.querySelector('.bar i')).transitionProperty") in ("none", "all")
    assert page.evaluate("document.getAnimations().length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_learn_is_the_most_prominent_button(visit: Visitor, scheme: str) -> None:
    page = tagged(visit(color_scheme=scheme, reduced_motion="reduce"), TEXT)
    colours = """(id) => {
        const { color, backgroundColor } = getComputedStyle(document.getElementById(id));
        return [color, backgroundColor, getComputedStyle(document.documentElement).backgroundColor];
    }"""
    written, filled, ground = page.evaluate(colours, "learn")  # before anything is accepted
    assert contrast(written, filled) >= 7
    assert contrast(filled, ground) >= 4.5
    page.locator(".tag .accept").first.click()
    assert page.evaluate(colours, "learn") == [written, filled, ground]
    page.keyboard.press("Control+s")
    expect(page.get_by_role("button", name="Learnt")).to_be_visible()
    written, filled, _ = page.evaluate(colours, "learn")  # nothing to save
    assert contrast(written, filled) >= 4.5
    assert contrast(filled, ground) < 1.5
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(page.locator("#note")).to_have_text("Undone.")


def test_an_empty_page_does_not_scroll(visit: Visitor, tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", data_of(NEWS), RIPML.paper(n_dims=16, n_neighbors=3, random_state=0))
    with serving({"only": store}) as address:
        for phone, size in ((False, (1280, 900)), (False, (1280, 720)), (True, (390, 844))):
            page = visit(at=address, phone=phone)
            page.set_viewport_size({"width": size[0], "height": size[1]})
            expect(page.locator("#size")).to_have_text("4 documents · 3 labels")
            assert page.evaluate("document.documentElement.scrollHeight") == size[1]


def test_on_a_phone_learn_stays_visible(visit: Visitor) -> None:
    page = tagged(visit(phone=True), TEXT)
    page.locator(".tag .label").first.tap()
    expect(page.locator(".examples li").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollHeight > 1.4 * innerHeight")
    bar = page.locator("#saving")
    for place in (0, 300):
        page.evaluate("(place) => scrollTo(0, place)", place)
        expect(page.locator("#learn")).to_be_in_viewport(ratio=1)
        assert bar.evaluate("(node) => innerHeight - node.getBoundingClientRect().bottom") == pytest.approx(0, abs=1)
    assert bar.evaluate("(node) => node.offsetHeight") < 120  # two lines
    for label in page.locator(".tag .label").all():  # the bar hides no row that has the focus
        label.focus()
        shown = label.evaluate("(node) => node.getBoundingClientRect().bottom")
        assert shown <= bar.evaluate("(node) => node.getBoundingClientRect().top") + 1


@pytest.mark.parametrize(("scheme", "phone"), [("light", False), ("dark", False), ("light", True)])
def test_axe_finds_no_violation_in_any_state(visit: Visitor, scheme: str, phone: bool) -> None:
    page = visit(color_scheme=scheme, phone=phone, reduced_motion="reduce")
    expect(page.get_by_role("button", name="Model")).to_be_visible()

    def fits() -> None:
        assert not violations(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    fits()
    tagged(page, f"{TEXT} {'long' * 40}")
    page.get_by_role("button", name="Show more").click()
    expect(rows(page)).to_have_count(10)
    page.locator(".tag .accept").first.click()
    page.locator(".tag .reject").last.click()
    page.locator(".tag .label").first.click()
    expect(page.locator(".examples li").first).to_be_visible()
    page.locator("#add").press_sequentially("p")
    expect(options(page).first).to_be_visible()
    assert page.evaluate("document.querySelector('#options li').offsetHeight") < 60  # a name is not broken
    fits()
    page.locator("#add").press("Escape")
    page.locator("#learn").click()
    expect(page.locator(".decision").first).to_contain_text("some tags decided")
    fits()
    page.locator(".decision .back").first.click()
    expect(page.locator(".gone").first).to_be_visible()
    fits()
    page.locator("#card-open").click()
    expect(page.locator("#card")).to_be_visible()
    fits()
    page.keyboard.press("Escape")
    page.locator("#help-open").click()
    fits()


def test_labels_have_names_in_the_language_of_the_browser(
    visit: Visitor, tmp_path: Path, stores: dict[str, Store]
) -> None:
    concepts = Concepts.of(
        [
            Concept("economy", {"en": "economy", "de": "Wirtschaft"}),
            Concept("football", {"en": "football", "de": "Fußball"}, {"de": ("Kicken",)}),
            Concept("weather", {"de": "Wetter <b>"}),
        ]
    )
    store = Store.create(
        tmp_path / "named", data_of(NEWS), RIPML.paper(n_dims=16, n_neighbors=3, random_state=0), vocabulary=concepts
    )
    with store, serving({"named": store}) as address:
        page = tagged(visit(at=address, locale="de-DE"), "Striker scores in the final as rates rise")
        assert {"Wirtschaft", "Fußball"} <= set(labels(page))
        expect(row(page, "Fußball").locator("bdi").first).to_have_attribute("title", "football")
        assert not page.locator(".tag bdi").filter(has_text="<img").first.get_attribute("title")
        row(page, "Fußball").locator(".label").click()
        expect(page.locator("#legend-label")).to_have_text("Fußball")
        expect(page.locator(".examples .chips").first).to_contain_text("Fußball")
        page.locator("#add").press_sequentially("kick")
        expect(options(page).first).to_contain_text("Fußball")
        page.locator("#add").fill("Wetter <b>")
        expect(options(page)).to_have_count(1)
        page.locator("#add").press("Enter")
        expect(row(page, "Wetter <b>")).to_be_visible()
        page.get_by_label("These are all the tags").check()
        page.locator("#learn").click()
        expect(page.locator(".decision .chips").first).to_contain_text("Wetter <b>")
        assert not violations(page)
        (learnt,) = [store.document(id) for id in store.ids() if id not in "0123"]
        assert learnt["labels"] == ["weather"], "the store has ids"


@pytest.mark.parametrize("width", [1440, 1280, 1024, 800, 360])
def test_a_long_name_of_a_store_is_cut_after_the_counts_and_never_breaks(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    name = "questions-and-answers-of-the-last-ten-years"
    with (
        Store.create(tmp_path / name, data_of(NEWS), RIPML(random_state=0)) as store,
        serving({name: store}) as address,
    ):
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.goto(address)
        shown = page.locator("#store-name")
        expect(shown).to_have_text(name)
        expect(shown).to_have_attribute("title", name)
        assert page.evaluate(
            """() => {
                const [name, size] = ["store-name", "size"].map((id) => document.getElementById(id));
                const cut = (node) => node.scrollWidth > node.clientWidth || node.clientWidth === 0;
                const oneLine = name.getClientRects().length === 1 && name.offsetHeight < 30;
                const inside = document.documentElement.scrollWidth <= innerWidth;
                return oneLine && inside && (!cut(name) || cut(size));
            }"""
        )
        page.context.close()


def test_the_first_view_is_small(visit: Visitor) -> None:
    page = visit()
    expect(page.locator("#text")).to_be_visible()
    expect(page.locator("#size")).to_be_visible()
    sizes: dict[str, int] = page.evaluate(
        """Object.fromEntries(["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type))
            .map((entry) => [entry.name, entry.decodedBodySize]))"""
    )
    assert sum(sizes.values()) < 120 * 1024
    assert 20 * 1024 < sum(size for name, size in sizes.items() if name.endswith(".js")) < 60 * 1024
    assert not [name for name in sizes if "/views/" in name and "/views/tag." not in name], "others load when opened"


def test_the_page_loads_nothing_from_other_servers() -> None:
    files = [file for file in PAGE.rglob("*") if file.is_file() and "vendor" not in file.parts]
    for file in files:
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)
        if file.suffix == ".html":
            assert not re.search(r"<script(?! [^>]*src=)|<style|\sstyle=|\son\w+=", text)


def test_a_view_has_an_address(visit: Visitor) -> None:
    page = visit("#questions?document=3", tolerates="404")
    expect(page.locator("#text")).to_have_value(QUESTIONS[3][0])
    expect(page.get_by_role("link", name="Tag")).to_have_attribute("aria-current", "page")
    page.get_by_role("button", name="New").click()
    expect(page).to_have_url(re.compile("#questions$"))
    page.goto(page.url.split("#")[0] + "#news?document=0")
    expect(page.locator("#text")).to_have_value(NEWS[0][0])
    page.go_back()
    expect(page.locator("#store")).to_have_value("questions")
    expect(page.locator("#about")).to_have_text("")  # the text stays, and is not a document of this store
    page.goto(page.url.split("#")[0] + "#news?document=none-such")
    expect(page.get_by_role("alert")).to_contain_text("none-such")
