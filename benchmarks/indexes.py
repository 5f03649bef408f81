"""Recall and time of every index, compared with exact search over the same rows in one run.

    python benchmarks/indexes.py [--quick] [--json PATH]

Label rows are generated (`ripml.lab.generated`) and projected to m = 100 dimensions. The queries are ẑ, predicted for
new rows by a ridge regression on features of length 1: once as predicted, as for the paper's votes, and once scaled
to length 1, as for the other decoders. 200,000 rows (--quick: 20,000). Time is given as a ratio to exact search of
the same queries, in a batch and one at a time; recall@20 is the share of the 20 nearest rows that were found.

With RIPML_DATA and without --quick also, on one thread: the 200 most similar rows of sparse rows, the tf-idf of
`msdocs`, by the largest terms compared with all terms, for 25,000, 50,000 and all rows; and the same of dense rows, 300
components of these by latent semantic analysis, by bits compared with all rows, in times of the processor, which other
work on the machine affects less.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from harness import Row, finish, has_data, options, side_by_side
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD

from ripml.base.parallel import one_blas_thread
from ripml.base.products import BitCodes
from ripml.base.workspace import Workspace
from ripml.decoding.training_rows import TrainingRows
from ripml.lab.generated import generate
from ripml.labels.ensembles import Gaussian
from ripml.labels.projection import Projection
from ripml.model.features import unit_rows
from ripml.neighbors import HNSW, IVF, LSH, Bits, Exact, Index, Searcher, bits
from ripml.regression import kernels
from ripml.tagging.documents import text_features

M, K, QUERIES, SINGLE = 100, 20, 256, 16
Floats = NDArray[np.float32]


def unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def embeddings(n: int) -> tuple[Floats, Floats]:
    """Label embeddings (n, m) of training rows, and predicted embeddings of new rows."""
    X, Y = generate(n + QUERIES)
    X = unit(X).astype(np.float64)
    Z = Projection(Gaussian(), M, 1, seed=0).embed(Y[:n], np.arange(Y.shape[1], dtype=np.uint64))
    known, mean, centre = X[:n], X[:n].mean(axis=0), Z.mean(axis=0, dtype=np.float64)
    gram = (known - mean).T @ (known - mean)
    gram.flat[:: len(gram) + 1] += 1.0
    Psi = scipy.linalg.solve(gram, (known - mean).T @ (Z - centre), assume_a="pos")
    return Z, ((X[n:] - mean) @ Psi + centre).astype(np.float32)


def stored(Z: Floats, Q: Floats, storage: str) -> tuple[Any, Floats]:
    """The rows in a storage type, and the queries in the same units."""
    if storage != "int8":
        return Z.astype(storage), Q
    scale = np.float32(127 / np.abs(Z).max())
    return np.round(Z * scale).astype(np.int8), Q * scale


def measured(name: str, searcher: Searcher, exact: Searcher, Q: Floats, truth: Any, rounds: int) -> list[Row]:
    ids, _ = searcher.query(Q, K)
    recall = np.mean([len(np.intersect1d(found, near)) for found, near in zip(ids, truth, strict=True)]) / K
    batch = side_by_side({"this": lambda: searcher.query(Q, K), "exact": lambda: exact.query(Q, K)}, rounds)

    def singly(one: Searcher) -> None:
        for row in range(SINGLE):
            one.query(Q[row : row + 1], K)

    single = side_by_side({"this": lambda: singly(searcher), "exact": lambda: singly(exact)}, rounds)
    return [
        (f"{name}, recall@{K}", float(recall), "≥ 0.95 (LSH 0.90)"),
        (
            f"{name}, batch / exact",
            batch["this"] / batch["exact"],
            f"≤ 1/20 (LSH 1/5); exact {1e6 * batch['exact'] / len(Q):.0f} µs",
        ),
        (
            f"{name}, single / exact",
            single["this"] / single["exact"],
            f"≤ 1/20 (LSH 1/5); exact {1e6 * single['exact'] / SINGLE:.0f} µs",
        ),
    ]


def indexes(quick: bool) -> dict[str, Index]:
    found: dict[str, Index] = {f"exact, {storage}": Exact(storage=storage) for storage in ("float16", "int8")}
    found["bits"] = Bits()
    found |= {f"ivf, {c} candidates": IVF(n_candidates=c) for c in (250, 500, 1000)}
    found |= {f"ivf, {p} probes": IVF(n_probe=p) for p in (16, 64)}
    found |= {f"ivf, {storage}": IVF(storage=storage) for storage in ("float16", "int8")}
    found |= {f"hnsw, ef {ef}": HNSW(ef=ef) for ef in ((100, 400) if quick else (200,))}
    return found | {f"lsh, {t} tables": LSH(n_tables=t, n_probes=16) for t in (2, 8)}


def tf_idf_rows() -> Any:
    """The pages of `msdocs`, in random order."""
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "msdocs" / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    features: Any = text_features("tfidf")
    X = unit_rows(features.fit_transform(texts).tocsr().astype(np.float32))
    return X[np.random.default_rng(0).permutation(X.shape[0])]


def similar_rows(X: Any, k: int = 200) -> list[Row]:
    """Milliseconds per query, their ratio, and recall, of likely rows and of all rows of `msdocs`."""
    Q, X, found = X[-QUERIES:], X[:-QUERIES], list[Row]()
    for n in (25_000, 50_000, X.shape[0]):
        rows = {
            kind: TrainingRows(
                kernels.Rows(X[:n], None, made(X[:n], Workspace())),
                np.zeros(n, np.int64),
                np.arange(n),
                kernels.Local(1.0, 0.1),
            )
            for kind, made in (("exact", kernels._Lists.made), ("likely", kernels._LargestFirst.made))
        }
        both = {kind: lambda some=some: some.nearest(Q, k) for kind, some in rows.items()}
        times = side_by_side(both, 3)
        found += [
            (f"msdocs, {n:,} rows: all rows, ms", 1e3 * times["exact"] / QUERIES, ""),
            (f"msdocs, {n:,} rows: likely rows, ms", 1e3 * times["likely"] / QUERIES, "grows slower than n"),
            (f"msdocs, {n:,} rows: likely / all", times["likely"] / times["exact"], "< 1 past 70,000 rows"),
            (f"msdocs, {n:,} rows: recall@{k}", rows["likely"].recall(Q, k) or 0.0, "≥ 0.95"),
        ]
    return found


def similar_dense_rows(X: Any, k: int = 200) -> list[Row]:
    """The same of dense rows, in milliseconds of the processor per query."""
    Z = unit(TruncatedSVD(300, n_iter=3, random_state=0).fit_transform(X).astype(np.float32) + np.float32(1e-12))
    Q, Z, n = Z[-QUERIES:], Z[:-QUERIES], len(Z) - QUERIES
    kinds = {"all": kernels._Dense(Z), "bits": kernels._Coded(Z, BitCodes(Z))}
    rows = {
        kind: TrainingRows(kernels.Rows(Z, None, made), np.zeros(n, np.int64), np.arange(n), kernels.Local(1.0, 0.1))
        for kind, made in kinds.items()
    }

    def cpu(some: TrainingRows, queries: list[Floats]) -> float:
        """Milliseconds per query, the second time."""
        for _ in range(2):
            start = time.thread_time()
            for query in queries:
                some.nearest(query, k)
            seconds = time.thread_time() - start
        return 1e3 * seconds / sum(len(query) for query in queries)

    found: list[Row] = []
    with one_blas_thread():
        for kind, some in rows.items():
            found += [
                (f"dense msdocs, {n:,} rows: {kind}, alone, ms of CPU", cpu(some, np.split(Q[:SINGLE], SINGLE)), ""),
                (f"dense msdocs, {n:,} rows: {kind}, in a batch, ms of CPU", cpu(some, [Q]), ""),
            ]
    return [*found, (f"dense msdocs: recall@{k}", rows["bits"].recall(Q, k) or 0.0, "≥ 0.95")]


def main() -> None:
    arguments = options(__doc__ or "")
    rounds = 2 if arguments.quick else 3
    Z, Q = embeddings(20_000 if arguments.quick else 200_000)
    rows: list[Row] = [("load of the machine before", os.getloadavg()[0], f"{os.cpu_count()} cores")]
    if not arguments.quick and has_data():
        X = tf_idf_rows()
        rows += similar_rows(X) + similar_dense_rows(X)
    bits.EXACT_VALUES = 0
    for kind, (A, B) in {"as predicted": (Z, Q), "length 1": (unit(Z), unit(Q))}.items():
        exact = Exact().build(A)
        truth, distances = exact.query(B, K)
        typical = np.median(np.square(A[:: max(1, len(A) // 1000)][:, None] - B[None, :64]).sum(axis=2))
        rows += [
            (
                f"{kind}: squared distance, {K}th / typical",
                float(np.median(distances[:, -1]) / typical),
                "1 is hopeless",
            ),
            (f"{kind}: different rows among all neighbours", len(np.unique(truth)) / truth.size, "share"),
        ]
        for name, index in indexes(arguments.quick).items():
            start = time.perf_counter()
            held, queries = stored(A, B, index.storage)
            searcher = index.build(held)
            rows.append((f"{kind}: {name}, build s", time.perf_counter() - start, ""))
            of_storage = exact if index.storage == "float32" else Exact(storage=index.storage).build(held)
            rows += measured(f"{kind}: {name}", searcher, of_storage, queries, truth, rounds)
    rows.append(("load of the machine after", os.getloadavg()[0], "this run is 1 to 2 of it"))
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
