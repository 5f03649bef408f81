"""The view Quality in Chromium, and the file of a report from the disk: the same figures as Python has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_server import QUESTIONS, Visit, chromium, data_of, needs_chromium, serving, violations
from playwright.sync_api import Browser, Page, expect
from test_quality import documents, learn

from ripml import RIPML, Store
from ripml.model.learning_curve import CurvePoint, LearningCurve
from ripml.server import Settings, add_key

pytestmark = needs_chromium

Visitor = Callable[..., Page]
SLIDE = """(to) => {
    const input = document.querySelector("#quality-confidence");
    input.value = to;
    input.dispatchEvent(new Event("input", { bubbles: true }));
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two fits, decisions, and documents that came since the last fit."""
    folder = tmp_path_factory.mktemp("quality") / "subjects"
    with Store.create(folder, data_of(documents(400)), RIPML(random_state=0)) as store:
        learn(store, 30, 1)
        store.refit()
        learn(store, 30, 2)
        store.decide({"id": "a", "text": "apple pear rain"}, ["fruit", "weather"], ["music"])
    return folder


@pytest.fixture
def store(made: Path) -> Iterator[Store]:
    with Store.open(made, readonly=True) as store:
        yield store


@pytest.fixture
def visit(browser: Browser, made: Path) -> Iterator[Visitor]:
    opened: list[Visit] = []
    with serving({"subjects": Store.open(made)}) as address:

        def visit(phone: bool = False, **options: Any) -> Page:
            size = {"width": 360, "height": 740} if phone else {"width": 1280, "height": 900}
            context = browser.new_context(viewport=size, has_touch=phone, is_mobile=phone, **options)  # type: ignore[arg-type]
            opened.append(Visit(context.new_page(), address))
            opened[-1].page.goto(f"{address}#subjects/quality")
            return opened[-1].page

        yield visit
        for one in opened:
            one.page.context.close()
            assert not one.foreign_requests
            assert not one.errors


@pytest.fixture(scope="module")
def report(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    with Store.open(made, readonly=True) as store:
        file.write_text(store.quality().to_html("Subjects"), encoding="utf-8")
    return file


def percent(value: float) -> str:
    return f"{100 * value:.0f}%"


def measured(page: Page) -> None:
    """Measure each label."""
    page.get_by_role("button", name="Measure", exact=True).click()
    expect(page.locator("#quality-measured")).to_be_visible()
    expect(page.locator("#quality-state")).to_contain_text("Measured")


def test_the_slider_says_what_automation_says_without_a_request(visit: Visitor, store: Store) -> None:
    page = visit()
    expect(page.locator("#quality-sentence b").first).to_be_visible()
    estimator = store.model.model
    assert isinstance(estimator, RIPML)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for what, name in (("rows", "Whole documents"), ("labels", "Single tags")):
        page.get_by_role("button", name=name).click()
        for precision in (0.9, 0.95):
            promised = estimator.automation([precision])[what]
            button = page.get_by_role("button", name=f"{100 * precision:.0f}% right")
            button.click()
            if not promised:  # these few rows do not show it with confidence
                expect(page.locator("#quality-rule")).to_contain_text(f"promises that {100 * precision:.0f}")
                continue
            (found,) = promised
            expect(button).to_have_attribute("aria-pressed", "true")
            numbers = page.locator("#quality-sentence b").all_inner_texts()
            assert numbers == [percent(found["share"]), percent(found["precision"])]
            expect(page.locator("#quality-at")).to_have_text(f"{found['threshold']:.2f}")
        curve = estimator.automation_curves()[what]
        for to in (0.0, 0.3, 0.7):
            page.evaluate(SLIDE, to)
            place = max(i for i, level in enumerate(curve["threshold"]) if level >= to)
            expected = [percent(curve["share"][place]), percent(curve["precision"][place])]
            assert page.locator("#quality-sentence b").all_inner_texts() == expected
            spoken = page.locator("#quality-confidence").get_attribute("aria-valuetext")
            assert spoken == f"{to:.2f}: {page.locator('#quality-sentence').inner_text()}"
    assert asked == []


def test_the_line_in_the_chart_follows_the_slider(visit: Visitor) -> None:
    page = visit()
    line = page.locator(".cursor-line")
    expect(line).to_be_attached()
    places = []
    for to in (0.2, 0.8):
        page.evaluate(SLIDE, to)
        places.append(line.evaluate("(line) => line.getBoundingClientRect().x"))
    assert places[1] > places[0] + 100
    page.set_viewport_size({"width": 700, "height": 900})
    page.wait_for_function(
        "(x) => document.querySelector('.cursor-line').getBoundingClientRect().x !== x", arg=places[1]
    )


def test_each_label_is_measured_sorted_and_filtered(visit: Visitor, store: Store) -> None:
    page = visit()
    expect(page.get_by_role("heading", name="How good is each label?")).to_be_visible()
    measured(page)
    expected = store.quality()
    figures = page.locator("#quality-figures").inner_text()
    assert expected.precision is not None
    assert f"{100 * expected.precision['P@1']:.1f}%" in figures
    assert f"{expected.micro_f1:.2f}" in figures

    def shown() -> list[list[str]]:
        rows = page.locator("#quality-labels tbody tr").all()
        return [row.locator("th, td").all_inner_texts()[:4] for row in rows]

    assert shown() == [
        [one.label, str(one.rows), f"{100 * (one.precision or 0):.1f}%", f"{100 * one.recall:.1f}%"]
        for one in sorted(expected.labels, key=lambda one: -one.rows)
    ]
    page.get_by_role("button", name="Label", exact=True).click()
    assert [name for name, *_ in shown()] == ["fruit", "music", "weather"]
    page.get_by_role("button", name="Recall").click()
    recalls = [float(recall.rstrip("%")) for *_, recall in shown()]
    assert recalls == sorted(recalls, reverse=True)
    expect(page.locator("#quality-columns [aria-sort]")).to_have_text("Recall")
    page.locator("body").press("/")
    page.locator("#quality-filter").press_sequentially("MUS")
    assert [name for name, *_ in shown()] == ["music"]
    expect(page.locator("#quality-labels-found")).to_have_text("1 of 3 labels")


def test_every_chart_has_a_table_with_its_numbers(visit: Visitor, store: Store) -> None:
    page = visit()
    measured(page)
    expect(page.locator("#quality-sentence b").first).to_be_visible()
    for figure in page.locator("figure:has(canvas)").all():
        assert str(figure.locator("[role=img]").get_attribute("aria-label")).endswith("below.")
        figure.locator("summary").click()
        assert figure.locator("tbody tr").count() >= 1
    fits = page.locator("#quality-fits tbody tr").all()
    assert [row.locator("td").all_inner_texts()[1:4] for row in fits] == [
        [str(fit["documents"]), str(fit["labels"]), f"{100 * fit['precision']['P@1']:.1f}%"] for fit in store.fits()
    ]
    expect(page.locator("#quality-decided-about")).to_contain_text("Of 3 decided tags, 66.7% were accepted")
    expect(page.locator("#quality-familiar-about")).to_contain_text("The newest 30 documents")


def test_a_learning_curve_is_shown_and_too_few_documents_for_one_are_told(
    visit: Visitor, browser: Browser, store: Store, tmp_path: Path
) -> None:
    page = visit()
    expect(page.locator("#quality-learning-about")).to_contain_text("takes about two fits")
    page.locator("#quality-learning-begin").click()
    expect(page.locator("#quality-learning-about")).to_contain_text("too few for a learning curve")
    figures = [{"P@1": 0.5 + i / 10, "micro-F1": 0.4 + i / 10} for i in range(4)]
    *points, twice = [CurvePoint(100 * 2**i, one, dict.fromkeys(one, 0.01)) for i, one in enumerate(figures)]
    curve = LearningCurve(200, tuple(points), twice, {"P@1": 0.0, "micro-F1": 0.0})
    (tmp_path / "curve.html").write_text(store.quality().to_html("Subjects", curve), encoding="utf-8")
    report = browser.new_page()
    report.goto((tmp_path / "curve.html").as_uri())
    expect(report.locator("#quality-learning-about")).to_contain_text("80.0% (+10 points)")
    report.locator("#quality-learning summary").click()
    expect(report.locator("#quality-learning tbody th")).to_have_text(["100", "200", "400", "800, expected"])
    expect(report.locator("#quality-learning-begin")).to_be_hidden()
    assert not violations(report)
    report.close()


def test_what_labels_have_in_common_is_listed_with_links(browser: Browser, tmp_path: Path) -> None:
    carried = [["harbour", "port"], ["ship", "vehicle"], ["vehicle"], ["apple"], ["apples"], ["rain"]]
    words = [
        "quay crane pier",
        "mast sail deck",
        "wheel motor road",
        "tree orchard red",
        "basket cider core",
        "cloud sky wet",
    ]
    texts = [(f"{words[i % 6]} number {i}", carried[i % 6]) for i in range(240)]
    common = "The committee met in spring to speak about harbours, quays, cranes and piers, and closed at noon"
    texts += [(f"{common} on day {i}", [*carried[0], "rain" if i else "apple"]) for i in range(2)]
    store = Store.create(tmp_path / "common", data_of(texts), RIPML(random_state=0))
    expected, audit = store.quality(), store.audit()
    assert {pair.kind for pair in expected.pairs} == {"same", "subsumed", "alike"}
    assert audit.near_copies
    with serving({"common": store}) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}#common/quality")
        measured(page)
        one, implied = page.locator("#quality-one > li"), page.locator("#quality-implied > li")
        alike = [pair for pair in expected.pairs if pair.kind != "subsumed"]
        expect(one.locator("p:first-child")).to_have_text([f"{pair.label} and {pair.other}" for pair in alike])
        expect(implied.first).to_contain_text("ship → ")
        expect(page.locator("#quality-copies")).to_be_hidden()  # no audit yet
        page.goto(f"{address}#common/review?queue=doubtful")
        page.get_by_role("button", name="Find doubtful tags").click()
        expect(page.locator("#review-card, #review-lead:text('No tag is in doubt')").first).to_be_visible()
        page.get_by_role("link", name="Quality").click()
        expect(page.locator("#quality-copies > li")).to_have_count(min(len(audit.near_copies), 6))
        expect(page.locator("#quality-copies .chips").first).to_be_visible()
        assert not violations(page)
        one.first.get_by_role("link").first.click()
        expect(page).to_have_url(re.compile(rf"#common/labels\?.*label={alike[0].label}"))
        page.go_back()
        page.locator("#quality-copies a").first.click()
        expect(page.locator("#text")).to_have_value(re.compile("committee"))
        page.close()


def test_thousands_of_labels_make_few_rows(browser: Browser, tmp_path: Path) -> None:
    names = [f"label {i:04}" for i in range(900)]
    texts = [(f"text {i} about {names[i % 900]}", [names[i % 900]]) for i in range(1800)]
    file = tmp_path / "many.html"
    with Store.create(tmp_path / "many", data_of(texts), RIPML.paper(random_state=0, decoder="blend")) as store:
        file.write_text(store.quality().to_html(), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    rows = page.locator("#quality-labels tbody tr:not(.space)")
    expect(rows.first).to_be_visible()
    assert rows.count() < 60
    expect(page.locator("#quality-labels table")).to_have_attribute("aria-rowcount", "901")
    page.get_by_role("button", name="Label", exact=True).click()
    page.locator("#quality-labels").evaluate("(node) => node.scrollTo(0, node.scrollHeight)")
    expect(page.get_by_role("rowheader", name="label 0899")).to_be_visible()
    assert rows.count() < 60
    page.close()


def test_a_small_store_is_too_small_to_measure(browser: Browser, tmp_path: Path) -> None:
    small = Store.create(tmp_path / "small", data_of(QUESTIONS[:8]), RIPML(random_state=0))
    with serving({"small": small}) as address:
        page = browser.new_page()
        page.goto(f"{address}#small/quality")
        expect(page.get_by_role("heading", name="Too small to measure")).to_be_visible()
        expect(page.locator("#quality-small-why")).to_contain_text("8 documents with tags are too few to measure")
        expect(page.locator("#quality-all")).to_be_hidden()
        assert "0%" not in page.locator("#quality").inner_text()
        assert not violations(page)
        page.close()


def test_a_reader_sees_everything_and_cannot_measure(browser: Browser, made: Path, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "reader", "read")
    with serving({"subjects": Store.open(made)}, Settings(keys=tmp_path / "keys")) as address:
        page = browser.new_page()
        page.goto(f"{address}#subjects/quality")
        page.fill("#key-value", key)
        page.keyboard.press("Enter")
        expect(page.locator("#quality-sentence b").first).to_be_visible()
        expect(page.locator("#quality-begin")).to_be_hidden()
        expect(page.locator("#quality-measure")).to_be_hidden()
        page.close()


@pytest.mark.parametrize(("scheme", "phone"), [("light", False), ("dark", False), ("light", True)])
def test_axe_finds_no_violation(visit: Visitor, scheme: str, phone: bool) -> None:
    page = visit(phone=phone, color_scheme=scheme)
    expect(page.locator("#quality-sentence b").first).to_be_visible()
    page.evaluate("document.querySelector('#views').scrollTo(0, 0)")  # axe takes a first link outside for a skip link
    assert not violations(page)
    measured(page)
    page.locator("#quality-fits summary").click()
    assert not violations(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("scheme", "phone"), [("light", False), ("dark", True)])
def test_the_file_works_from_the_disk_without_a_request(
    browser: Browser, store: Store, report: Path, scheme: Any, phone: bool
) -> None:
    page = browser.new_page(viewport={"width": 360 if phone else 1280, "height": 800}, color_scheme=scheme)
    seen, errors = list[str](), list[str]()
    page.on("request", lambda request: seen.append(request.url))
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(report.as_uri())
    expect(page.get_by_role("heading", name="Subjects")).to_be_visible()
    promised = store.model.model.automation([0.95])["rows"]
    numbers = page.locator("#quality-sentence b").all_inner_texts()
    assert not promised or numbers == [percent(promised[0]["share"]), percent(promised[0]["precision"])]
    if not promised:  # these few rows do not show it with confidence
        expect(page.locator("#quality-rule")).to_contain_text("promises that 95")
    assert page.locator("canvas").count() >= 3
    expect(page.locator("#quality-labels tbody th")).to_have_count(3)
    assert not violations(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert seen == [report.as_uri()]
    assert errors == []
    page.close()


def test_the_file_prints_every_label_on_light_paper(browser: Browser, report: Path) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(report.as_uri())
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    expect(page.locator("#quality-labels tbody th")).to_have_count(3)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") is None
    page.close()
