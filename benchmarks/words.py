"""Names of labels in texts: the speed of matching, and answers with and without a vocabulary.

    python benchmarks/words.py [--quick] [--json PATH] [--set tibkat|eurlex|speed]

Matching: 100,000 names, made of the words of real ones, and documents of 1,000 words. Answers: library records with GND
subjects (`tibkat`, English names, half of the records German), and EUR-Lex with the names of its concepts, each with
`Tagger()` and `Tagger(vocabulary=…)`, trained on the training part. Without RIPML_DATA, or with --quick, only matching
is measured, on the built-in set.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, finish, has_data

from ripml import Tagger, datasets
from ripml.datasets import read_vocabulary
from ripml.labels.concepts import Concept, Concepts
from ripml.text.matching import Name, NameMatcher
from ripml.text.tokens import tokens

SUGGESTIONS = 100
Rows = list[tuple[str, list[str]]]  # texts and their labels


def tibkat() -> tuple[Rows, Rows, Concepts]:
    """Training and test records, and the English names of subjects."""
    folder = Path(os.environ["RIPML_DATA"]) / "tibkat"
    parts: dict[str, Rows] = {"train": [], "test": []}
    with gzip.open(folder / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        for document in map(json.loads, file):
            parts[document["split"]].append((document["text"], document["labels"]))
    return parts["train"], parts["test"], read_vocabulary(folder / "names-en.tsv.gz", language="en")


def eurlex() -> tuple[Rows, Rows, Concepts]:
    """Documents of EUR-Lex; labels are called by the names of their concepts."""
    parts = datasets.load("eurlex")
    rows = [[(text, data.row_labels(i)) for i, text in enumerate(data.texts or ())] for data in parts]
    return rows[0], rows[1], Concepts.of(Concept(name, {"en": name}) for name in parts[0].label_names)


def speed(texts: list[str]) -> list[Row]:
    """Seconds to build a matcher of 100,000 names, and milliseconds for a document of 1,000 words."""
    random = np.random.default_rng(0)
    words = [word for text in texts for word in tokens(text)]
    distinct = sorted(set(words))
    numbers = random.integers(len(distinct), size=(100_000, 3)).tolist()
    names = [" ".join(distinct[i] for i in some[: 1 + number % 3]) for number, some in enumerate(numbers)]
    documents = [" ".join(words[start : start + 1000]) for start in range(0, min(len(words), 100_000) - 1000, 1000)]
    start = time.process_time()
    matcher = NameMatcher(Name(number, "en", name, True) for number, name in enumerate(names))
    built = time.process_time() - start
    matcher.find(documents)
    times = []
    for _ in range(3):
        start = time.process_time()
        found = matcher.find(documents)
        times.append(1000 * (time.process_time() - start) / len(documents))
    return [
        ("seconds to build a matcher of 100,000 names", built, "≤ 5"),
        ("milliseconds for 1,000 words", min(times), "≤ 1"),
        ("names found in 1,000 words", len(found.names) / len(documents), ""),
    ]


def quality(name: str, train: Rows, test: Rows, concepts: Concepts) -> list[Row]:
    """Answers without and with the names of labels."""
    rows: list[Row] = []
    for what, vocabulary in (("", None), (" with names", concepts)):
        start, cpu = time.perf_counter(), time.process_time()
        tagger = Tagger(vocabulary=vocabulary).fit([text for text, _ in train], [labels for _, labels in train])
        rows += [
            (f"{name}{what}: seconds of training", time.perf_counter() - start, ""),
            (f"{name}{what}: seconds of processors", time.process_time() - cpu, ""),
        ]
        start = time.process_time()
        suggested = tagger.suggest_many([text for text, _ in test], n=SUGGESTIONS)
        rows.append((f"{name}{what}: milliseconds per text", 1000 * (time.process_time() - start) / len(test), ""))
        seen = {label for _, labels in train for label in labels}
        found = measures([[label for label, _ in row] for row in suggested], [set(labels) for _, labels in test], seen)
        rows += [(f"{name}{what}: {measure}", figure, "") for measure, figure in found.items()]
    return rows


def measures(suggested: list[list[str]], truth: list[set[str]], seen: set[str]) -> dict[str, float]:
    """Means over all texts: P@k, the F1 of the five best, nDCG of all suggestions; and R@10 of labels without a row."""
    figures: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    discount = 1 / np.log2(np.arange(2, SUGGESTIONS + 2))
    for labels, right in zip(suggested, truth, strict=True):
        hit = np.array([label in right for label in labels])
        for k in (1, 3, 5):
            add(f"P@{k}, percent", 100 * hit[:k].sum() / k)
        add("F1@5", 2 * hit[:5].sum() / (5 + len(right)))
        add("nDCG", float(hit @ discount[: len(hit)] / discount[: len(right)].sum()))
        unseen = right - seen
        if unseen:
            add("R@10 of labels without a row", len(unseen & set(labels[:10])) / len(unseen))
    return {name: float(np.mean(values)) for name, values in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="matching only")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--set", choices=["tibkat", "eurlex", "speed"], help="this part only")
    arguments = parser.parse_args()
    sets: dict[str, Any] = {"tibkat": tibkat, "eurlex": eurlex} if has_data() and not arguments.quick else {}
    rows: list[Row] = []
    if arguments.set in (None, "speed"):
        rows += speed(datasets.load("numpydoc")[0].texts or [])
    for name, read in sets.items():
        if arguments.set in (None, name):
            rows += quality(name, *read())
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
