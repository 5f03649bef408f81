"""Texts unlike anything known are told so, by the words of training texts that were left out."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from realdata import data_folder, needs_data
from sklearn.metrics import roc_auc_score
from starlette.testclient import TestClient

from ripml import RIPML, Store, Tagger
from ripml.base import model_folder
from ripml.base.errors import ModelFolderError, ParameterError
from ripml.cli import main
from ripml.datasets import documents_given
from ripml.server import create_app
from ripml.tagging.documents import DocumentModel
from ripml.tagging.familiarity import UNFAMILIAR, Familiarity
from ripml.text import Doc2Vec, TfIdf

WORDS = [f"word{i}" for i in range(400)]


def texts(n: int, seed: int) -> list[str]:
    """Texts of words that are rarer the later they come."""
    rng = np.random.default_rng(seed)
    return [" ".join(WORDS[i] for i in np.minimum(rng.geometric(0.02, 30), 400) - 1) for _ in range(n)]


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Tagger(model=RIPML.linear(random_state=0)).fit(texts(400, 0), [["a"], ["b"]] * 200)


def test_texts_like_those_that_were_learnt_are_evenly_spread(tagger: Tagger) -> None:
    found = np.array(tagger.familiarity(texts(1000, 1)))
    assert abs(found.mean() - 0.5) < 0.05
    assert np.mean(found <= 0.1) == pytest.approx(0.1, abs=0.04)


def test_other_words_and_shuffled_letters_are_unlike_anything_known(tagger: Tagger) -> None:
    letters = list(texts(1, 2)[0])
    random.Random(0).shuffle(letters)
    assert max(tagger.familiarity(["qwertz asdf yxcv", "".join(letters), ""])) <= UNFAMILIAR


def test_training_texts_are_measured_as_by_a_model_that_was_fitted_without_them() -> None:
    known = texts(150, 3)
    vectorizer = TfIdf(min_df=2, max_features=None).fit(known)
    familiar = Familiarity.fit(vectorizer, known)
    assert familiar is not None
    left_out = familiar.measured(vectorizer, known, left_out=True)
    whole = familiar.levels[:, familiar.levels[0] == 30]  # the others are beginnings
    assert np.allclose(np.sort(left_out[1]), np.sort(whole[1]), atol=1e-6)
    assert familiar.levels.shape[1] == 300
    for i in (0, 17, 149):
        rest = known[:i] + known[i + 1 :]
        without = TfIdf(min_df=2, max_features=None).fit(rest)
        other = Familiarity.fit(without, rest)
        assert other is not None
        assert left_out[:, i] == pytest.approx(other.measured(without, known[i : i + 1])[:, 0], abs=0.02)
    assert (left_out[1] < familiar.measured(vectorizer, known)[1]).mean() > 0.9


def test_known_words_in_random_order_are_strange_where_texts_have_an_order() -> None:
    rng = np.random.default_rng(0)

    def ordered(n: int) -> list[str]:
        """Each word is followed by one of two others."""
        found = []
        for _ in range(n):
            words = [int(rng.integers(100))]
            while len(words) < 40:
                words.append((words[-1] * 7 + 13 + int(rng.integers(2))) % 100)
            found.append(" ".join(WORDS[i] for i in words))
        return found

    known, own = ordered(300), ordered(200)
    vectorizer = TfIdf().fit(known)
    familiar = Familiarity.fit(vectorizer, known)
    assert familiar is not None
    mixed = [" ".join(rng.permutation(text.split())) for text in own]
    assert max(familiar.of(vectorizer, mixed)) <= UNFAMILIAR
    assert np.mean(familiar.of(vectorizer, own)) == pytest.approx(0.5, abs=0.06)


def test_beginnings_of_long_texts_are_not_strange_by_their_length() -> None:
    rng = np.random.default_rng(0)

    def long(n: int) -> list[str]:
        """A heading of rare words, and a hundred words in a common order."""
        heads = (rng.permutation(200)[:8] + 200 for _ in range(n))
        bodies = ((rng.integers(20) + np.arange(100)) % 100 for _ in range(n))
        return [" ".join(WORDS[i] for i in (*head, *body)) for head, body in zip(heads, bodies, strict=True)]

    known, new = long(400), long(300)
    vectorizer = TfIdf().fit(known)
    familiar = Familiarity.fit(vectorizer, known)
    assert familiar is not None
    whole = familiar.levels[:, familiar.levels[0] == 108]
    without = Familiarity(vectorizer, whole, familiar.pairs, familiar.n_texts)
    short = [" ".join(text.split()[:n]) for text in new for n in (12, 30)]
    assert np.mean(np.array(without.of(vectorizer, short)) <= UNFAMILIAR) > 0.4
    assert np.mean(np.array(familiar.of(vectorizer, short)) <= UNFAMILIAR) < 0.03
    assert np.mean(np.array(familiar.of(vectorizer, new)) <= UNFAMILIAR) < 0.03
    assert max(familiar.of(vectorizer, ["qwertz", "qwertz asdf yxcv"])) <= UNFAMILIAR


def test_saved_and_loaded_it_says_the_same(tagger: Tagger, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tagger.save(tmp_path / "model")
    asked = [*texts(5, 4), "qwertz asdf"]
    assert Tagger.load(tmp_path / "model").familiarity(asked) == tagger.familiarity(asked)
    with pytest.raises(SystemExit, match="0"):
        main(["suggest", str(tmp_path / "model"), "qwertz asdf word1"])
    assert "the text is unlike anything that the model knows" in capfd.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["suggest", str(tmp_path / "model"), asked[0], "--json"])
    assert json.loads(capfd.readouterr().out)["familiarity"] == tagger.familiarity(asked[:1])[0]


def test_a_folder_with_damaged_levels_is_refused_and_one_without_says_so(tagger: Tagger, tmp_path: Path) -> None:
    tagger.save(tmp_path / "model")
    contents = model_folder.load(tmp_path / "model")
    levels = contents.arrays["familiarity"]
    damaged = replace(contents, arrays={**contents.arrays, "familiarity": levels[::-1]})
    with pytest.raises(ModelFolderError, match="the levels of familiar texts are damaged"):
        DocumentModel.from_contents("model", damaged)
    early = replace(contents, arrays={name: a for name, a in contents.arrays.items() if name != "familiarity"})
    with pytest.raises(ParameterError, match="does not know which texts are familiar; fit it again"):
        Tagger.from_contents("model", early).familiarity(["word1"])


def test_drift_of_a_store_is_told_by_what_it_learnt_since_the_fit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = [{"text": text, "labels": ["a" if i % 2 else "b"]} for i, text in enumerate(texts(300, 5))]
    for strange in (False, True):
        folder = tmp_path / str(strange)
        with Store.create(folder, documents_given(data), RIPML.linear(random_state=0)) as store:
            more = [f"qwertz{i} asdf{i}" for i in range(40)] if strange else texts(40, 6)
            store.learn([{"text": text, "labels": ["a"]} for text in more])
        with pytest.raises(SystemExit, match="0"):
            main(["inspect", str(folder), "--json"])
        newest = json.loads(capfd.readouterr().out)["newest"]
        assert newest["documents"] == 40
        assert (newest["familiarity"] < 0.1) is strange
        assert (newest["unfamiliar"] > 0.9) is strange
        with pytest.raises(SystemExit, match="0"):
            main(["inspect", str(folder)])
        assert "unlike anything known" in capfd.readouterr().out


def test_the_server_says_how_familiar_a_text_is_and_counts_it(tmp_path: Path) -> None:
    data = [{"text": text, "labels": ["a" if i % 2 else "b"]} for i, text in enumerate(texts(300, 8))]
    asked = [texts(1, 9)[0], "qwertz asdf"]
    with Store.create(tmp_path / "tickets", documents_given(data), RIPML.linear(random_state=0)) as store:
        expected = store.model.familiarity(asked) or []
        with TestClient(create_app({"tickets": store}), base_url="http://localhost:8000") as client:
            one = client.post("/v1/stores/tickets/suggest", json={"text": asked[0]}).json()
            batch = client.post("/v1/stores/tickets/suggest/batch", json={"texts": asked}).json()
            metrics = client.get("/metrics").text
    assert [one["familiarity"]] == expected[:1]
    assert [row["familiarity"] for row in batch["results"]] == expected
    counted = [line for line in metrics.splitlines() if "familiarity_count" in line]
    assert counted == ['ripml_familiarity_count{store="tickets"} 3.0']
    assert 'ripml_familiarity_bucket{le="0.01",store="tickets"} 1.0' in metrics
    assert 'ripml_best_score_count{store="tickets"} 3.0' in metrics


def test_features_without_words_have_no_familiarity() -> None:
    assert Familiarity.fit(Doc2Vec(), ["a b", "c d"] * 100) is None


def test_few_texts_cannot_call_one_strange() -> None:
    known = texts(99, 7)
    assert Familiarity.fit(TfIdf(min_df=1).fit(known[:98]), known[:98]) is None
    vectorizer = TfIdf(min_df=1).fit(known)
    familiar = Familiarity.fit(vectorizer, known)
    assert familiar is not None
    assert familiar.of(vectorizer, ["qwertz"]) == [0.005]  # of 99 texts and as many beginnings


@needs_data
def test_laws_are_told_from_records_and_shuffled_letters() -> None:
    rng, rows = random.Random(0), {}
    for name in ("eurlex", "tibkat"):
        with gzip.open(data_folder() / name / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
            rows[name] = [json.loads(line)["text"] for _, line in zip(range(1800), file, strict=False)]
        rng.shuffle(rows[name])
    laws, others = rows["eurlex"], rows["tibkat"][:300]
    vectorizer = TfIdf(tokens="any").fit(laws[:1500])
    familiar = Familiarity.fit(vectorizer, laws[:1500])
    assert familiar is not None
    shuffled = ["".join(rng.sample(text, len(text))) for text in laws[1500:]]
    own, truth = familiar.of(vectorizer, laws[1500:]), [1] * 300 + [0] * 300
    for strange in (others, shuffled):
        assert roc_auc_score(truth, [*own, *familiar.of(vectorizer, strange)]) > 0.95
    assert np.mean(np.array(own) <= UNFAMILIAR) < 0.04
