"""Full-text search: the documents that a scan of the same tokens finds, also after a crash and a compaction."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_server import QUESTIONS, data_of
from scipy.sparse import csr_array

from ripml import RIPML, Store
from ripml.base.errors import DataError, ParameterError
from ripml.datasets import documents_given
from ripml.store import fulltext
from ripml.store.forgetting import find_traces
from ripml.store.fulltext import Query
from ripml.text.tokens import pieces

WORDS = [
    "red", "green", "apple", "pear", "tea_cup", "قلم", "كتاب", "数据分析", "分析方法", "ไทย", "हिन्दी", "Straße",
    "naïve", "C", "x",
]  # fmt: skip
QUERIES = [
    "", "red", "RED apple", '"red apple"', '"apple red" -pear', "ap*", "appl* -red", "-red", '-"red apple"',
    "数据", "分析", "数据分析方法", "قلم", '"قلم كتاب"', "हिन्दी", "STRASSE", "c", "x -c", "gr* re*", "tea_cup", "tea",
    '"', '""', '"red', "'red'", "red AND apple", "red OR apple", "NOT", "NEAR(red, 3)", "text:red", "^red", "red*apple",
    "*", "--red", "-", "(red", "a\0b", "{red} + ;DROP TABLE words; --", "<b>red</b>", "&amp;", "ＲＥＤ", "ไทย",
    "no-one",
]  # fmt: skip


def settings() -> RIPML:
    return RIPML.linear(random_state=0, n_jobs=1)


def texts(n: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(n)]


def create(folder: Path, some: list[str]) -> Store:
    labels = [["even" if i % 2 else "odd"] for i in range(len(some))]
    return Store.create(folder, documents_given(some, labels), settings())


def every(store: Store, query: str = "", after: str | None = None, **options: Any) -> list[str]:
    """The ids on all pages."""
    ids: list[str] = []
    while True:
        page = store.search(query, after=after, **options)
        ids += [one.id for one in page]
        if page.next is None:
            return ids
        after = page.next


def scan(store: Store, query: str) -> list[str]:
    """The ids that a scan of all texts finds, newest first."""
    wanted = Query.parse(query)
    found = {id: list(pieces(store.document(id)["text"])) for id in reversed(store.ids())}
    return [id for id, some in found.items() if wanted.matches(some)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with create(tmp_path / "store", texts(60)) as store:
        yield store


@pytest.mark.parametrize("query", QUERIES)
def test_a_search_finds_what_a_scan_of_the_same_tokens_finds(store: Store, query: str) -> None:
    expected = scan(store, query)
    assert every(store, query, sort="newest", n=7) == expected
    assert sorted(every(store, query, n=7)) == sorted(expected)
    assert store.search(query).total == len(expected)


def test_random_texts_are_queries_that_a_scan_understands_alike(store: Store) -> None:
    rng = random.Random(1)
    signs = ['"', "-", "*", " ", "(", ")", "“", "”", ":", "'", "\t", *WORDS, "ap", "分"]
    for _ in range(150):
        query = "".join(rng.choices(signs, k=rng.randint(1, 9)))
        assert every(store, query, sort="newest") == scan(store, query), query


def test_every_change_of_a_document_changes_what_is_found(store: Store, tmp_path: Path) -> None:
    store.learn([{"id": "new", "text": "a zebra", "labels": ["odd"]}])
    assert every(store, "zebra") == ["new"]
    store.learn([{"id": "new", "text": "a giraffe", "labels": ["odd"]}])
    assert (every(store, "zebra"), every(store, "giraffe")) == ([], ["new"])
    store.relabel("new", ["even"])
    store.decide({"id": "open", "text": "an okapi"}, ["even"])
    store.forget(["new"])
    assert (every(store, "giraffe"), every(store, "okapi")) == ([], ["open"])
    with pytest.raises(DataError, match="there is no document"):
        store.forget(["open", "unknown"])  # all or none
    assert every(store, "okapi") == ["open"]
    store.refit()
    assert store.check(full=True).ok
    store.backup(tmp_path / "copy")
    with Store.open(tmp_path / "copy", readonly=True) as copy:
        for query in QUERIES:
            assert every(copy, query) == every(store, query)


def test_a_crash_leaves_the_changes_that_returned_and_their_words(store: Store, tmp_path: Path) -> None:
    store.learn([{"id": "kept", "text": "a zebra", "labels": ["odd"]}])
    with suppress(KeyboardInterrupt), store._database.transaction() as connection:
        fulltext.WordIndex(connection, bytes.decode).add(10_000, b"a giraffe")
        raise KeyboardInterrupt
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for path in store._folder.rglob("*"):  # as the files are while the store is open
        if path.is_file() and path.name != "writer.lock":
            (crashed / path.relative_to(store._folder)).parent.mkdir(exist_ok=True)
            (crashed / path.relative_to(store._folder)).write_bytes(path.read_bytes())
    with Store.open(crashed) as opened:
        assert (every(opened, "zebra"), every(opened, "giraffe")) == (["kept"], [])
        for query in QUERIES:
            assert every(opened, query, sort="newest") == scan(opened, query)


def test_readers_of_other_processes_see_what_was_committed(store: Store) -> None:
    with Store.open(store._folder, readonly=True) as reader:
        store.learn([{"id": "new", "text": "a zebra", "labels": ["odd"]}])
        assert every(reader, "zebra") == ["new"]
        store.forget(["new"])
        assert every(reader, "zebra") == []


def test_after_a_compaction_no_byte_of_a_forgotten_document_is_left_in_the_index(store: Store) -> None:
    words = [f"quokka{i}wombat" for i in range(40)]
    for i, word in enumerate(words):
        store.learn([{"id": f"secret-{i}", "text": f"{word} red apple", "labels": ["odd"]}])
    for i in range(len(words)):
        store.forget([f"secret-{i}"], certify=bool(i % 2))
    store.learn([{"id": "later", "text": "a Zebracolour", "labels": ["odd"]}])
    assert store.search("quokka*").total == 0
    store.compact()
    parts = [part for word in [*words, "quokka", "wombat"] for part in (word, word[3:])]
    needles = dict.fromkeys(map(str.encode, parts), "a word")
    assert find_traces(store._folder, needles) == []
    assert store.verify(documents=[{"id": "secret-1", "text": f"{words[1]} red apple", "labels": ["zebracolour"]}]).ok
    assert every(store, "red", sort="newest") == scan(store, "red")


def old_format(folder: Path) -> None:
    """Make a store as versions before the index left it."""
    with sqlite3.connect(folder / "store.db") as connection:
        connection.execute("DROP TABLE words")
        connection.execute("DELETE FROM meta WHERE key = 'words'")
        connection.execute("PRAGMA user_version=3")
    connection.close()


def test_a_store_without_an_index_is_searched_and_a_writer_adds_it(tmp_path: Path) -> None:
    create(tmp_path / "store", texts(30)).close()
    old_format(tmp_path / "store")
    with Store.open(tmp_path / "store", readonly=True) as reader:
        before = {query: every(reader, query) for query in QUERIES}
        assert before["red"]
    assert sqlite3.connect(tmp_path / "store" / "store.db").execute("PRAGMA user_version").fetchone() == (3,)
    with Store.open(tmp_path / "store") as store:
        assert {query: every(store, query) for query in QUERIES} == before
        store.forget([before["red"][0]])
        assert every(store, "red") != before["red"]
    with Store.open(tmp_path / "store", readonly=True) as reader:
        assert every(reader, "red", sort="newest") == scan(reader, "red")


def test_a_writer_that_was_killed_before_it_filled_the_index_leaves_a_store_that_is_searched_and_filled(
    tmp_path: Path,
) -> None:
    create(tmp_path / "store", texts(30)).close()
    with sqlite3.connect(tmp_path / "store" / "store.db") as connection:  # of the new format, whose index is empty
        connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
        connection.execute("DELETE FROM meta WHERE key = 'words'")
    connection.close()
    with Store.open(tmp_path / "store", readonly=True) as reader:
        assert every(reader, "red", sort="newest") == scan(reader, "red")
    with Store.open(tmp_path / "store") as store:
        assert store._database.read(fulltext.is_ready)
        assert every(store, "red", sort="newest") == scan(store, "red")


def test_an_index_that_another_rule_made_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path / "store", texts(30)).close()
    monkeypatch.setattr(fulltext, "_RULE", 99)
    with Store.open(tmp_path / "store", readonly=True) as reader:
        assert every(reader, "red", sort="newest") == scan(reader, "red")
    with Store.open(tmp_path / "store") as store:
        assert every(store, "red", sort="newest") == scan(store, "red")
        assert store._database.read(fulltext.is_ready)


def test_filters_hold_for_every_document_that_is_found_and_for_no_other(store: Store) -> None:
    store.decide({"id": "open", "text": "red apple"}, ["even"], ["odd"])
    store.learn([{"id": "bare", "text": "red pear", "labels": []}])
    every_id = set(store.ids())
    even = {id for id in every_id if "even" in store.document(id)["labels"]}
    cases: dict[str, tuple[dict[str, Any], set[str]]] = {
        "labels": ({"labels": ["even"]}, {*even, "open"}),
        "both": ({"labels": ["even", "odd"]}, set()),
        "rejected": ({"rejected": ["odd"]}, {"open"}),
        "undecided": ({"undecided": ["odd"]}, {"bare"}),
        "labelled": ({"state": "labelled"}, every_id - {"open", "bare"}),
        "partly": ({"state": "partly"}, {"open"}),
        "unlabelled": ({"state": "unlabelled"}, {"bare"}),
        "prefix": ({"prefix": "1"}, {id for id in every_id if id.startswith("1")}),
        "since": ({"since": "2020-01-01"}, {"open", "bare"}),
        "until": ({"until": "2020-01-01"}, every_id - {"open", "bare"}),
        "until later": ({"until": "2999-01-01T00:00:00+02:00"}, every_id),
    }
    for name, (filters, expected) in cases.items():
        assert set(every(store, **filters, n=7)) == expected, name
        for query in ("red", "-red", "ap*"):
            wanted = [id for id in scan(store, query) if id in expected]
            assert every(store, query, sort="newest", n=3, **filters) == wanted, (name, query)
            assert sorted(every(store, query, n=3, **filters)) == sorted(wanted), (name, query)


def test_more_matches_than_are_ranked_come_after_them_newest_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked = every(store, "red", n=100)
    monkeypatch.setattr(fulltext, "RANKED", 10)
    for n in (1, 3, 10, 100):
        found = every(store, "red", n=n)
        newest = scan(store, "red")
        assert set(found[:10]) == set(newest[:10])
        assert found[:10] == [id for id in ranked if id in newest[:10]]
        assert found[10:] == newest[10:]
    assert store.search("red").total == 10


def test_pages_have_no_document_twice_although_others_come_and_go(store: Store) -> None:
    first = store.search("red", sort="newest", n=3)
    store.learn([{"id": "new", "text": "red", "labels": ["odd"]}])
    store.forget([first.documents[1].id])
    later = every(store, "red", sort="newest", after=first.next)
    assert later == [id for id in scan(store, "red") if id not in {"new", *(one.id for one in first)}]


def test_an_excerpt_has_the_first_match_and_its_marks_are_the_matches(store: Store) -> None:
    long = "grey sky and rain. " * 2000
    store.learn([
        {"id": "long", "text": f"{long}A Straße with zebras, zebras. {long}", "labels": ["odd"]},
        {"id": "wide", "text": "天气" * 500 + "斑马线" + "天气" * 500, "labels": ["odd"]},
    ])  # fmt: skip
    (one,) = store.search("zebras STRASSE")
    assert [one.excerpt[a:b] for a, b in one.marks] == ["Straße", "zebras", "zebras"]
    assert store.document("long")["text"][one.start :].startswith(f"{one.excerpt} ")
    assert 200 <= len(one.excerpt) <= 240
    assert one.characters == len(store.document("long")["text"])
    (one,) = store.search("斑马")
    assert [one.excerpt[a:b] for a, b in one.marks] == ["斑马"]
    (one,) = store.search("zeb*")
    assert [one.excerpt[a:b] for a, b in one.marks] == ["zebras", "zebras"]


def test_what_is_wrong_is_said_in_one_sentence(store: Store) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "`sort` must be 'relevance' or 'newest'; got 'best'": {"sort": "best"},
        "`state` must be one of labelled, partly, unlabelled; got 'done'": {"state": "done"},
        "`since` must be a date or time such as 2026-01-31; got 'today'": {"since": "today"},
        "`after` must be the `next` of a page; got 'x'": {"after": "x"},
        "`n` must be": {"n": 0},
    }
    for sentence, options in wrong.items():
        with pytest.raises(ParameterError, match=sentence):
            store.search("red", **options)
    with pytest.raises(DataError, match="there is no label 'unknown'"):
        store.search(labels=["unknown"])


def test_a_store_of_features_is_searched_by_its_filters(tmp_path: Path) -> None:
    data = replace(data_of(QUESTIONS), texts=None, X=csr_array([[float(i + 1)] for i in range(len(QUESTIONS))]))
    with Store.create(tmp_path / "store", data, settings()) as store:
        store.learn([{"id": "x", "features": [3], "labels": ["b"]}])
        store.forget(["0"])
        assert every(store, labels=["b"]) == ["x"]
        with pytest.raises(DataError, match="search it without words"):
            store.search("red")
