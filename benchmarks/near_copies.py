"""Where the labels of nearly equal texts differ, how often that is an error, by the similarity of the texts.

    RIPML_DATA=… .venv/bin/python benchmarks/near_copies.py [--quick] [--json FILE] [--texts N]

One label in ten of training texts is made wrong or missing, as in `label_audit.py`. Of the labels that one of two
similar texts carries and the other does not, the share is counted that is such an error. Then the time that all texts
of msdocs take.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from harness import Row, finish, has_data, options
from label_audit import SEED, damaged

from ripml.datasets.checks import near_duplicates

BANDS = (0.8, 0.85, 0.9, 0.95, 1.0)
SETS = {"msdocs": 15_000, "eurlex57k": 12_000, "tibkat": 15_000}


def texts_of(name: str, most: int | None) -> tuple[list[str], list[set[str]]]:
    """Distinct training texts with their labels, all or so many drawn at random."""
    with gzip.open(Path(os.environ["RIPML_DATA"]) / name / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        pages = [page for page in map(json.loads, file) if page["split"] == "train" and page["labels"]]
    pages = list({" ".join(page["text"].split()): page for page in pages if page["text"].strip()}.values())
    chosen = np.sort(np.random.default_rng(0).permutation(len(pages))[:most]).tolist()
    return [" ".join(pages[i]["text"].split()) for i in chosen], [set(pages[i]["labels"]) for i in chosen]


def errors(name: str, most: int) -> list[Row]:
    """The figures of a set, by similarity."""
    texts, labels = texts_of(name, most)
    columns = {label: column for column, label in enumerate(sorted(set().union(*labels)))}
    pairs = np.array([(row, columns[label]) for row, some in enumerate(labels) for label in sorted(some)]).T
    true = scipy.sparse.csr_array((np.ones(pairs.shape[1]), tuple(pairs)), shape=(len(texts), len(columns)))
    true.sort_indices()
    before, after = (_sets(Y) for Y in (true, damaged(true, SEED)))
    counted: dict[float, list[tuple[int, int, int]]] = {low: [] for low in BANDS[:-1]}
    for a, b, similarity in near_duplicates(texts):
        differing = after[a] ^ after[b]
        n_wrong = sum(any((label in after[row]) != (label in before[row]) for row in (a, b)) for label in differing)
        counted[max(low for low in BANDS[:-1] if low <= similarity)].append((1, len(differing), n_wrong))
    rows: list[Row] = []
    for low, high in pairwise(BANDS):
        found = np.array(counted[low], np.int64).reshape(-1, 3).sum(axis=0).tolist()
        what, differ, wrong = f"{name}, similarity {low:.2f} to {high:.2f}", found[1], found[2]
        rows.append((f"{what}: pairs", found[0], ""))
        rows.append((f"{what}: share of {differ:,} differing labels that are errors", wrong / max(differ, 1), ""))
    return rows


def _sets(Y: Any) -> list[set[int]]:
    return [set(Y.indices[a:b].tolist()) for a, b in pairwise(Y.indptr.tolist())]


def main() -> None:
    arguments = options(__doc__ or "", texts=0)
    if not has_data():
        print("skipped: set RIPML_DATA to the folder with msdocs, eurlex57k and tibkat")
        return
    sets = {"msdocs": 3000} if arguments.quick else SETS
    rows = [row for name, most in sets.items() for row in errors(name, arguments.texts or most)]
    texts, _ = texts_of("msdocs", 10_000 if arguments.quick else None)
    start = time.process_time()
    found = near_duplicates(texts, 0.9)
    cpu = time.process_time() - start
    rows.append((f"msdocs, {len(texts):,} texts: pairs of similarity 0.9", len(found), ""))
    rows.append((f"msdocs, {len(texts):,} texts: seconds of CPU", cpu, "≤ 30"))
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
