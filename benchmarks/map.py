"""The map: time, neighbours that stay neighbours, and labels of neighbours, beside PCA, UMAP and t-SNE in the same run.

    python benchmarks/map.py [--quick] [--json PATH] [--set msdocs] [--documents 100000]

The features of the training texts of a set are reduced once. From the same coordinates our layout, the first two
principal components and, where they are installed, umap-learn, openTSNE and PaCMAP make positions. For a sample of
5,000 documents: the share of the 10 nearest that are among the 10 nearest on the map, and the share of documents near
on the map that have a label in common. Then a tenth of the documents get labels of others: how well doubt tells
these, as area under the ROC curve. All times are seconds of the processor; the load of the machine is in the table.
Frames a second are those of Chromium without a graphics processor, while the wheel zooms. Without RIPML_DATA, or with
--quick, texts are made up.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, finish, has_data, options
from scipy.sparse import csr_array
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from ripml import RIPML, Store
from ripml.datasets import Dataset, documents_given
from ripml.model import layout
from ripml.model.layout import Layout, Reduction, arrange, neighbour_graph
from ripml.tagging.documents import text_features
from ripml.tagging.map import DocumentMap, doubt, regions

sys.path.append(str(Path(__file__).parent.parent / "tests"))

SAMPLE, NEAR, FRAMES = 5000, 10, 3000  # rows, neighbours, milliseconds


def documents(name: str, n: int) -> tuple[list[str], list[list[str]]]:
    """Training texts of a set and their labels."""
    with gzip.open(Path(os.environ["RIPML_DATA"]) / name / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if row.get("split", "train") == "train"][:n]
    return [row["text"] for row in rows], [row["labels"] for row in rows]


def made_up(n: int) -> tuple[list[str], list[list[str]]]:
    """Texts of 40 topics."""
    rng = np.random.default_rng(0)
    topics = rng.integers(40, size=n)
    words = (topics[:, None] * 12 + rng.integers(20, size=(n, 25))).tolist()
    return [" ".join(f"word{word}" for word in row) for row in words], [[f"topic{topic}"] for topic in topics.tolist()]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and the seconds of the processor."""
    start = time.process_time()
    return work(), time.process_time() - start


def rivals(E: Any) -> dict[str, Callable[[], Any]]:
    """The other methods that are installed, with their defaults and a fixed seed."""
    found: dict[str, Callable[[], Any]] = {}
    for module, make in (
        ("umap", lambda m: m.UMAP(random_state=0).fit_transform(E)),
        ("openTSNE", lambda m: m.TSNE(random_state=0, n_jobs=2).fit(E)),
        ("pacmap", lambda m: m.PaCMAP(random_state=0).fit_transform(E)),
    ):
        if importlib.util.find_spec(module) is not None:
            found[module] = lambda module=module, make=make: make(importlib.import_module(module))  # type: ignore[misc]
    return found


def quality(name: str, P: Any, near: Any, carried: Any, sample: Any) -> list[Row]:
    """How much of what is near stays near, and how much of what is near belongs together."""
    found = NearestNeighbors(n_neighbors=NEAR + 1).fit(P).kneighbors(P[sample], return_distance=False)[:, 1:]
    kept = np.mean(
        [len({*one} & {*two}) / NEAR for one, two in zip(near[sample].tolist(), found.tolist(), strict=True)]
    )
    return [
        (f"{name}: share of {NEAR} neighbours kept", float(kept), ""),
        (f"{name}: share of neighbours with a common label", together(found, carried, sample), ""),
    ]


def together(near: Any, carried: Any, sample: Any) -> float:
    """The share of neighbours with a label in common, of rows that have any."""
    rows = np.repeat(sample, near.shape[1])
    common = np.asarray(carried[rows].multiply(carried[near.ravel()]).sum(1)).ravel() > 0
    return float(common[np.diff(carried.indptr)[rows] > 0].mean())


def frames(store: Store) -> float:
    """Frames a second while the wheel zooms."""
    from page_server import chromium, serving

    with serving({"map": store}) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{address}#map/map")
        page.wait_for_selector("#map-middle li", timeout=120_000)
        rate: float = page.evaluate(
            """async (length) => {
              const stage = document.getElementById("map-stage");
              const place = { clientX: 500, clientY: 400, cancelable: true };
              const turn = (n) => new WheelEvent("wheel", { ...place, deltaY: n % 20 < 10 ? -20 : 20 });
              const start = performance.now();
              let n = 0;
              for (; performance.now() - start < length; n++) {
                stage.dispatchEvent(turn(n));
                await new Promise(requestAnimationFrame);
              }
              return (1000 * n) / (performance.now() - start);
            }""",
            FRAMES,
        )
    return rate


def store_rows(data: Dataset) -> list[Row]:
    """The map of a store: computed, known, sent and drawn."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(Path(folder) / "store", data, RIPML.linear(random_state=0), features="tfidf")
        with store:
            found, seconds = timed(store.map)
            rows = [("store.map() from texts, CPU seconds", seconds, "")]
        with Store.open(Path(folder) / "store", readonly=True) as store:
            found, seconds = timed(store.known_map)
            assert isinstance(found, DocumentMap)
            rows.append(("from its file, CPU seconds", seconds, ""))
            rows.append(("megabytes of points", len(found.packed()) / 1e6, "≤ 1"))
            rows.append(("megabytes of its file", (Path(folder) / "store" / "map.npz").stat().st_size / 1e6, ""))
            rows.append(("frames a second in Chromium", frames(store), "≥ 30"))
    return rows


def main() -> None:
    chosen = options(__doc__ or "", set="msdocs", documents=100_000)
    name, n = chosen.set or "msdocs", chosen.documents or 100_000
    is_real = has_data() and not chosen.quick
    texts, labels = documents(name, n) if is_real else made_up(3000)
    data = documents_given(texts, labels)
    X, seconds = timed(lambda: text_features("auto").learn(texts))
    rows: list[Row] = [("documents", len(texts), ""), ("features, CPU seconds", seconds, "")]
    E, seconds = timed(lambda: Reduction.fit(X)(X))
    rows.append(("reduced, CPU seconds", seconds, ""))
    (near, squares), seconds = timed(lambda: layout._nearest(E, E, 15, None, apart=True))
    rows.append(("neighbours, CPU seconds", seconds, ""))
    sample = np.random.default_rng(0).choice(len(E), min(SAMPLE, len(E)), replace=False)
    carried = csr_array(data.Y)
    start = layout._main_directions(E)
    methods = {"ours": lambda: arrange(neighbour_graph(near, squares), start), "PCA": lambda: start, **rivals(E)}
    rows.append(
        ("all features: share of neighbours with a common label", together(near[sample, :NEAR], carried, sample), "")
    )
    for method, work in methods.items():
        P, seconds = timed(work)
        what = ", after the neighbours" if method == "ours" else ", with its neighbours" if method != "PCA" else ""
        rows.append((f"{method}{what}, CPU seconds", seconds, ""))
        rows += quality(method, np.asarray(P), near[:, :NEAR], carried, sample)
    _, seconds = timed(lambda: regions(layout._on_square(np.asarray(start)), carried, data.label_names))
    rows.append(("names of regions, CPU seconds", seconds, ""))
    wrong = np.sort(np.random.default_rng(1).choice(len(E), len(E) // 10, replace=False))
    order = np.arange(len(E))
    order[wrong] = np.roll(wrong, 1)
    told, seconds = timed(lambda: doubt(near, carried[order]))
    rows.append(("doubt, CPU seconds", seconds, ""))
    rows.append(
        (
            "doubt of exchanged labels, ROC",
            float(roc_auc_score(order != np.arange(len(E)), np.nan_to_num(told, nan=0.5))),
            "≥ 0.7",
        )
    )
    positions = Layout.of(X).positions
    rows.append(("positions that differ in a second run", float((positions != Layout.of(X).positions).sum()), "0"))
    rows += store_rows(data)
    rows.append(("load of the machine", os.getloadavg()[0], ""))
    finish(rows, chosen.json)


if __name__ == "__main__":
    main()
