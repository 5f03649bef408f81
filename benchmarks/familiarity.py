"""Texts unlike anything known: other sets' texts and shuffled characters against held-out texts of the same set.

    python benchmarks/familiarity.py [--quick] [--json PATH] [--texts 5000]

For EUR-Lex, tibkat and msdocs, the words of `--texts` training texts, and 600 test texts of each. The area under the
ROC curve of the familiarity of own texts against others, the share of each that is told to be unlike anything known,
and the time of an answer, and of the familiarity of its text. Without RIPML_DATA, or with --quick, with texts that are
made up.
"""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import numpy as np
from harness import Row, finish, has_data, options, side_by_side
from sklearn.metrics import roc_auc_score

from ripml import RIPML, Tagger
from ripml.tagging.familiarity import UNFAMILIAR, Familiarity
from ripml.text import TfIdf

SETS, TEST = ("eurlex", "tibkat", "msdocs"), 600


def split(name: str, n: int, rng: random.Random) -> tuple[list[str], list[str]]:
    """Training and test texts of a set."""
    with gzip.open(Path(os.environ["RIPML_DATA"]) / name / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        documents = list(map(json.loads, file))
    rng.shuffle(documents)
    if name == "eurlex":  # its texts have no fixed split
        return [row["text"] for row in documents[TEST:][:n]], [row["text"] for row in documents[:TEST]]
    parts = [[row["text"] for row in documents if row["split"] == part] for part in ("train", "test")]
    return parts[0][:n], parts[1][:TEST]


def made_up(n: int, rng: random.Random) -> dict[str, tuple[list[str], list[str]]]:
    """Texts of two sets whose words overlap in part."""
    sets = {}
    for name, first in (("one", 0), ("other", 150)):
        words = [f"word{i}" for i in range(first, first + 300)]
        texts = [" ".join(words[min(int(rng.expovariate(0.02)), 299)] for _ in range(40)) for _ in range(n + 200)]
        sets[name] = texts[:n], texts[n:]
    return sets


def measure(sets: dict[str, tuple[list[str], list[str]]], rng: random.Random) -> list[Row]:
    """Lines about all pairs of sets."""
    rows: list[Row] = []
    for name, (train, test) in sets.items():
        vectorizer = TfIdf(tokens="any", letters=4, min_df="auto").fit(train)
        familiar = Familiarity.fit(vectorizer, train)
        assert familiar is not None
        own = familiar.of(vectorizer, test)
        rows.append((f"{name}: own texts told to be unlike anything known", _told(own), "≤ 0.02"))
        strange = {f"{other} texts": texts for other, (_, texts) in sets.items() if other != name}
        strange["shuffled characters"] = ["".join(rng.sample(text, len(text))) for text in test]
        for what, texts in strange.items():
            found = familiar.of(vectorizer, texts)
            truth = [1] * len(own) + [0] * len(found)
            rows.append((f"{name} against {what}: AUC", float(roc_auc_score(truth, own + found)), "≥ 0.95"))
            rows.append((f"{name} against {what}: told", _told(found), ""))
    return rows


def _told(found: list[float]) -> float:
    return float(np.mean(np.array(found) <= UNFAMILIAR))


def speed(texts: list[str]) -> list[Row]:
    """Milliseconds of one answer, and of the familiarity in it."""
    tags = [[" ".join(text.split()[:1])] for text in texts]
    tagger = Tagger(model=RIPML(random_state=0)).fit(texts[:1500], tags[:1500])
    asked = texts[1500:1700]
    seconds = side_by_side(
        {
            "suggest": lambda: [tagger.suggest(text) for text in asked],
            "familiarity": lambda: [tagger.documents_.familiarity([text]) for text in asked],
        },
        3,
    )
    each = {name: 1000 * value / len(asked) for name, value in seconds.items()}
    return [(f"{name}, ms per text", value, "") for name, value in each.items()]


def main() -> None:
    """Measure, and print what was found."""
    given, rng = options(__doc__ or "", texts=5000), random.Random(0)
    n = given.texts or 5000
    real = has_data() and not given.quick
    sets = {name: split(name, n, rng) for name in SETS} if real else made_up(1000, rng)
    rows = measure(sets, rng)
    if real:
        rows += speed(sets["tibkat"][0])
    finish(rows, given.json)


if __name__ == "__main__":
    main()
