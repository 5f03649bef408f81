"""Features of other kinds than words: tables, embeddings, and words and embeddings side by side.

    python benchmarks/features.py [--quick] [--json PATH] [--part tables|embeddings|views] [--vectors FOLDER]

Tables: those of scikit-learn and a generated one whose columns have scales from 1e-3 to 1e3, P@1 of `RIPML()` beside
logistic regression on standardised columns and a random forest. Embeddings: the same with LSA and MiniLM vectors of
EUR-Lex. Views: `RIPML` on tf-idf, on MiniLM and on both, for 500, 2,000 and all documents of EUR-Lex and of 6,000 of
msdocs. MiniLM vectors are kept in FOLDER and read from there; without them and without the extra
`minilm`, what needs them is left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, finish, has_data
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack
from sklearn import datasets as tables
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ripml import RIPML, datasets
from ripml.base.errors import MissingExtraError
from ripml.labels.encoding import encode_labels
from ripml.tagging.documents import text_features
from ripml.text import Encoder

SIZES = (500, 2000, None)
MOST_LABELS = 100  # of EUR-Lex, for models that are fitted label by label
Split = tuple[Any, Any, Any, Any]  # X, Y, and those to test on


def precision(Y: Any, scores: Any) -> float:
    """P@1 in percent, of rows that have a label."""
    rows = np.flatnonzero(np.diff(Y.indptr) > 0)
    best = np.asarray(scores.argmax(axis=1)).ravel()
    return 100 * float(np.mean([best[row] in Y.indices[Y.indptr[row] : Y.indptr[row + 1]] for row in rows]))


def small_tables() -> Iterator[tuple[str, Split]]:
    """Tables, shuffled, two thirds to learn from; classes are labels, and so is every second class together."""
    makers = {
        "iris": tables.load_iris,
        "wine": tables.load_wine,
        "cancer": tables.load_breast_cancer,
        "digits": tables.load_digits,
    }
    for name, load in makers.items():
        X, y = load(return_X_y=True)
        names = [[f"class {label}", f"remainder {label % 2}"] for label in y.tolist()]
        yield name, split(X, encode_labels(names)[0])
    X, Y = tables.make_multilabel_classification(1500, 40, n_classes=12, n_labels=3, random_state=0)
    scales = 10 ** np.random.default_rng(0).uniform(-3, 3, size=40)
    yield "generated, scales 1e-3 to 1e3", split(X * scales, csr_array(Y))


def split(X: NDArray[Any], Y: Any) -> Split:
    order = np.random.default_rng(0).permutation(len(X))
    cut = 2 * len(X) // 3
    return X[order[:cut]], Y[order[:cut]], X[order[cut:]], Y[order[cut:]]


def beside_others(name: str, parts: Split) -> list[Row]:
    """P@1 of the default, logistic regression and a forest."""
    X, Y, X_test, Y_test = parts
    model = RIPML(random_state=0).fit(X, Y)
    labels = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1]))
    labels = labels[np.argsort(-np.bincount(Y.indices, minlength=Y.shape[1])[labels], kind="stable")[:MOST_LABELS]]
    some, some_test = csr_array(Y[:, labels]), csr_array(Y_test[:, labels])
    logistic = make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression(max_iter=1000)))
    logistic.fit(X, some.toarray().astype(int))
    forest = RandomForestClassifier(200, random_state=0, n_jobs=2).fit(X, some.toarray().astype(int))
    votes = np.stack(
        [part[:, -1] if part.shape[1] > 1 else np.zeros(len(part)) for part in forest.predict_proba(X_test)], axis=1
    )
    scores = csr_array(model.decision_function(X_test)[:, labels]).toarray()
    return [
        (f"{name}: P@1 of RIPML, {model.scaling_} scaled", precision(some_test, scores), "≥ both below"),
        (f"{name}: P@1 of logistic regression", precision(some_test, logistic.predict_proba(X_test)), ""),
        (f"{name}: P@1 of a forest", precision(some_test, votes), ""),
    ]


def eurlex() -> tuple[list[str], Any, list[str], Any]:
    """Texts and labels."""
    train, test = datasets.load("eurlex")
    return train.texts or [], train.Y, test.texts or [], test.Y


def msdocs() -> tuple[list[str], Any, list[str], Any]:
    """The first 6,000 texts to train on and 1,000 to test on, in random order; labels are those of the former."""
    parts: dict[str, list[Any]] = {"train": [], "test": []}
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "msdocs" / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        for document in map(json.loads, file):
            parts[document["split"]].append(document)
    random = np.random.default_rng(0)
    chosen = [
        [parts[name][i] for i in random.permutation(len(parts[name]))[:n]]
        for name, n in (("train", 6000), ("test", 1000))
    ]
    Y, names = encode_labels([row["labels"] for row in chosen[0]])
    Y_test, _ = encode_labels([row["labels"] for row in chosen[1]], known=names)
    Y_test = Y_test[:, : len(names)]  # labels that are not known come last, and no model can find them
    return [row["text"] for row in chosen[0]], Y, [row["text"] for row in chosen[1]], Y_test


def minilm(name: str, texts: list[str], folder: Path | None) -> NDArray[Any] | None:
    """Vectors of texts, from the folder or from the encoder; None where there is neither."""
    path = None if folder is None else folder / f"minilm-{name}.npy"
    if path is not None and path.exists():
        return np.asarray(np.load(path), np.float32)
    try:
        vectors = Encoder("minilm").fit_transform(texts)
    except MissingExtraError as error:
        print(f"{name}: {error}")
        return None
    if path is not None:
        np.save(path, vectors)
    return vectors


def embeddings(folder: Path | None) -> list[Row]:
    """LSA and MiniLM vectors of EUR-Lex, its most frequent labels."""
    texts, Y, texts_test, Y_test = eurlex()
    words = text_features("tfidf")
    X, X_test = words.learn(texts), words.transform(texts_test)
    lsa = TruncatedSVD(200, random_state=0).fit(X)
    rows = beside_others("EUR-Lex, LSA", (lsa.transform(X)[:5000], Y[:5000], lsa.transform(X_test), Y_test))
    vectors, of_test = minilm("eurlex-train", texts, folder), minilm("eurlex-test", texts_test, folder)
    if vectors is not None and of_test is not None:
        rows += beside_others("EUR-Lex, MiniLM", (vectors[:5000], Y[:5000], of_test, Y_test))
    return rows


def views(name: str, data: tuple[list[str], Any, list[str], Any], folder: Path | None) -> list[Row]:
    """Words, embeddings and both."""
    texts, Y, texts_test, Y_test = data
    vectors, of_test = minilm(f"{name}-train", texts, folder), minilm(f"{name}-test", texts_test, folder)
    rows: list[Row] = []
    if vectors is None or of_test is None:
        return rows
    order = np.random.default_rng(0).permutation(len(texts))
    texts, vectors, Y = [texts[i] for i in order], vectors[order], Y[order]
    for size in SIZES:
        n = size or len(texts)
        words = text_features("tfidf")
        X, X_test = words.learn(texts[:n]), words.transform(texts_test)
        both = [hstack([X, csr_array(vectors[:n])], format="csr"), hstack([X_test, csr_array(of_test)], format="csr")]
        widths = [X.shape[1], vectors.shape[1]]
        cases: dict[str, Any] = {
            "tf-idf": (X, X_test, None),
            "MiniLM": (vectors[:n], of_test, None),
            "both": (*both, widths),
        }
        for kind, (train, test, of_views) in cases.items():
            model = RIPML(views=of_views, random_state=0).fit(train, Y[:n])
            rows.append((f"{name}, {n:,} documents: P@1 of {kind}", 100 * model.score(test, Y_test), ""))
            print(*rows[-1][:2])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="tables only")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--part", choices=["tables", "embeddings", "views"], help="this part only")
    parser.add_argument("--vectors", type=Path, help="the folder where MiniLM vectors are kept")
    arguments = parser.parse_args()
    rows: list[Row] = []
    if arguments.part in (None, "tables"):
        for name, parts in small_tables():
            rows += beside_others(name, parts)
    if has_data() and not arguments.quick:
        if arguments.part in (None, "embeddings"):
            rows += embeddings(arguments.vectors)
        if arguments.part in (None, "views"):
            rows += views("eurlex", eurlex(), arguments.vectors) + views("msdocs", msdocs(), arguments.vectors)
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
