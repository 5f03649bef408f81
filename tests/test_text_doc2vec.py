"""Doc2Vec: the same vectors everywhere, words that start from skip-gram, and saved = loaded."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from realdata import data_folder, needs_data

from ripml.base import model_folder
from ripml.base.errors import DataError, MissingExtraError, ModelFolderError, ParameterError
from ripml.datasets import read
from ripml.text import Doc2Vec

gensim: Any = importlib.import_module("gensim.models")  # it has no types

FRUIT = ["apple", "pear", "plum", "cherry", "grape"]
SEA = ["ship", "wave", "harbour", "sail", "anchor"]


def two_topics(n: int = 40) -> list[str]:
    """Return n texts of 12 words: even ones about fruit, odd ones about the sea."""
    random = np.random.default_rng(0)
    return [" ".join(random.choice(SEA if i % 2 else FRUIT, 12)) for i in range(n)]


def small(**settings: Any) -> Doc2Vec:
    return Doc2Vec(**{"n_dims": 16, "min_count": 1, **settings})


def digest() -> str:
    """Return a checksum of trained and inferred vectors; also called in other processes."""
    doc2vec = small()
    vectors = doc2vec.fit_transform(two_topics())
    return hashlib.sha256(vectors.tobytes() + doc2vec.transform(["apple ship", "wave"]).tobytes()).hexdigest()


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_vectors_are_one_row_per_text() -> None:
    vectors = small().fit_transform(text for text in two_topics(6))
    assert vectors.shape == (6, 16)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()


def test_texts_without_a_known_word_are_zero_rows() -> None:
    doc2vec = small(min_count=2)
    trained = doc2vec.fit_transform([*two_topics(6), "", "once", "?!"])
    assert trained.any(axis=1).tolist() == [True] * 6 + [False] * 3
    inferred = doc2vec.transform(["", "once", "?!", "never seen", " ".join(FRUIT)])
    assert inferred.any(axis=1).tolist() == [False] * 4 + [True]
    assert doc2vec.transform([]).shape == (0, 16)


def test_texts_of_one_topic_lie_together() -> None:
    texts = two_topics()
    doc2vec = small(epochs=40)
    trained = unit(doc2vec.fit_transform(texts))
    same = np.equal.outer(np.arange(40) % 2, np.arange(40) % 2)
    likeness = trained @ trained.T
    assert likeness[same].mean() > likeness[~same].mean() + 0.2
    new = unit(doc2vec.transform(["plum grape apple pear cherry plum", "sail wave anchor harbour ship sail"]))
    assert (new @ new.T)[0, 1] < 0.9
    nearest = (new @ unit(doc2vec.transform(texts)).T).argmax(axis=1) % 2
    assert nearest.tolist() == [0, 1]


@pytest.mark.parametrize("seed", ["1", "2"])
def test_vectors_are_the_same_in_every_process(seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent)}
    code = "from test_text_doc2vec import digest; print(digest())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest()
    assert done.stderr == ""


def test_vectors_depend_on_the_seed_and_the_same_seed_gives_the_same() -> None:
    first, again, other = (small(random_state=seed).fit_transform(two_topics()) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_vector_of_a_text_depends_neither_on_other_texts_nor_on_threads() -> None:
    texts = two_topics()
    doc2vec = small().fit(texts)
    together = doc2vec.transform(texts)
    assert np.array_equal(np.vstack([doc2vec.transform([text]) for text in texts]), together)
    assert np.array_equal(doc2vec.transform(texts[::-1])[::-1], together)
    doc2vec.n_jobs = 3
    assert np.array_equal(doc2vec.transform(texts), together)


def test_training_on_several_threads_gives_vectors_too() -> None:
    vectors = small(n_jobs=2).fit_transform([*two_topics(), ""])
    assert vectors.any(axis=1).tolist() == [True] * 40 + [False]


def test_words_start_from_skip_gram_with_hierarchical_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    order: list[str] = []

    def spy(kind: Any) -> None:
        train = kind.train

        def watched(model: Any, *args: Any, **course: Any) -> Any:
            if type(model) is not kind:  # gensim's Doc2Vec.train calls Word2Vec.train
                return train(model, *args, **course)
            order.append(kind.__name__)
            epochs = 10 if kind is gensim.Doc2Vec else 1
            assert (model.hs, model.negative, model.window, course["epochs"]) == (1, 0, 10, epochs)
            if kind is gensim.Doc2Vec:
                seen["start"] = model.wv.vectors.copy()
            result = train(model, *args, **course)
            seen[kind.__name__] = model
            if kind is gensim.Word2Vec:
                seen["skip-gram"] = model.wv.vectors.copy()
            return result

        monkeypatch.setattr(kind, "train", watched)

    spy(gensim.Word2Vec)
    spy(gensim.Doc2Vec)
    small().fit(two_topics())
    words, documents = seen["Word2Vec"], seen["Doc2Vec"]
    assert order == ["Word2Vec", "Doc2Vec"]
    assert words.sg == 1
    assert documents.dm
    assert words.wv.index_to_key == documents.wv.index_to_key
    untrained = gensim.Word2Vec(vector_size=16, seed=0, hs=1, negative=0, min_count=1)
    untrained.build_vocab_from_freq(dict.fromkeys(words.wv.index_to_key, 1))
    assert not np.array_equal(untrained.wv.vectors, seen["skip-gram"])
    assert np.array_equal(seen["start"], seen["skip-gram"])
    assert not np.array_equal(seen["start"], documents.wv.vectors)  # and goes on from there


def test_saved_equals_loaded(tmp_path: Path) -> None:
    texts = [*two_topics(), "股票 apple", "股票 ship"]
    doc2vec = small(tokens="chars", window=3, epochs=4, word_epochs=2, random_state=7).fit(texts)
    expected = doc2vec.transform([*texts, "unknown"])
    parameters, arrays = doc2vec.to_state()
    model_folder.save(tmp_path / "model", "doc2vec", parameters, arrays)
    contents = model_folder.load(tmp_path / "model")
    loaded = Doc2Vec.from_state(contents.parameters, contents.arrays)
    assert np.array_equal(loaded.transform([*texts, "unknown"]), expected)
    again = loaded.to_state()
    assert again[0] == json.loads(json.dumps(parameters))
    assert again[1].keys() == arrays.keys()
    assert all(np.array_equal(again[1][name], arrays[name]) for name in arrays)


def test_changes_to_the_returned_rows_do_not_change_the_model() -> None:
    doc2vec = small()
    vectors = doc2vec.fit_transform(two_topics())
    before = doc2vec.transform(["apple ship"])
    vectors[:] = np.nan
    assert np.array_equal(doc2vec.transform(["apple ship"]), before)


@pytest.mark.parametrize("key", ["words", "word_offsets", "counts", "word_vectors", "branch_vectors"])
def test_a_damaged_state_is_refused(key: str) -> None:
    parameters, arrays = small().fit(two_topics(4)).to_state()
    with pytest.raises(ModelFolderError, match="the saved doc2vec is damaged"):
        Doc2Vec.from_state(parameters, {name: array for name, array in arrays.items() if name != key})
    with pytest.raises(ModelFolderError, match="the saved doc2vec is damaged"):
        Doc2Vec.from_state(parameters, {**arrays, key: arrays[key][:-1]})
    with pytest.raises(ModelFolderError, match="the saved doc2vec is damaged"):
        Doc2Vec.from_state({**parameters, "n_dims": 0}, arrays)
    if key.endswith("vectors"):
        with pytest.raises(ModelFolderError, match="n_dims finite numbers per word"):
            Doc2Vec.from_state(parameters, {**arrays, key: arrays[key] * np.float32("nan")})


def test_settings_and_texts_are_checked() -> None:
    bad: Any
    for bad in ({"n_dims": 0}, {"window": 1.5}, {"epochs": True}, {"word_epochs": 0}, {"min_count": "2"}):
        with pytest.raises(ParameterError, match=rf"`{next(iter(bad))}` must be an integer ≥ 1; got"):
            Doc2Vec(**bad)
    with pytest.raises(ParameterError, match=r"`random_state` must be an integer from 0 to 2147483647; got -1\."):
        Doc2Vec(random_state=-1)
    with pytest.raises(ParameterError, match="`n_jobs` must be None, an integer"):
        Doc2Vec(n_jobs=0)
    with pytest.raises(ParameterError, match="`tokens` must be one of"):
        Doc2Vec(tokens="bpe")
    with pytest.raises(DataError, match="expected a list of texts; got one string"):
        Doc2Vec().fit("red apple")
    with pytest.raises(DataError, match="text 1 is not a string; got NoneType"):
        Doc2Vec().fit(["red", None])  # type: ignore[list-item]
    with pytest.raises(
        DataError, match=r"^at least 2 words must occur min_count = 5 times in the 2 texts, but 1 do; lower"
    ):
        Doc2Vec().fit(["red red red red red", "green"])
    with pytest.raises(ParameterError, match=r"this Doc2Vec has not been fitted; call fit\(texts\) first\."):
        Doc2Vec().transform(["red"])


def test_without_gensim_the_error_has_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(
        MissingExtraError, match=r"gensim is needed for this; install it with: pip install 'ripml\[text\]'"
    ):
        small().fit(two_topics())


@needs_data
def test_real_chinese_texts_are_found_again_by_their_inferred_vectors() -> None:
    texts = (read(data_folder() / "zh_stock_news" / "docs.jsonl.gz").texts or [])[1000:1060]
    texts = [text[:400] for text in texts]
    doc2vec = Doc2Vec(n_dims=32, window=4, min_count=2, epochs=20)
    trained = unit(doc2vec.fit_transform(texts))
    found = (unit(doc2vec.transform(texts)) @ trained.T).argmax(axis=1)
    assert (found == np.arange(60)).mean() > 0.8
