"""fastText, supervised, with the settings of its tutorial on multi-label classification: one-vs-all loss; and softmax.

Where a set has raw text, fastText reads that (lower case, punctuation split off, as in its tutorial) with word pairs;
otherwise a row is the list of its features as words `f<index>`, each once and in order of index, without pairs:
fastText has no weights for words, so the values of the features are lost. The training file is written before the clock
starts.
"""

from __future__ import annotations

import importlib
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from protocol import TOP, Method, pairs_to_csr, run

fasttext: Any = importlib.import_module("fasttext")

MARK = "__label__"


def words(X: Any, texts: list[str] | None) -> list[str]:
    """A line of words for each row."""
    if texts is not None:
        return [" ".join(re.sub(r"([.!?,;:\"'/()\[\]])", r" \1 ", text.lower()).split()) for text in texts]
    return [" ".join(f"f{j}" for j in X.indices[a:b]) for a, b in pairwise(X.indptr)]


class FastText(Method):
    reads_texts = True
    loss = "ova"

    def prepare(self, X: Any, Y: Any, texts: list[str] | None) -> None:
        self.file = self.folder / "train.txt"
        self.has_text = texts is not None
        with self.file.open("w", encoding="utf-8") as file:
            for i, line in enumerate(words(X, texts)):
                labels = " ".join(f"{MARK}{label}" for label in Y.indices[Y.indptr[i] : Y.indptr[i + 1]])
                file.write(f"{labels} {line}\n")

    def train(self) -> None:
        settings = {"wordNgrams": 2, "bucket": 200_000} if self.has_text else {"wordNgrams": 1}
        self.model = fasttext.train_supervised(
            str(self.file), lr=0.5, epoch=25, dim=50, loss=self.loss, label=MARK, verbose=0, **settings
        )

    def save(self, folder: Path) -> None:
        self.model.save_model(str(folder / "model.bin"))

    def queries(self, X: Any, texts: list[str] | None) -> Any:
        return words(X, texts)

    def predict(self, queries: Any) -> Any:
        return self.model.predict(queries, k=TOP)

    def scores(self, answer: Any, n_labels: int) -> Any:
        names, values = answer
        labels = [[int(name.removeprefix(MARK)) for name in row] for row in names]
        return pairs_to_csr((zip(*row, strict=True) for row in zip(labels, values, strict=True)), n_labels)


class Softmax(FastText):
    loss = "softmax"


if __name__ == "__main__":
    run({"fastText": FastText, "fastText softmax": Softmax})
