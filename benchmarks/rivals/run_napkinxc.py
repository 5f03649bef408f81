"""napkinXC with its default settings: a probabilistic label tree (PLT), and one-vs-rest by logistic regression (BR).

Weights are loaded as dense vectors, which is its fastest way to predict.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from protocol import TOP, Method, pairs_to_csr, run

models: Any = importlib.import_module("napkinxc.models")


class NapkinXC(Method):
    kind = "PLT"

    def train(self) -> None:
        # The folder is a parameter of the model: training writes the model's files to it.
        self.model = getattr(models, self.kind)(str(self.folder.parent / "model"), seed=self.seed, load_as="dense")
        self.model.fit(self.X, self.Y)

    def save(self, folder: Path) -> None:
        pass

    def open(self, folder: Path) -> None:
        self.model.load()

    def predict(self, queries: Any) -> Any:
        return self.model.predict_proba(queries, top_k=TOP)

    def scores(self, answer: Any, n_labels: int) -> Any:
        return pairs_to_csr(answer, n_labels)


class BinaryRelevance(NapkinXC):
    kind = "BR"


if __name__ == "__main__":
    run({"napkinXC PLT": NapkinXC, "napkinXC BR": BinaryRelevance})
