"""Names of labels in texts: evidence for the labels that have examples, and all there is for those that have none."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from ripml import RIPML, Store, Tagger, load
from ripml.datasets import Dataset
from ripml.decoding.evidence import TEXT_SIGNALS, Evidence, FeatureRows
from ripml.decoding.names import NameModel
from ripml.labels.concepts import Concept, Concepts
from ripml.labels.vocabulary import Vocabulary
from ripml.tagging.words import LabelWords

pytest.importorskip("Stemmer")
pytest.importorskip("py3langid")

SYLLABLES = [a + b for a in "bdfgklmnprtvz" for b in ("ab", "ed", "if", "og", "um")]


def library(n: int = 500, n_labels: int = 40, seed: int = 0) -> tuple[list[str], list[list[str]], Concepts]:
    """Texts about subjects; most texts have the name of a subject, and some subjects have one text or none.

    Eight subjects share their topic. A text also has the name of a subject that it is not about.
    """
    random = np.random.default_rng(seed)
    words = [first + second for first in SYLLABLES for second in SYLLABLES]
    names = [f"{words[i % 17]} {words[100 + i]}" for i in range(3 * n_labels)]
    share = 1.0 / (1 + np.arange(2 * n_labels)) ** 0.7
    texts, tags = [], []
    for _ in range(n):
        subjects = random.choice(2 * n_labels, random.integers(1, 4), replace=False, p=share / share.sum())
        topic = [
            words[1000 + 7 * (int(subject) // 8) + int(k)] for subject in subjects for k in random.integers(0, 7, 4)
        ]
        said = [names[subject] for subject in subjects if random.random() < 0.7] + [names[random.integers(len(names))]]
        parts = topic + said + list(random.choice(words[2000:2300], 6))
        random.shuffle(parts)
        texts.append(". ".join(parts))
        tags.append([f"s{subject:03}" for subject in sorted(subjects)])
    return texts, tags, Concepts.of(Concept(f"s{i:03}", {"en": name}) for i, name in enumerate(names))


@pytest.fixture(scope="module")
def world() -> tuple[list[str], list[list[str]], Concepts]:
    return library()


@pytest.fixture(scope="module")
def tagger(world: Any) -> Tagger:
    texts, tags, concepts = world
    return Tagger(vocabulary=concepts).fit(texts[:400], tags[:400])


def copied(tagger: Tagger) -> Tagger:
    """A tagger that shares nothing with this one."""
    with tempfile.TemporaryDirectory() as folder:
        tagger.save(folder + "/model")
        return Tagger.load(folder + "/model")


def scores(tagger: Tagger, texts: list[str]) -> Any:
    """All scores, with the labels in the order of their names."""
    fitted = tagger.documents_
    found = fitted.model.decision_function(fitted.features_of(texts)).toarray()
    return found[:, np.argsort(fitted.model.classes_.astype(str))]


def hits(tagger: Tagger) -> dict[str, tuple[int, int]]:
    model: Any = tagger.documents_.model
    names = model.model_.decoder.names
    return {
        label: (int(n), int(right))
        for label, n, right in zip(model.classes_, names.hits, names.right, strict=True)
        if n
    }


def test_names_make_answers_better(world: Any, tagger: Tagger) -> None:
    texts, tags, _ = world
    without = Tagger().fit(texts[:400], tags[:400])
    found, before = (one.evaluate(texts[400:], tags[400:]) for one in (tagger, without))
    assert found["P@1"] > before["P@1"] + 0.02
    assert found["nDCG@5"] > before["nDCG@5"] + 0.02


def test_a_label_without_a_document_is_suggested_where_its_name_stands(world: Any, tagger: Tagger) -> None:
    _, tags, concepts = world
    seen = {tag for some in tags[:400] for tag in some}
    unseen = [id for id in concepts if id not in seen]
    assert unseen
    for id in unseen[:10]:
        text = f"{concepts.name(id)}. {concepts.name(id)} once more"
        suggested = dict(tagger.suggest(text, n=None))
        assert id in suggested
        assert id not in dict(tagger.suggest(text, n=None, min_count=1))
        assert dict(tagger.suggest(text, n=None, max_count=0)) == {
            label: score for label, score in suggested.items() if label not in seen
        }
        assert id not in dict(tagger.suggest("something else", n=None))


def test_a_vocabulary_without_names_changes_nothing(world: Any) -> None:
    texts, tags, concepts = world
    nameless = Concepts.of(Concept(id) for id in concepts)
    taggers = [Tagger(vocabulary=one).fit(texts[:250], tags[:250]) for one in (None, nameless)]
    one, other = (tagger.documents_.model.decision_function(tagger.documents_.features_of(texts)) for tagger in taggers)
    assert np.array_equal(one.toarray(), other.toarray())


def test_a_decoder_that_reads_no_evidence_is_fitted_as_without_names(world: Any) -> None:
    texts, tags, concepts = world
    model = RIPML.paper(n_dims=30, n_neighbors=3, random_state=0)
    named, plain = (Tagger(model=model, vocabulary=one).fit(texts[:100], tags[:100]) for one in (concepts, None))
    assert named.suggest_many(texts[100:110]) == plain.suggest_many(texts[100:110])


def test_learnt_then_forgotten_equals_never_learnt(world: Any, tagger: Tagger) -> None:
    texts, tags, _ = world
    other = copied(tagger)
    other.learn(texts[400:420], tags[400:420])
    assert hits(other) != hits(tagger)
    other.forget(texts[400:420])
    assert hits(other) == hits(tagger)
    np.testing.assert_allclose(scores(other, texts[420:]), scores(tagger, texts[420:]), atol=1e-3)


def test_relabelled_and_back_is_as_before(world: Any, tagger: Tagger) -> None:
    texts, tags, _ = world
    other = copied(tagger)
    other.learn(texts[:5], [["s000"]] * 5)
    assert hits(other) != hits(tagger)
    other.learn(texts[:5], tags[:5])
    assert hits(other) == hits(tagger)


def test_counts_are_those_of_a_fit_on_all_documents(world: Any, tagger: Tagger) -> None:
    texts, tags, concepts = world
    other = copied(tagger).learn(texts[400:], tags[400:])
    assert hits(other) == hits(Tagger(vocabulary=concepts).fit(texts, tags))


def test_one_by_one_equals_batch_on_any_number_of_threads(world: Any, tagger: Tagger) -> None:
    texts, _, _ = world
    together = scores(tagger, texts[400:430])
    alone = np.vstack([scores(tagger, [text]) for text in texts[400:430]])
    np.testing.assert_allclose(alone, together, atol=1e-5)
    other = copied(tagger)
    other.documents_.model.set_params(n_jobs=1)
    assert np.array_equal(scores(other, texts[400:430]), together)


def test_saved_equals_loaded(world: Any, tagger: Tagger, tmp_path: Path) -> None:
    texts, tags, _ = world
    tagger.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert np.array_equal(scores(loaded, texts[400:]), scores(tagger, texts[400:]))
    assert loaded.suggest_many(texts[400:]) == tagger.suggest_many(texts[400:])
    loaded.learn(texts[400:410], tags[400:410])
    assert hits(loaded) == hits(copied(tagger).learn(texts[400:410], tags[400:410]))


def test_explanations_show_the_names_and_their_places(tagger: Tagger, world: Any) -> None:
    _, _, concepts = world
    first, second = concepts.name("s000").split()
    text = f"{second} with {first}"
    why = next(why for why in tagger.explain(text, n=None) if why.label == "s000")
    assert [(found.name, [text[a:b] for a, b in found.places]) for found in why.matched] == [
        (f"{first} {second}", [second, first])
    ]


def test_a_store_counts_names_exactly_and_follows_renamed_labels(world: Any, tmp_path: Path) -> None:
    texts, tags, concepts = world
    names = sorted({tag for some in tags for tag in some})
    columns = {name: column for column, name in enumerate(names)}
    Y = scipy.sparse.csr_array(
        [[1.0 if name in some else 0.0 for name in names] for some in tags[:300]], dtype=np.float32
    )
    data = Dataset(X=None, Y=Y, label_names=names, texts=texts[:300])
    with Store.create(tmp_path / "store", data, RIPML(random_state=0), vocabulary=concepts) as store:

        def counts() -> tuple[list[int], list[int]]:
            model: Any = store.model.model
            names = model.model_.decoder.names
            return names.hits.tolist(), names.right.tolist()

        before = counts()
        assert sum(before[0]) > sum(before[1]) > 0
        known = [tag for tag in tags[400] if tag in names[:20]] or ["s000"]
        ids = store.learn([{"text": texts[400], "labels": known}])
        assert counts() != before
        store.forget(ids)
        assert counts() == before
        column = columns["s000"]
        store.rename_label("s000", "renamed")
        evidence = store.model.features_of([concepts.name("s000")]).evidence
        assert store.model.model.classes_[column] == "renamed"
        assert column in evidence.labels.tolist()
        answers = store.model.suggest(texts[400:420])
    with Store.open(tmp_path / "store") as store:
        assert store.model.suggest(texts[400:420]) == answers


def test_evidence_of_texts() -> None:
    concepts = [Concept("a", {"en": "red tea"}, {"en": ("chai", "tea")}), Concept("b", {"en": "tea"}), Concept("c")]
    words = LabelWords(concepts)
    vocabulary = Vocabulary.of(np.array(["b", "x", "a", None], object)[:-1])
    evidence = words.training_evidence(["none", "Some tea, so red", "chai tea chai"], vocabulary)
    assert evidence.ends.tolist() == [0, 0, 2, 4]
    assert evidence.labels.tolist() == [0, 2, 0, 2]
    found = dict(zip(TEXT_SIGNALS, evidence.signals.T.tolist(), strict=True))
    assert found["count"] == [1, 2, 1, 3]
    assert found["n_words"] == [1, 2, 1, 1]
    assert found["shared"] == [2, 1, 2, 1]
    assert found["preferred"] == [1, 1, 1, 0]
    assert found["early"] == pytest.approx([0.75, 0.75, 2 / 3, 1])
    assert found["near"] == pytest.approx([1, 1, 1, 1])
    assert found["cover"] == pytest.approx([1, 1, 1, 1])


def test_some_words_of_a_name_are_evidence() -> None:
    names = {"a": "red tea", "b": "tea", "c": "green tea leaf", "d": "iron"}
    words = LabelWords([Concept(id, {"en": name}) for id, name in names.items()])
    vocabulary = Vocabulary.of(np.array(list(names), object))
    evidence = words.training_evidence(["Tea. Red cups."], vocabulary)
    assert evidence.labels.tolist() == [0, 1, 2]
    assert evidence.whole.tolist() == [False, True, False]
    found = dict(zip(TEXT_SIGNALS, evidence.signals.T.tolist(), strict=True))
    assert found["count"] == found["early"] == found["near"] == [0, 1, 0]
    assert found["spread"] == [0, 0, 0]
    assert found["n_words"] == [2, 1, 3]
    assert found["cover"][:2] == pytest.approx([1, 1]), "its words may stand in different sentences"
    assert 0 < found["cover"][2] < 0.5
    assert found["likeness"][0] > found["likeness"][2] > 0
    counted = NameModel.empty(4).changed(evidence, scipy.sparse.csr_array([[1, 0, 1, 0]]), 1)
    assert counted.hits.tolist() == [0, 1, 0, 0]
    assert counted.right.tolist() == [0, 0, 0, 0]


def test_a_label_without_a_document_is_suggested_by_some_words_of_its_name(world: Any, tagger: Tagger) -> None:
    _, tags, concepts = world
    seen = {tag for some in tags[:400] for tag in some}
    unseen = [id for id in concepts if id not in seen]
    for id in unseen[:10]:
        name = concepts.name(id)
        text = f"no {name.split()[1]}s"
        assert id in dict(tagger.suggest(text, n=None, max_count=0))
        why = next(why for why in tagger.explain(text, n=None) if why.label == id)
        assert why.named > 0
        assert [(found.name, found.places) for found in why.matched] == [(name, [(3, len(text))])]


def test_rows_of_evidence() -> None:
    signals = np.arange(4 * len(TEXT_SIGNALS), dtype=np.float32).reshape(4, -1)
    evidence = Evidence(np.array([0, 2, 2, 3, 4]), np.array([1, 5, 0, 2]), signals)
    for rows in (slice(1, 3), slice(3, 1), np.array([3, 0, 0]), np.array([True, False, True, False]), [2]):
        some, numbers = evidence[rows], np.arange(4)[rows]
        assert len(some) == len(numbers)
        for i, number in enumerate(numbers.tolist()):
            mine, whole = slice(*some.ends[i : i + 2]), slice(*evidence.ends[number : number + 2])
            assert some.labels[mine].tolist() == evidence.labels[whole].tolist()
            assert np.array_equal(some.signals[mine], evidence.signals[whole])
    assert evidence.places_of(np.array([[5, 0, -1], [1, 5, 2], [0, -1, 0], [1, 2, 3]])).tolist() == [
        [1, -1, -1],
        [-1, -1, -1],
        [2, -1, 2],
        [-1, 3, -1],
    ]
    assert FeatureRows(np.eye(4), evidence)[2:].shape == (2, 4)


def test_a_left_out_row_is_taken_off_the_counts() -> None:
    """Without row i the counts are those of the other rows, for each label that has a name in its text."""
    random = np.random.default_rng(0)
    named = scipy.sparse.csr_array(random.random((30, 6)) < 0.4)
    Y = scipy.sparse.csr_array((random.random((30, 6)) < 0.4).astype(np.float32))
    evidence = Evidence(
        named.indptr.astype(np.int64),
        named.indices.astype(np.int64),
        random.integers(0, 2, (named.nnz, len(TEXT_SIGNALS))).astype(np.float32),
    )
    model, frequency = NameModel.empty(6).changed(evidence, Y, 1), np.asarray(Y.sum(axis=0), np.int64)
    for i in np.flatnonzero(np.diff(Y.indptr)).tolist():
        others = np.array([j for j in range(30) if j != i])
        without = NameModel.empty(6).changed(evidence[others], Y[others], 1)
        found = model.signals(evidence[[i]], frequency, Y[[i]])
        assert found["hits"].tolist() == without.hits[evidence[[i]].labels].tolist()
        taken_back = model.changed(evidence[[i]], Y[[i]], -1)
        assert taken_back.hits.tolist() == without.hits.tolist()
        assert taken_back.right.tolist() == without.right.tolist()


@pytest.mark.parametrize("settings", [{}, {"ensemble": "gaussian", "n_dims": 30}, {"kernel": "linear"}])
def test_shares_add_up_to_the_score_also_of_labels_without_a_document(world: Any, settings: dict[str, Any]) -> None:
    texts, tags, concepts = world
    model = RIPML(random_state=0, **settings)
    tagger = Tagger(model=model, vocabulary=concepts).fit(texts[:250], tags[:250])
    seen = {tag for some in tags[:250] for tag in some}
    unseen = next(id for id in concepts if id not in seen)
    explained = tagger.explain(f"{texts[400]}. {concepts.name(unseen)}", n=None, n_examples=10_000, n_features=10_000)
    assert unseen in [why.label for why in explained]
    for why in explained:
        shares = [*(example.share for example in why.examples), why.others, why.regression, why.named]
        assert min(shares) >= 0
        assert sum(shares) == pytest.approx(why.score, rel=1e-6, abs=1e-9)
        if why.label == unseen:
            assert why.value == 0
            assert why.named > 0


# -------------------------------------------------------------------------------------------------- several languages

_NAMES = {
    "en": "tea coffee bridge tunnel harvest weather forest river island castle die museum engine mirror",
    "de": "Tee Kaffee Brücke Tunnel Ernte Wetter Wald Fluss Insel Burg Würfel Museum Motor Spiegel",
}
SUBJECTS = {language: names.split() for language, names in _NAMES.items()}
SENTENCES = {
    "en": "The report shows how the {} was seen by all those who live with the {} in this part of the country.",
    "de": "Der Bericht zeigt, wie die Menschen in diesem Teil des Landes mit {} leben und was sie von {} halten.",
}


def bilingual_library() -> tuple[list[str], list[list[str]], Concepts]:
    """Texts in English or German with the names of two subjects in that language; "die" is an English name."""
    random = np.random.default_rng(0)
    texts, tags = [], []
    for number in range(120):
        language = ("en", "de")[random.integers(2)]
        pair = random.choice(len(SUBJECTS["en"]), 2, replace=False).tolist()
        said = SENTENCES[language].format(*(SUBJECTS[language][subject] for subject in pair))
        texts.append(f"{said} {number}")  # no text twice
        tags.append([f"s{subject:02}" for subject in pair])
    names = zip(*SUBJECTS.values(), strict=True)
    concepts = (Concept(f"s{i:02}", dict(zip(SUBJECTS, pair, strict=True))) for i, pair in enumerate(names))
    return texts, tags, Concepts.of(concepts)


def test_evidence_and_explanations_are_those_of_the_language_of_a_text() -> None:
    _, _, concepts = bilingual_library()
    words = LabelWords(concepts.values())
    vocabulary = Vocabulary.of(np.array(list(concepts), object))
    german, english = SENTENCES["de"].format("Tee", "Burgen"), SENTENCES["en"].format("die", "castle")
    evidence = words.training_evidence([german, english, "die"], vocabulary)
    assert [vocabulary.names[label] for label in evidence.labels] == ["s00", "s09", "s09", "s10", "s10"]
    assert evidence.ends.tolist() == [0, 2, 4, 5]
    for row, text in enumerate([german, english, "die"]):
        found = {vocabulary.names[label] for label in evidence.labels[slice(*evidence.ends[row : row + 2])]}
        assert {id for id in concepts if words.matched(text, id)} == found
    assert [name.name for name in words.matched(german, "s09")] == ["Burg"]


def test_a_name_that_came_later_is_looked_for_in_texts_in_its_language() -> None:
    _, _, concepts = bilingual_library()
    words = LabelWords(concepts.values()).with_vocabulary(
        concepts.updated(Concepts.of([Concept("new", {"en": "was"})])), None
    )
    assert words.later_ids == ["new"]
    assert [name.name for name in words.matched(SENTENCES["en"], "new")] == ["was"]
    assert words.matched(SENTENCES["de"], "new") == []


def test_learnt_then_forgotten_equals_never_learnt_with_names_in_two_languages() -> None:
    texts, tags, concepts = bilingual_library()
    tagger = Tagger(vocabulary=concepts).fit(texts[:90], tags[:90])
    other = copied(tagger).learn(texts[90:], tags[90:])
    assert hits(other) == hits(Tagger(vocabulary=concepts).fit(texts, tags))
    other.forget(texts[90:])
    assert hits(other) == hits(tagger)
    cast = [text for text in texts[:90] if "Würfel" in text or ("die" in text.split() and "the" in text.split())]
    assert hits(tagger)["s10"][0] == len(cast), "no German article is the English name"
    np.testing.assert_allclose(scores(other, texts), scores(tagger, texts), atol=1e-3)


def test_documents_count_the_same_after_the_last_name_in_a_language_is_gone(tmp_path: Path) -> None:
    concepts = Concepts.of(
        [Concept("c0", {"en": "die"}), Concept("c1", {"de": "Dichter"}), Concept("c2", {"en": "sing"})]
    )
    texts = [
        "Der Dichter und die Blumen auf der Wiese sind nicht sehr alt geworden",
        "Ein Dichter hat die Stadt am Abend wieder nicht gesehen, sagte er",
        "The old men sing and die in the house on the hill behind the town",
        "They sing in the morning and in the evening with all the other birds",
    ]
    tags = [["c1"], ["c1", "c2"], ["c0", "c2"], ["c2"]]
    tagger = Tagger(vocabulary=concepts).fit(texts, tags)
    words = tagger.documents_.words
    assert words is not None
    assert words.languages == ["de", "en"]
    assert words.renamed({"c1": None}).languages == ["de", "en"]
    merged = words.renamed({"c1": None}).with_vocabulary(concepts.only(exclude=["c1"]), None)
    loaded = LabelWords.of(Concepts.from_json_lines(merged.to_json_lines()).values(), None, merged.languages)
    assert loaded is not None
    vocabulary = Vocabulary.of(np.array(["c0", "c2"], object))
    one, other = (some.training_evidence(texts, vocabulary) for some in (merged, loaded))
    np.testing.assert_array_equal(one.ends, other.ends)
    np.testing.assert_array_equal(one.labels, other.labels)
    assert copied(tagger).documents_.words.languages == ["de", "en"]  # type: ignore[union-attr]


# ----------------------------------------------------------------------------------------------------------- relatives


def test_a_concept_is_not_its_own_relative() -> None:
    words = LabelWords([Concept("c1", {"en": "tea"}, broader=("c1", "unknown"))])
    evidence = words.training_evidence(["red tea"], Vocabulary.of(np.array(["c1"], object)))
    assert evidence.signals[:, TEXT_SIGNALS.index("relatives")].tolist() == [0]


def test_relatives_are_counted_whose_whole_names_stand_in_the_text() -> None:
    concepts = Concepts.of(
        [
            Concept("bank", {"en": "bank"}, related=("loan",)),
            Concept("shore", {"en": "bank"}, broader=("river",)),
            Concept("loan", {"en": "loan"}),
            Concept("river", {"en": "river"}),
            Concept("delta", {"en": "river delta"}, broader=("river",)),
        ]
    )
    words = LabelWords(concepts.values())
    labels = Vocabulary.of(np.array(sorted(concepts), object))
    evidence = words.training_evidence(["A bank gives a loan", "A bank of the river"], labels)
    relatives = evidence.signals[:, TEXT_SIGNALS.index("relatives")]
    found = zip(evidence.rows, evidence.labels, relatives, strict=True)
    rows = {(int(row), str(labels.names[label])): n for row, label, n in found}
    assert rows[0, "bank"] == rows[0, "loan"] == 1
    assert rows[0, "shore"] == 0
    assert rows[1, "shore"] == rows[1, "delta"] == 1
    assert rows[1, "river"] == 1  # the delta does not stand there as a whole
    assert rows[1, "bank"] == 0


def ambiguous_world(n: int, seed: int) -> tuple[list[str], list[list[str]], Concepts]:
    """Texts with a name that two concepts share; which one is meant is told by the name of a related concept.

    Each pair of concepts has few texts, so that their names are what can be learnt from.
    """
    random = np.random.default_rng(seed)
    words = [first + second for first in SYLLABLES for second in SYLLABLES]
    concepts, texts, tags = [], [], []
    for i in range(500):
        for kind in "ab":
            concepts.append(Concept(f"{i}{kind}", {"en": words[i]}, related=(f"{i}{kind}x",)))
            concepts.append(Concept(f"{i}{kind}x", {"en": words[1000 + 2 * i + (kind == "b")]}))
    for _ in range(n):
        i, kind = int(random.integers(500)), "ab"[int(random.integers(2))]
        said = [words[i], words[1000 + 2 * i + (kind == "b")], *random.choice(words[3000:3200], 8)]
        random.shuffle(said)
        texts.append(" ".join(said))
        tags.append([f"{i}{kind}"])
    return texts, tags, Concepts.of(concepts)


def with_new_concepts() -> tuple[list[str], list[list[str]], list[str], list[list[str]], Concepts]:
    """Texts and tags to learn from, and others about concepts that none of them carries."""
    texts, tags, concepts = ambiguous_world(1500, 0)
    is_new = [int(tag[:-1]) >= 350 for (tag,) in tags]
    parts = [[[one[i] for i, new in enumerate(is_new) if new == wanted] for one in (texts, tags)] for wanted in (0, 1)]
    return (*parts[0], *parts[1], concepts)  # type: ignore[return-value]


def test_relatives_tell_concepts_of_the_same_name_apart() -> None:
    texts, tags, asked, truth, concepts = with_new_concepts()

    def right(concepts: Concepts) -> float:
        tagger = Tagger(vocabulary=concepts).fit(texts, tags)
        suggested = tagger.suggest_many(asked, n=1, max_count=0)
        return float(np.mean([row[0][0] in labels for row, labels in zip(suggested, truth, strict=True)]))

    alone = Concepts.of(Concept(concept.id, concept.names) for concept in concepts.values())
    assert right(concepts) > 0.9
    assert right(alone) < 0.7


def test_relatives_follow_the_vocabulary_without_a_fit_and_are_the_same_after_loading() -> None:
    texts, tags, asked, _, concepts = with_new_concepts()
    tagger = Tagger(vocabulary=concepts).fit(texts, tags)
    before = scores(tagger, asked)
    np.testing.assert_array_equal(scores(copied(tagger), asked), before)
    alone = Concepts.of(Concept(concept.id, concept.names) for concept in concepts.values())
    without = copied(tagger).set_vocabulary(alone)
    assert abs(scores(without, asked) - before).max() > 0.01
    np.testing.assert_array_equal(scores(without.set_vocabulary(concepts), asked), before)
