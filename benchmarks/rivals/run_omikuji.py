"""omikuji: partitioned label trees (Parabel) with default settings, and the Bonsai-like settings of its README.

Training reads a file that is written before the clock starts; omikuji parses it inside its training call. Prediction is
the C function behind omikuji's Python call, after `densify_weights` with the default density of its command line. It
releases the interpreter lock, so a batch is divided among threads, one for each core; a single row has its three trees
on all cores. Rows are converted for it before the clock starts.
"""

from __future__ import annotations

import importlib
import os
from concurrent.futures import ThreadPoolExecutor
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
        ffi, indices, values = omikuji.ffi, X.indices.tolist(), X.data.tolist()
        return [
            (ffi.new("uint32_t[]", indices[start:end]), ffi.new("float[]", values[start:end]), end - start)
            for start, end in pairwise(X.indptr.tolist())
        ]

    def predict(self, queries: Any) -> Any:
        if len(queries) == 1:
            return [self._predict(queries[0])]
        cores = len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(cores) as pool:
            parts = [queries[core::cores] for core in range(cores)]
            found = list(pool.map(lambda part: [self._predict(query) for query in part], parts))
        return [found[i % cores][i // cores] for i in range(len(queries))]

    def _predict(self, query: Any) -> list[tuple[int, float]]:
        features, values, n = query
        labels, scores = omikuji.ffi.new("uint32_t[]", TOP), omikuji.ffi.new("float[]", TOP)
        found = omikuji.lib.omikuji_predict(
            self.model._model_ptr, 10, n, features, values, TOP, labels, scores, self.model._thread_pool.ptr
        )
        return [(labels[i], scores[i]) for i in range(found)]

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
