"""From raw text to tags with default settings: `Tagger()` on the fixed split of EUR-Lex.

    python benchmarks/raw_text.py [--quick] [--json PATH]

For comparison, the same estimator runs on the 5,000 tf-idf features that come with the set. Without RIPML_DATA, or with
--quick, it uses a thousand documents of the built-in set, without bounds.
"""

from __future__ import annotations

import time

from harness import Row, finish, has_data, options

from ripml import RIPML, Tagger, datasets, metrics
from ripml.datasets import Dataset

BOUNDS = {1: 88.5, 3: 77.0, 5: 65.0}


def tags(data: Dataset) -> list[list[str]]:
    return [data.row_labels(row) for row in range(len(data))]


def main() -> None:
    arguments = options(__doc__ or "")
    is_real = has_data() and not arguments.quick
    train, test = datasets.load("eurlex" if is_real else "numpydoc")
    start = time.perf_counter()
    tagger = Tagger().fit(train.texts, tags(train))
    seconds = time.perf_counter() - start
    report = tagger.evaluate(test.texts, tags(test))
    scores = RIPML(random_state=0).fit(train.X, train.Y).decision_function(test.X)
    model = tagger.documents_.model
    rows: list[Row] = [("texts", tagger.n_documents_, ""), ("features", model.n_features_in_, "")]
    for k, bound in BOUNDS.items():
        rows += [
            (f"P@{k}, percent", 100 * report[f"P@{k}"], f"≥ {bound}" if is_real else ""),
            (f"P@{k} of held-out rows", 100 * model.left_out_precision_[f"P@{k}"], ""),
            (f"P@{k} on the features of the set", 100 * metrics.precision_at_k(test.Y, scores, k=k), ""),
        ]
    finish([*rows, ("seconds from texts to tagger", seconds, "")], arguments.json)


if __name__ == "__main__":
    main()
