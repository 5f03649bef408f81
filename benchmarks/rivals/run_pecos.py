"""PECOS XR-Linear with its default settings: PIFA label features, hierarchical k-means, a linear model per node.

Predicts with the saved model loaded for prediction only, which is faster.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from protocol import TOP, Method, run

xmc: Any = importlib.import_module("pecos.xmc")
XLinearModel: Any = importlib.import_module("pecos.xmc.xlinear.model").XLinearModel


class XRLinear(Method):
    def train(self) -> None:
        features = xmc.LabelEmbeddingFactory.create(self.Y, self.X, method="pifa")
        chain = xmc.Indexer.gen(features, indexer_type="hierarchicalkmeans")
        self.model = XLinearModel.train(self.X, self.Y.tocsc(), C=chain)

    def save(self, folder: Path) -> None:
        self.model.save(str(folder))

    def open(self, folder: Path) -> None:
        self.model = XLinearModel.load(str(folder), is_predict_only=True)

    def predict(self, queries: Any) -> Any:
        threads = -1 if queries.shape[0] > 1 else 1  # one for single rows, as in its README
        return self.model.predict(queries, only_topk=TOP, threads=threads)


if __name__ == "__main__":
    run({"PECOS XR-Linear": XRLinear})
