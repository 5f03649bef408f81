"""From raw text to tags with every default: `Tagger()` on EUR-Lex, its fixed split.

    python benchmarks/raw_text.py [--quick] [--json PATH]

Beside it the same estimator on the 5,000 tf-idf features that come with the set: what features of our own give. Without
RIPML_DATA, or with --quick, a thousand documents of the built-in set, and no bar.
"""

from __future__ import annotations

import time

from harness import Row, finish, has_data, options

from ripml import RIPML, Tagger, datasets, metrics
from ripml.datasets import Dataset

BARS = {1: 88.5, 3: 77.0, 5: 65.0}


def tags(data: Dataset) -> list[list[str]]:
    """The names of the labels of each row."""
    ends = zip(data.Y.indptr[:-1], data.Y.indptr[1:], strict=True)
    return [[data.label_names[label] for label in data.Y.indices[start:end]] for start, end in ends]


def main() -> None:
    asked = options(__doc__ or "")
    real = has_data() and not asked.quick
    train, test = datasets.load("eurlex" if real else "numpydoc")
    start = time.perf_counter()
    tagger = Tagger().fit(train.texts, tags(train))
    seconds = time.perf_counter() - start
    report = tagger.evaluate(test.texts, tags(test))
    scores = RIPML(random_state=0).fit(train.X, train.Y).decision_function(test.X)
    model = tagger.documents_.model
    found: list[Row] = [("texts", tagger.n_documents_, ""), ("features", model.n_features_in_, "")]
    for k, bar in BARS.items():
        found += [
            (f"P@{k}, percent", 100 * report[f"P@{k}"], f"≥ {bar}" if real else ""),
            (f"P@{k} of rows left out", 100 * model.left_out_precision_[f"P@{k}"], ""),
            (f"P@{k} of the set's own features", 100 * metrics.precision_at_k(test.Y, scores, k=k), ""),
        ]
    finish([*found, ("seconds from texts to tagger", seconds, "")], asked.json)


if __name__ == "__main__":
    main()
