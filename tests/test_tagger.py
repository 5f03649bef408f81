"""Tagger: texts in, tags out; what is learnt and forgotten, what is suggested, what is saved."""

from __future__ import annotations

import functools
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

import ripml
from ripml import RIPML, Tagger
from ripml.base.errors import ConcurrentChangeError, DataError, ModelFolderError, ParameterError
from ripml.baselines import Popularity
from ripml.tagging.documents import DocumentModel
from ripml.text import Encoder, TfIdf

TOPICS = {
    "fruit": "apple pear plum cherry ripe sweet orchard peel juice tree",
    "weather": "rain cloud storm wind snow sunny forecast thunder frost fog",
    "money": "bank loan credit interest debt budget tax price profit invoice",
    "sport": "match goal team player score league coach referee stadium season",
}


def corpus(n: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Texts of one or two topics each."""
    random = np.random.default_rng(seed)
    texts, tags = [], []
    for row in range(n):
        topics = [list(TOPICS)[i] for i in random.choice(len(TOPICS), 1 + int(random.random() < 0.3), replace=False)]
        words = [word for topic in topics for word in random.choice(TOPICS[topic].split(), 6)]
        texts.append(f"Text {row}: {' '.join(random.permutation(words))}.")
        tags.append(topics)
    return texts, tags


@functools.cache
def fitted() -> Tagger:
    return Tagger(model=RIPML(n_dims=16, random_state=0)).fit(*corpus(80))


def same(one: list[list[tuple[str, float]]], other: list[list[tuple[str, float]]], tolerance: float = 0) -> bool:
    """Whether the same tags have the same scores, up to a tolerance in which they may have changed places."""
    if not tolerance:
        return one == other
    pairs = zip(one, other, strict=True)
    return all(
        max((abs(dict(a).get(tag, 0) - dict(b).get(tag, 0)) for tag in {*dict(a), *dict(b)}), default=0) < tolerance
        for a, b in pairs
    )


def test_the_topic_of_a_new_text_is_suggested_first() -> None:
    for topic, words in TOPICS.items():
        best = fitted().suggest(f"About {words[:30]}")
        assert best[0][0] == topic
        assert [score for _, score in best] == sorted((score for _, score in best), reverse=True)
        assert all(type(tag) is str and type(score) is float for tag, score in best)


def test_suggestions_one_by_one_equal_those_of_many_texts() -> None:
    texts = corpus(12, 1)[0]
    tagger = Tagger(model=RIPML(decoder="sketch", random_state=0)).fit(*corpus(60))  # without trees, whose values jump
    assert same([tagger.suggest(text) for text in texts], tagger.suggest_many(texts), 1e-5)


def test_a_text_without_known_words_has_no_tags() -> None:
    assert fitted().suggest_many(["", "   ", "?!", "qqq"]) == [[], [], [], []]


@pytest.mark.parametrize("form", ["tuples", "pandas", "polars", "dicts", "jsonl", "csv", "parquet", "hugging face"])
def test_every_form_of_input_gives_the_same_tagger(form: str, tmp_path: Path) -> None:
    texts, tags = corpus(80)
    columns: dict[str, Any] = {"text": texts, "labels": tags}
    records = [{"text": text, "labels": names} for text, names in zip(texts, tags, strict=True)]

    class HuggingFace:
        """The part of its Dataset that ripml uses."""

        column_names = ("text", "labels")

        def __getitem__(self, name: str) -> Any:
            return columns[name]

        def __len__(self) -> int:
            return len(texts)

    source: Any
    if form == "tuples":
        source = None
    elif form == "pandas":
        source = pandas.DataFrame(columns)
    elif form == "polars":
        source = polars.DataFrame(columns)
    elif form == "dicts":
        source = iter(records)
    elif form == "hugging face":
        source = HuggingFace()
    else:
        source = tmp_path / f"rows.{form}"
        if form == "jsonl":
            source.write_text("\n".join(map(json.dumps, records)))
        elif form == "csv":
            polars.DataFrame({"text": texts, "labels": ["|".join(names) for names in tags]}).write_csv(source)
        else:
            polars.DataFrame(columns).write_parquet(source)
    model = RIPML(n_dims=16, random_state=0)
    tagger = Tagger(model=model).fit(tuple(texts), tuple(tags)) if source is None else Tagger(model=model).fit(source)
    queries = corpus(10, 2)[0]
    assert tagger.suggest_many(queries) == fitted().suggest_many(queries)


def test_repeated_texts_count_once_with_all_their_tags_and_empty_ones_do_not() -> None:
    texts, tags = corpus(80)
    again = Tagger(model=RIPML(n_dims=16, random_state=0)).fit(
        [*texts, f"  {texts[0]}\n", "", " \t"], [tags[0][:1], *tags[1:], tags[0], ["sport"], []]
    )
    assert (again.n_repeated_, again.n_empty_, again.n_documents_) == (1, 2, 80)
    queries = corpus(10, 2)[0]
    assert again.suggest_many(queries) == fitted().suggest_many(queries)
    with pytest.raises(DataError, match=r"^there is nothing to learn from: all texts are empty; text=… names another"):
        Tagger().fit(["", " "], [["a"], ["b"]])


def test_learning_is_fitting_and_forgetting_is_never_having_learnt() -> None:
    texts, tags = corpus(80)
    settings = RIPML(n_dims=16, ridge=0.5, kernel="linear", random_state=0)
    features = TfIdf(tokens="any", letters=4).fit(texts)
    part = Tagger(Frozen(features), settings).fit(texts[:60], tags[:60])
    frozen = part.documents_.model
    queries = corpus(10, 2)[0]
    before = part.suggest_many(queries)
    part.learn(texts[60:], tags[60:])
    assert part.n_documents_ == 80
    reference = frozen.without_rows().partial_fit(features.transform(texts), tags)
    asked = features.transform(queries)
    wanted = part.documents_.rules.suggestions(reference, reference.decision_function(asked), asked)
    assert same(part.suggest_many(queries), wanted, 1e-4)
    assert not same(part.suggest_many(queries), before, 1e-4)
    assert same(part.forget(texts[60:]).suggest_many(queries), before, 1e-4)
    assert part.n_documents_ == 60


class Frozen:
    """Features that were fitted already, as an encoder."""

    def __init__(self, features: TfIdf) -> None:
        self.features = features

    def encode(self, texts: list[str]) -> Any:
        return self.features.transform(texts).toarray()


def test_a_known_text_that_is_learnt_again_gets_the_new_tags() -> None:
    texts, tags = corpus(40)
    tagger = Tagger(model=RIPML.linear(random_state=0)).fit(texts, tags)
    tagger.learn([texts[0], "A new text of apple and pear"], [["entirely new"], ["fruit"]])
    assert tagger.n_documents_ == 41
    assert "entirely new" in dict(tagger.suggest(texts[0]))
    assert "entirely new" in tagger.tags_
    with pytest.raises(DataError, match="none of the 1 texts has a tag; use `forget`"):
        tagger.learn([texts[0]])
    tagger.learn([texts[0], texts[1]], [[], tags[1]])
    assert tagger.n_documents_ == 40
    with pytest.raises(DataError, match="was never learnt, or was forgotten already"):
        tagger.forget(texts[:1])
    with pytest.raises(DataError, match=r"was learnt with the tags .*, and not with \('nonsense',\)"):
        tagger.forget(texts[1:2], [["nonsense"]])
    assert tagger.forget(texts[1:2], tags[1:2]).n_documents_ == 39
    assert tagger.forget(texts[2]).n_documents_ == 38


def test_rules_determine_what_is_suggested() -> None:
    text = f"{TOPICS['fruit']} {TOPICS['money'][:12]}"
    everything = dict(fitted().suggest(text, n=None))
    assert len(everything) > 2
    assert len(fitted().suggest(text, n=2)) == 2
    best = max(everything.values())
    assert dict(fitted().suggest(text, threshold=best)) == {tag: s for tag, s in everything.items() if s >= best}
    assert "fruit" not in dict(fitted().suggest(text, stop_labels=["fruit"], n=None))
    assert fitted().suggest("qqq", stop_labels=["fruit"]) == []
    assert set(dict(fitted().suggest(text, allowed_labels=["money"]))) == {"money"}
    assert fitted().suggest(text, threshold="auto", n=None) == [
        pair for pair in fitted().suggest(text, n=None) if pair[1] >= fitted().documents_.model.threshold_
    ]
    tagger = Tagger(model=RIPML.linear(random_state=0)).fit(*corpus(40))
    tagger.learn(["Plum jam"], [["jam"]])
    assert "jam" in dict(tagger.suggest("Plum jam", n=None))
    tagger.set_params(min_count=2)
    assert "jam" not in dict(tagger.suggest("Plum jam", n=None))
    tagger.learn(["More jam, of cherry"], [["jam"]])
    assert "jam" in dict(tagger.suggest("Plum jam", n=None))


def test_wrong_arguments_are_reported_in_one_sentence() -> None:
    bad: Any
    for bad in ({"n": 0}, {"threshold": "high"}, {"stop_labels": "fruit"}, {"min_count": -1}, {"threshold": np.nan}):
        with pytest.raises(ParameterError, match=f"`{next(iter(bad))}` must be"):
            fitted().suggest("apple", **bad)
    with pytest.raises(ParameterError, match="`top` is not a rule for suggestions; the rules are n, threshold"):
        fitted().suggest("apple", top=3)
    with pytest.raises(DataError, match="a text is needed; got list"):
        fitted().suggest(["apple"])  # type: ignore[arg-type]
    with pytest.raises(NotFittedError, match="this Tagger has not been fitted"):
        Tagger().suggest("apple")
    assert not hasattr(Tagger(), "tags_")
    for nothing in ([], [" "]):
        with pytest.raises(DataError, match="there is no text to be forgotten"):
            fitted().forget(nothing)
    with pytest.raises(ParameterError, match="`model` must be an estimator of ripml; got 'x'"):
        Tagger(model="x").fit(*corpus(5))
    for indicator in (np.eye(5), csr_array(np.eye(5))):
        with pytest.raises(DataError, match="got a matrix, whose columns have no names"):
            Tagger().fit(corpus(5)[0], indicator)
    for bad in ("x", 0):
        with pytest.raises(ParameterError, match="`n_features` must be an integer ≥ 1"):
            fitted().explain("apple", n_features=bad)
    with pytest.raises(
        ParameterError, match="`features` must be 'auto', 'tfidf', 'title', 'doc2vec', the name of an enc"
    ):
        Tagger("bm25").fit(*corpus(5))
    with pytest.raises(ParameterError, match="must have `encode` or `transform`"):
        Tagger(object()).fit(*corpus(5))
    with pytest.raises(ParameterError, match="`model` must be an estimator of ripml"):
        Tagger(model=TruncatedSVD()).fit(*corpus(5))
    with pytest.raises(ParameterError, match="Popularity cannot learn or forget texts after its fit"):
        Tagger(model=Popularity()).fit(*corpus(5)).learn(["a"], [["b"]])


def test_explanations_add_up_and_point_into_the_text() -> None:
    text = "A ripe APPLE &amp; a pear.<br>Then rain!"
    found = fitted().explain(text, n=2)
    assert [(why.label, why.score) for why in found] == fitted().suggest(text, n=2)
    for why in found:
        assert sum(example.share for example in why.examples) + why.others + why.regression == pytest.approx(why.score)
    why = next(why for why in found if why.label == "fruit")
    marked = {text[start:end]: pull for start, end, pull in why.spans}
    assert marked["APPLE"] > 0
    assert marked["pear"] > 0
    assert not any("<" in word or "&" in word for word in marked)
    assert why.features[0][0] in fitted().documents_.columns  # type: ignore[operator]


def test_places_add_up_to_the_pull_of_all_features() -> None:
    text = "apple apple pear rain cloud"
    why = fitted().explain(text, n=1, n_features=1000)[0]
    assert sum(pull for *_, pull in why.spans) == pytest.approx(sum(pull for _, pull in why.features), abs=1e-6)


def test_a_loaded_tagger_equals_the_saved_one(tmp_path: Path) -> None:
    texts, tags = corpus(60)
    tagger = Tagger(model=RIPML.linear(random_state=0), n=2, stop_labels=["sport"], min_count=2).fit(texts, tags)
    tagger.set_params(n=np.int64(3)).learn(["Plum jam"], [["jam"]]).save(tmp_path / "tagger")
    queries = corpus(10, 2)[0]
    for loaded in (ripml.load(tmp_path / "tagger"), Tagger.load(tmp_path / "tagger")):
        assert isinstance(loaded, Tagger)
        assert loaded.suggest_many(queries) == tagger.suggest_many(queries)
        assert loaded.get_params(deep=False)["stop_labels"] == ["sport"]
        assert loaded.n == 3
        loaded.forget(["Plum jam"])
        assert loaded.n_documents_ == 60
        with pytest.raises(DataError, match="was never learnt"):
            loaded.forget(["Plum jam"])
    assert not any(path.suffix in (".pkl", ".pickle", ".joblib") for path in (tmp_path / "tagger").rglob("*"))
    everything = b"".join(path.read_bytes() for path in (tmp_path / "tagger").rglob("*") if path.is_file())
    assert texts[0].encode() not in everything


def test_a_model_that_was_saved_without_a_tagger_can_be_one(tmp_path: Path) -> None:
    fitted().documents_.save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model")
    assert loaded.suggest("apple pear") == fitted().suggest("apple pear")
    RIPML.linear(random_state=0).fit(np.eye(4), [["a"], ["b"], ["a"], ["b"]]).save(tmp_path / "numbers")
    with pytest.raises(ModelFolderError, match="was trained on features, not on texts"):
        Tagger.load(tmp_path / "numbers")


def test_an_encoder_with_dense_output_takes_the_place_of_tfidf(tmp_path: Path) -> None:
    texts, tags = corpus(80)
    encoder = make_pipeline(TfidfVectorizer(), TruncatedSVD(16, random_state=0))
    tagger = Tagger(encoder, RIPML(random_state=0)).fit(texts, tags)
    assert tagger.suggest("ripe apple and pear of the orchard")[0][0] == "fruit"
    tagger.learn(["Plum jam of the orchard"], [["jam"]]).forget(["Plum jam of the orchard"])
    before = tagger.suggest("ripe apple")
    Tagger(encoder, RIPML(random_state=0)).fit(texts[:20], tags[:20])
    assert tagger.suggest("ripe apple") == before  # the encoder that was given was not fitted
    encoder = tagger.documents_.text.encoder  # type: ignore[union-attr]
    assert tagger.explain("ripe apple")[0].spans == []
    tagger.save(tmp_path / "tagger")
    loaded = Tagger.load(tmp_path / "tagger", encoder=encoder)
    assert loaded.suggest("ripe apple") == tagger.suggest("ripe apple")
    with pytest.raises(ParameterError, match="trained on the output of Pipeline, which is not saved"):
        Tagger.load(tmp_path / "tagger").suggest("ripe apple")
    with pytest.raises(DataError, match=r"must turn 1 texts into rows of shape \(1, 16\); got \(1, 8\)"):
        Tagger.load(tmp_path / "tagger", encoder=Constant(8)).suggest("ripe apple")
    with pytest.raises(DataError, match="gave a number that is not finite"):
        Tagger.load(tmp_path / "tagger", encoder=Constant(16, np.nan)).suggest("ripe apple")


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([[1.0, 2.0], [1.0]], r"must turn 2 texts into number rows of equal length; got rows of different lengths"),
        ([["1", "2"], ["3", "4"]], r"number rows of equal length; got values of type str"),
        ([[1j, 2], [3, 4]], r"number rows of equal length; got values of type complex128"),
        ([[{}, 2], [3, 4]], r"number rows of equal length; got rows .* or values that are not numbers"),
        (np.empty((2, 0)), r"must turn 2 texts into rows of shape \(2, d\); got \(2, 0\)"),
    ],
)
def test_an_encoder_that_does_not_return_rows_of_numbers_is_refused(rows: Any, sentence: str) -> None:
    class Odd:
        def encode(self, texts: list[str]) -> Any:
            return rows

    with pytest.raises(DataError, match=f"^Odd .*{sentence}"):
        Encoder(Odd()).fit_transform(["a red apple", "pears"])


def test_an_encoder_that_was_not_fitted_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"^TfidfVectorizer has not been fitted; pass the fitted one\.$"):
        Encoder(TfidfVectorizer(), n_dims=4).transform(["a red apple"])


class Constant:
    """An encoder as sentence embeddings have it."""

    def __init__(self, n_dims: int, value: float = 1.0) -> None:
        self.n_dims, self.value = n_dims, value

    def encode(self, texts: list[str]) -> Any:
        return np.full((len(texts), self.n_dims), self.value)


def test_doc2vec_takes_the_place_of_tfidf(tmp_path: Path) -> None:
    pytest.importorskip("gensim", reason="doc2vec needs gensim")
    texts, tags = corpus(60)
    tagger = Tagger("doc2vec", RIPML.linear(random_state=0)).fit(texts, tags)
    tagger.save(tmp_path / "tagger")
    assert ripml.load(tmp_path / "tagger").suggest(texts[0]) == tagger.suggest(texts[0])


def test_scripts_without_spaces_work_by_default() -> None:
    for one, other, query in (
        (["苹果很甜", "新鲜的苹果汁"], ["今天下雨了", "明天有大雨"], "我喜欢苹果"),
        (["りんごは甘い", "りんごのジュース"], ["明日は雨です", "雨が降っている"], "りんごを食べる"),
        (["แอปเปิ้ลหวานมาก", "น้ำแอปเปิ้ลสด"], ["วันนี้ฝนตก", "พรุ่งนี้ฝนตกหนัก"], "ฉันชอบแอปเปิ้ล"),
        (["사과가 달다", "사과주스 한 잔"], ["오늘 비가 온다", "내일은 큰 비"], "사과를 좋아해"),
        (["सेब मीठा है", "ताज़ा सेब का रस"], ["आज बारिश है", "कल भारी बारिश"], "मुझे सेब पसंद है"),
    ):
        tags = [["fruit"]] * 2 + [["weather"]] * 2
        best = Tagger(model=RIPML.linear(random_state=0)).fit([*one, *other], tags).suggest(query, n=1)
        assert [tag for tag, _ in best] == ["fruit"], query


def test_a_tagger_follows_the_conventions_of_scikit_learn() -> None:
    tagger = Tagger(model=RIPML(n_dims=16), n=3)
    copy = clone(tagger)
    assert copy.get_params(deep=False).keys() == tagger.get_params(deep=False).keys()
    assert copy.n == 3
    assert copy.model is not tagger.model
    assert copy.set_params(model__n_dims=8).model.n_dims == 8


def test_evaluation_is_that_of_the_scores() -> None:
    texts, tags = corpus(20, 3)
    report = fitted().evaluate(texts, tags)
    assert report["P@1"] > 0.8
    assert {"P@3", "nDCG@5", "micro F1"} <= report.keys()
    assert isinstance(fitted().documents_, DocumentModel)


def test_a_second_thread_that_changes_a_tagger_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tagger = Tagger(model=RIPML.paper(n_dims=8, n_neighbors=1)).fit(["red apple", "grey sky"], [["fruit"], ["weather"]])
    started, go_on, original = threading.Event(), threading.Event(), RIPML.partial_fit

    def waits(self: RIPML, *given: Any) -> RIPML:
        started.set()
        assert go_on.wait(60)
        return original(self, *given)

    monkeypatch.setattr(RIPML, "partial_fit", waits)
    first = threading.Thread(target=tagger.learn, args=(["green apple"], [["fruit"]]))
    first.start()
    assert started.wait(60)
    try:
        for change in (tagger.fit, tagger.learn, tagger.forget):
            with pytest.raises(
                ConcurrentChangeError, match=f"changing this Tagger, and `{change.__name__}` would undo"
            ):
                change(["grey sky"], [["weather"]])
        assert tagger.suggest("red apple", n=1)[0][0] == "fruit"
    finally:
        go_on.set()
        first.join()
    assert tagger.n_documents_ == 3
