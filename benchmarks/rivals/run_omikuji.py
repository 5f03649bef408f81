"""omikuji: partitioned label trees (Parabel) with default settings, and the Bonsai-like settings of its README.

Training reads a file that is written before the clock starts; omikuji parses it inside its training call. Prediction is
omikuji's Python call, one row at a time (three trees on all cores), after `densify_weights` with the default density of
its command line.
"""

from __future__ import annotations

import importlib
from itertools import pairwise
from pathlib import Path
from typing import Any

from protocol import TOP, Method, pairs_to_csr, run, write_xmc

omikuji: Any = importlib.import_module("omikuji")


class Omikuji(Method):
    def prepare(self, X: Any, Y: Any, texts: list[str] | None) -> None:
        self.file = self.folder / "train.txt"
        write_xmc(self.file, X, Y)

    def settings(self) -> Any:
        return omikuji.Model.default_hyper_param()

    def train(self) -> None:
        self.model = omikuji.Model.train_on_data(str(self.file), self.settings())

    def save(self, folder: Path) -> None:
        self.model.save(str(folder))

    def open(self, folder: Path) -> None:
        self.model.densify_weights(0.1)

    def queries(self, X: Any, texts: list[str] | None) -> Any:
        pairs = list(zip(X.indices.tolist(), X.data.tolist(), strict=True))
        return [pairs[start:end] for start, end in pairwise(X.indptr)]

    def predict(self, queries: Any) -> Any:
        return [self.model.predict(query, top_k=TOP) for query in queries]

    def scores(self, answer: Any, n_labels: int) -> Any:
        return pairs_to_csr(answer, n_labels)


class Bonsai(Omikuji):
    def settings(self) -> Any:
        settings = super().settings()
        settings.cluster_balanced = False
        settings.cluster_k = 100
        settings.max_depth = 3
        return settings


if __name__ == "__main__":
    run({"omikuji": Omikuji, "omikuji Bonsai": Bonsai})
