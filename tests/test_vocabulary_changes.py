"""Vocabularies that change while in use: new concepts are suggested at once, and every path to a state is the same."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run
from test_store import crash_image
from test_words import copied, hits, library

from ripml import RIPML, Store, Tagger, datasets, load
from ripml.base.errors import DataError
from ripml.datasets import documents_given
from ripml.labels.concepts import Concept, Concepts

pytest.importorskip("Stemmer")

N = 300  # documents at the fit
WORLD = library()
TEXTS, TAGS, CONCEPTS = WORLD
CARRIED = sorted({tag for tags in TAGS[:N] for tag in tags})
UNSEEN = [id for id in CONCEPTS if id not in CARRIED]
NEW = UNSEEN[::2]  # not in the vocabulary at the fit
BEFORE = CONCEPTS.only(exclude=NEW)
MODELS: dict[str, dict[str, Any]] = {
    "kernel": {},
    "linear": {"kernel": "linear"},
    "sketch": {"ensemble": "gaussian", "n_dims": 40},
}


def model(name: str = "kernel") -> RIPML:
    return RIPML(random_state=0, **MODELS[name])


def naming(id: str) -> str:
    """A text that has the name of a concept."""
    return f"{CONCEPTS.name(id)}. {TEXTS[450]}. {CONCEPTS.name(id)}"


def all_suggested(answers: Any, text: str) -> dict[str, float]:
    if isinstance(answers, Tagger):
        return dict(answers.suggest(text, n=None))
    return dict(answers.model.suggest([text], answers.model.rules.but(n=None))[0])


@pytest.fixture(scope="module")
def fitted() -> dict[str, Tagger]:
    return {name: Tagger(model=model(name), vocabulary=BEFORE).fit(TEXTS[:N], TAGS[:N]) for name in MODELS}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "store"
    Store.create(folder, documents_given(TEXTS[:N], TAGS[:N]), model(), vocabulary=BEFORE).close()
    return folder


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copytree(template, tmp_path / "store")
    with Store.open(tmp_path / "store") as store:
        yield store


# -------------------------------------------------------------------------------------------------------------- Tagger


def test_a_concept_added_by_name_is_suggested_at_once_and_no_longer_when_it_is_removed(
    fitted: dict[str, Tagger],
) -> None:
    tagger, id = copied(fitted["kernel"]), NEW[0]
    old = all_suggested(tagger, TEXTS[450])
    assert id not in all_suggested(tagger, naming(id))
    tagger.set_vocabulary(CONCEPTS)
    found = all_suggested(tagger, naming(id))
    assert 0 < found[id] < 1
    # Of a text without a whole new name, only labels that it has a part of a new name of may be added.
    new = all_suggested(tagger, TEXTS[450])
    assert new.keys() - old.keys() <= set(NEW)
    assert {label: new[label] for label in old if label in new} == pytest.approx(
        {label: old[label] for label in old if label in new}
    )
    assert id in dict(tagger.suggest(naming(id), max_count=0))
    assert id not in dict(tagger.suggest(naming(id), n=None, min_count=1))
    why = next(why for why in tagger.explain(naming(id), n=None) if why.label == id)
    assert [match.name for match in why.matched] == [CONCEPTS.name(id)]
    assert why.named > 0
    tagger.set_vocabulary(BEFORE)
    assert id not in all_suggested(tagger, naming(id))


def test_concepts_that_leave_the_vocabulary_are_suggested_while_documents_carry_them(
    fitted: dict[str, Tagger],
) -> None:
    tagger, carried, unseen = copied(fitted["kernel"]), CARRIED[0], UNSEEN[1]
    assert {carried, unseen} <= all_suggested(tagger, f"{naming(carried)} {naming(unseen)}").keys()
    for vocabulary in (CONCEPTS.only(exclude=[carried, unseen]), None):
        tagger.set_vocabulary(vocabulary)
        assert unseen not in all_suggested(tagger, naming(unseen))
        assert carried in all_suggested(tagger, naming(carried))
    tagger.learn([naming(unseen)], [[unseen]])
    assert unseen in all_suggested(tagger, naming(unseen))
    tagger.forget([naming(unseen)])
    assert unseen not in all_suggested(tagger, naming(unseen))
    tagger.set_vocabulary(BEFORE)
    assert unseen in all_suggested(tagger, naming(unseen))


def test_a_concept_is_found_by_its_names_of_today(fitted: dict[str, Tagger]) -> None:
    tagger, unseen = copied(fitted["kernel"]), UNSEEN[1]
    other = Concepts.of([Concept(unseen, {"en": "Quorum sensing"})])
    tagger.set_vocabulary(BEFORE.updated(other))
    assert unseen in all_suggested(tagger, f"sensing a quorum. {TEXTS[450]}")
    assert unseen not in all_suggested(tagger, naming(unseen))
    tagger.set_vocabulary(BEFORE)
    assert unseen in all_suggested(tagger, naming(unseen))


def test_a_tagger_that_was_fitted_without_names_stays_as_it_is() -> None:
    tagger = Tagger().fit(TEXTS[:100], TAGS[:100])
    before = tagger.suggest_many(TEXTS[450:460])
    assert tagger.set_vocabulary(CONCEPTS).suggest_many(TEXTS[450:460]) == before


def test_later_names_are_saved_and_loaded(fitted: dict[str, Tagger], tmp_path: Path) -> None:
    tagger = copied(fitted["kernel"]).set_vocabulary(CONCEPTS.only(exclude=CARRIED[:1]))
    for compact in (False, True):
        tagger.save(tmp_path / "model", compact)
        assert load(tmp_path / "model").suggest_many(TEXTS[450:]) == tagger.suggest_many(TEXTS[450:])


def test_estimated_counts_are_near_to_those_of_a_fit_with_all_names(fitted: dict[str, Tagger]) -> None:
    """Names of independent words, as the estimate takes them to be: the precision of a name is that of a fit."""
    words = [f"{first}{second}" for first in ("ka", "lo", "mi", "su") for second in ("bar", "den", "fog", "gil")]
    rng = np.random.default_rng(0)
    texts = [" ".join([*rng.choice(words, 4, replace=False), f"topic{i % 7}"]) for i in range(280)]
    tags = [[f"t{i % 7}"] for i in range(280)]
    named = Concepts.of(Concept(f"t{i}", {"en": f"topic{i}"}) for i in range(7))
    more = named.updated(Concepts.of(Concept(f"w{i}", {"en": word}) for i, word in enumerate(words)))
    early, late = (Tagger(vocabulary=vocabulary).fit(texts, tags) for vocabulary in (more, named))
    late.set_vocabulary(more)
    counted = hits(early)
    evidence = late.documents_.features_of(texts).evidence
    names = late.documents_.model.classes_
    expected = {str(names[label]): float(n) for label, n in zip(evidence.labels, evidence.expected, strict=True)}
    for i in range(len(words)):
        assert expected[f"w{i}"] == pytest.approx(counted[f"w{i}"][0], rel=0.1)
    assert all(expected[f"t{i}"] == -1 for i in range(7)), "these are counted"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_learning_forgetting_and_vocabulary_changes_in_any_order_equal_learning_all_at_once(
    fitted: dict[str, Tagger], name: str, seed: int
) -> None:
    """Whatever the path, the tagger is that with the same frozen parts that has learnt what is there now."""
    rng, tagger = random.Random(seed), copied(fitted[name])
    known = dict(zip(TEXTS[:N], TAGS[:N], strict=True))
    vocabulary = BEFORE
    for number in range(24):
        some = rng.sample(sorted(CONCEPTS), 6)
        kind = rng.choice(["learn", "forget", "relabel", "add", "remove", "rename"]) if number > 5 else number
        if kind in ("learn", 0):
            new = [text for text in rng.sample(TEXTS[N:440], 4) if text not in known]
            lessons = {text: sorted({*TAGS[TEXTS.index(text)], rng.choice(NEW)}) for text in new}
            if lessons:
                tagger.learn(list(lessons), list(lessons.values()))
            known |= lessons
        elif kind in ("forget", 1):
            gone = rng.sample(sorted(known), 4)
            tagger.forget(gone)
            for text in gone:
                del known[text]
        elif kind in ("relabel", 2):
            other = {text: rng.sample(sorted(CONCEPTS), 2) for text in rng.sample(sorted(known), 3)}
            tagger.learn(list(other), list(other.values()))
            known |= other
        elif kind in ("add", 3):
            vocabulary = vocabulary.updated(Concepts.of(CONCEPTS[id] for id in some))
        elif kind in ("remove", 4):
            vocabulary = vocabulary.only(exclude=some)
        else:  # another name
            names = Concepts.of(Concept(id, {"en": CONCEPTS.name(rng.choice(some))}) for id in some)
            vocabulary = vocabulary.updated(names)
        tagger.set_vocabulary(vocabulary)
    reference = copied(fitted[name])
    empty: Any = reference.documents_.model
    reference.documents_ = replace(reference.documents_, model=empty.without_rows())
    reference._known = {}
    reference.set_vocabulary(vocabulary).learn(list(known), list(known.values()))
    assert hits(tagger) == hits(reference)
    asked = TEXTS[440:] + [naming(id) for id in NEW[:5]]
    found, expected = (all_scores(one, asked) for one in (tagger, reference))
    for row, other_row in zip(found, expected, strict=True):
        assert row == pytest.approx({label: other_row.get(label, 0) for label in row}, abs=1e-3)
    # Where a name is as it was at the fit, its counts are those of a fit on the documents of now.
    again = Tagger(model=model(name), vocabulary=BEFORE).fit(list(known), list(known.values()))
    assert {id: n for id, n in hits(again).items() if id in BEFORE} == {
        id: n for id, n in hits(tagger).items() if id in BEFORE
    }


def all_scores(tagger: Tagger, texts: list[str]) -> list[dict[str, float]]:
    """The scores of all labels of each text that have one."""
    return [dict(row) for row in tagger.suggest_many(texts, n=None)]


# --------------------------------------------------------------------------------------------------------------- Store


def test_a_store_suggests_concepts_that_no_document_carries_as_a_tagger_does(
    store: Store, fitted: dict[str, Tagger]
) -> None:
    asked = [naming(id) for id in UNSEEN[1::2][:5]] + TEXTS[450:]
    assert store.model.suggest(asked) == fitted["kernel"].suggest_many(asked)
    assert UNSEEN[1] in all_suggested(store, naming(UNSEEN[1]))
    store.set_vocabulary(CONCEPTS)
    tagger = copied(fitted["kernel"]).set_vocabulary(CONCEPTS)
    asked += [naming(id) for id in NEW]
    for row, other in zip(store.model.suggest(asked), tagger.suggest_many(asked), strict=True):
        assert dict(row) == pytest.approx(dict(other), abs=1e-5)
    assert all(id in all_suggested(store, naming(id)) for id in NEW[:5])


def test_labels_without_documents_are_renamed_merged_and_retired(store: Store, tmp_path: Path) -> None:
    store.set_vocabulary(CONCEPTS)
    counted, later = UNSEEN[1], NEW[0]
    for id in (counted, later):
        store.retire_label(id)
        assert id not in all_suggested(store, naming(id))
        store.reinstate_label(id)
        assert id in all_suggested(store, naming(id))
        before = all_suggested(store, naming(id))[id]
        store.rename_label(id, f"{id} renamed")
        assert all_suggested(store, naming(id))[f"{id} renamed"] == pytest.approx(before, abs=1e-5)
    with pytest.raises(DataError, match=r"there is a label 's0.. renamed' already; merge"):
        store.rename_label(CARRIED[0], f"{counted} renamed")
    store.merge_labels([f"{counted} renamed"], f"{later} renamed")
    merged = all_suggested(store, naming(counted))
    assert f"{counted} renamed" not in merged
    assert f"{later} renamed" in merged, "it has the names of both"
    answers = store.model.suggest([naming(counted), naming(later), *TEXTS[450:]])
    with Store.open(crash_image(tmp_path / "store")) as again:
        assert again.model.suggest([naming(counted), naming(later), *TEXTS[450:]]) == answers
    store.refit()
    assert f"{later} renamed" in all_suggested(store, naming(counted))


def test_compact_keeps_concepts_without_documents_and_drops_those_that_left(store: Store, tmp_path: Path) -> None:
    gone = UNSEEN[3]
    store.set_vocabulary(CONCEPTS.only(exclude=[gone, CARRIED[0]]))
    asked = [naming(id) for id in [gone, CARRIED[0], *NEW[:3]]] + TEXTS[450:]
    before = [dict(row) for row in store.model.suggest(asked)]
    store.compact()
    for row, other in zip(store.model.suggest(asked), before, strict=True):
        assert dict(row) == pytest.approx(other, abs=1e-3)
    labels = set(store.model.model.classes_)
    assert set(CONCEPTS) - labels == {gone}
    assert store.verify().ok
    store.set_vocabulary(CONCEPTS)
    assert gone in all_suggested(store, naming(gone)), "it is new again"
    answers = store.model.suggest(asked)
    store.close()
    with Store.open(tmp_path / "store") as again:
        assert again.model.suggest(asked) == answers
        assert again.check(full=True).ok


def test_a_refit_counts_the_names_of_now(store: Store, fitted: dict[str, Tagger]) -> None:
    store.set_vocabulary(CONCEPTS)
    store.refit()
    expected = Tagger(model=model(), vocabulary=CONCEPTS).fit(TEXTS[:N], TAGS[:N])
    asked = [naming(id) for id in NEW[:5]] + TEXTS[450:]
    for row, other in zip(store.model.suggest(asked), expected.suggest_many(asked), strict=True):
        assert dict(row) == pytest.approx(dict(other), abs=1e-4)
    store.learn([{"text": naming(NEW[0]), "labels": [NEW[0], CARRIED[0]]}])
    assert store.check(full=True).ok


def test_a_vocabulary_for_a_store_without_one_is_read_from_the_next_fit_on(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store", documents_given(TEXTS[:N], TAGS[:N]), model()) as store:
        store.set_vocabulary(CONCEPTS)
        assert NEW[0] not in all_suggested(store, naming(NEW[0]))
        store.refit()
        assert NEW[0] in all_suggested(store, naming(NEW[0]))


def test_random_changes_of_documents_and_vocabulary_are_the_same_by_every_path(store: Store, tmp_path: Path) -> None:
    """Writer, readers, and a store that was killed agree, and are the model that learns the documents of now."""
    rng, folder = random.Random(3), tmp_path / "store"
    asked = TEXTS[440:] + [naming(id) for id in NEW[:5]]

    def answers(one: Store) -> list[dict[str, float]]:
        return [dict(row) for row in one.model.suggest(asked, one.model.rules.but(n=None))]

    def check_same(one: Store) -> None:
        for row, other in zip(answers(one), answers(store), strict=True):
            assert row == pytest.approx({label: other.get(label, 0) for label in row}, abs=1e-4)

    def vocabulary() -> Concepts:
        return store.model.concepts or Concepts.of([])

    def concepts() -> list[str]:
        return rng.sample(sorted(CONCEPTS), 5)

    def learn() -> None:
        i = rng.randrange(N, 440)
        store.learn([{"text": TEXTS[i], "labels": [*TAGS[i], rng.choice(NEW)]}])

    def forget() -> None:
        store.forget(rng.sample(store.ids(), 2))

    def relabel() -> None:
        store.relabel({id: concepts()[:2] for id in rng.sample(store.ids(), 2)})

    def add() -> None:
        store.set_vocabulary(vocabulary().updated(Concepts.of(CONCEPTS[id] for id in concepts())))

    def remove() -> None:
        store.set_vocabulary(vocabulary().only(exclude=concepts()))

    def other_names() -> None:
        names = Concepts.of(Concept(id, {"en": CONCEPTS.name(rng.choice(NEW))}) for id in concepts())
        store.set_vocabulary(vocabulary().updated(names))

    def rename() -> None:
        label = rng.choice([label.name for label in store.labels(n=200)])
        store.rename_label(label, f"renamed {rng.random()}")

    def merge() -> None:
        one, other = rng.sample([label.name for label in store.labels(n=200)], 2)
        store.merge_labels([one], other)

    kinds = [learn, forget, relabel, add, remove, other_names, rename, merge]
    with Store.open(folder, readonly=True) as reader, Store.open(folder, readonly=True) as late:
        for number, kind in enumerate([*rng.sample(kinds, 8), *rng.sample(kinds, 8)]):
            kind()
            if number % 3 == 2:
                reader.refresh()
                check_same(reader)
            if number % 5 == 4:
                with Store.open(crash_image(folder)) as again:
                    check_same(again)
                    assert again.check(full=True).ok
            if number == 9:
                store.snapshot()
        late.refresh()
        check_same(late)
    assert store.check(full=True).ok


# ----------------------------------------------------------------------------------------------------- shell and server


def test_the_shell_adds_a_concept_that_is_suggested_at_once(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store.close()
    datasets.write_vocabulary(Concepts.of([CONCEPTS[NEW[0]]]), tmp_path / "more.csv")
    folder, text = tmp_path / "store", naming(NEW[0])

    def suggested(*options: Any) -> list[str]:
        out, _ = run(capfd, "suggest", folder, text, "--top", "100", "--json", *options)
        return [pair["label"] for pair in json.loads(out)["labels"]]

    assert NEW[0] not in suggested()
    run(capfd, "vocabulary", folder, "--add", tmp_path / "more.csv")
    assert NEW[0] in suggested("--max-count", "0")[:2]  # others are named in part
    assert set(suggested("--max-count", "0")) <= set(UNSEEN)
    assert NEW[0] not in suggested("--min-count", "1")
    out, _ = run(capfd, "explain", folder, text, "--max-count", "0", "--json")
    assert NEW[0] in [label["label"] for label in json.loads(out)["labels"]]
    summary = json.loads(run(capfd, "inspect", folder, "--json")[0])
    assert summary["labels_without_rows"] == len(UNSEEN) - len(NEW) + 1
    assert {"unseen", "rare", "frequent"} == summary["calibration_errors"].keys()
    rows = "".join(json.dumps({"text": t, "labels": tags}) + "\n" for t, tags in zip(TEXTS[N:], TAGS[N:], strict=True))
    (tmp_path / "test.jsonl").write_text(rows)
    report = json.loads(run(capfd, "evaluate", folder, tmp_path / "test.jsonl", "--json")[0])
    assert {"calibration error", "calibration error, unseen", "calibration error, rare"} <= report.keys()
    assert "calibration error, unseen" in run(capfd, "evaluate", folder, tmp_path / "test.jsonl")[0]


def test_a_concept_sent_to_the_server_is_suggested_at_once(store: Store) -> None:
    pytest.importorskip("ripml.server", reason="the extra `serve` is not installed")
    from test_server import client_of

    with client_of(store) as client:
        path, text = "/v1/stores/tiny", naming(NEW[0])

        def suggested(**rules: Any) -> list[str]:
            found = client.post(f"{path}/suggest", json={"text": text, "n": 100, **rules}).json()["labels"]
            batch = client.post(f"{path}/suggest/batch", json={"texts": [text], "n": 100, **rules}).json()
            assert [one["label"] for one in batch["results"][0]["labels"]] == [one["label"] for one in found]
            return [one["label"] for one in found]

        assert NEW[0] not in suggested()
        client.patch(f"{path}/vocabulary", json={"concepts": [CONCEPTS[NEW[0]].to_json()]})
        assert NEW[0] in suggested(max_count=0)[:2]  # others are named in part
        assert set(suggested(max_count=0)) <= set(UNSEEN)
        assert NEW[0] in suggested(max_count=None)
        assert NEW[0] not in suggested(min_count=1)
        explained = client.post(f"{path}/explain", json={"text": text, "max_count": 0}).json()["labels"]
        assert NEW[0] in [one["label"] for one in explained]
        assert client.post(f"{path}/suggest", json={"text": text, "max_count": -1}).status_code == 422
        assert client.get(path).json()["calibration_errors"].keys() == {"unseen", "rare", "frequent"}
        client.put(f"{path}/vocabulary", json={"concepts": []})
        assert suggested(max_count=0) == []


def test_a_store_answers_while_its_vocabulary_is_replaced(store: Store) -> None:
    """A version never changes: the model that a reader holds answers as before."""
    held = copy.copy(store.model)
    before = held.suggest([naming(NEW[0])])
    store.set_vocabulary(CONCEPTS)
    assert held.suggest([naming(NEW[0])]) == before
    assert np.array_equal(scores_of(held), scores_of(held))


def scores_of(model: Any) -> Any:
    return model.model.decision_function(model.features_of(TEXTS[450:])).toarray()
