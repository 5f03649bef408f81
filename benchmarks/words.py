"""Names of labels in texts: the speed of matching, and answers with and without a vocabulary.

    python benchmarks/words.py [--quick] [--json PATH] [--set tibkat|eurlex|eurlex57k|msdocs|languages|speed]

Matching: 100,000 names, made of the words of real ones, and documents of 1,000 words; with data also the English names
of GND subjects in library records. Languages: how often that of a title or a record is detected, and the speed of
matching names in 2 and 24 languages with and without detection. Answers: these records (`tibkat`, half of them German),
and EUR-Lex with the names of its concepts, each with `Tagger()` and `Tagger(vocabulary=…)`, trained on the training
part; and EURLEX57K, whose labels have no names there, with `Tagger()`. New labels: 100 pages of `msdocs` that pages
link to, given to a fitted tagger by name only, then with 1, 2 and 5 documents each. Without RIPML_DATA, or with
--quick, only matching is measured, on the built-in set.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from harness import Row, finish, has_data, side_by_side

from ripml import Tagger, datasets
from ripml.datasets import read_vocabulary
from ripml.labels.concepts import Concept, Concepts
from ripml.text.languages import detect_language
from ripml.text.matching import Name, NameMatcher
from ripml.text.tokens import sentence_tokens, tokens

SUGGESTIONS = 100
EUROPEAN = "en de bg cs da el es et fi fr ga hr hu it lt lv mt nl pl pt ro sk sl sv"
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


def eurlex57k() -> tuple[Rows, Rows, None]:
    """Documents of the training and the test part; the names of labels are not known."""
    parts: dict[str, Rows] = {"train": [], "dev": [], "test": []}
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "eurlex57k" / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        for document in map(json.loads, file):
            parts[document["split"]].append((document["text"], document["labels"]))
    return parts["train"], parts["test"], None


def speed(texts: list[str]) -> list[Row]:
    """Seconds to build a matcher of 100,000 names, and milliseconds for a document of 1,000 words."""
    random = np.random.default_rng(0)
    words = [word for text in texts for word in tokens(text)]
    distinct = sorted(set(words))
    numbers = random.integers(len(distinct), size=(100_000, 3)).tolist()
    names = [" ".join(distinct[i] for i in some[: 1 + number % 3]) for number, some in enumerate(numbers)]
    documents = [" ".join(words[start : start + 1000]) for start in range(0, min(len(words), 100_000) - 1000, 1000)]
    return matching("100,000 names", names, documents)


def speed_of_records() -> list[Row]:
    """The same for the names of GND subjects, and library records put together to documents of 1,000 words."""
    _, records, concepts = tibkat()
    documents, some = list[str](), list[str]()
    for text, _ in records[:2000]:
        some.append(text)
        if sum(len(text.split()) for text in some) >= 1000:
            documents.append("\n".join(some))
            some.clear()
    names = [text for concept in concepts.values() for _, text, _ in concept.texts()]
    return matching(f"{len(names):,} names of GND", names, documents)


def matching(what: str, names: list[str], documents: list[str]) -> list[Row]:
    """Seconds to build a matcher, and milliseconds of 1,000 words for names that stand there, whole or in part."""
    start = time.process_time()
    matcher = NameMatcher(Name(number, "en", name, True) for number, name in enumerate(names))
    rows: list[Row] = [(f"seconds to build a matcher of {what}", time.process_time() - start, "≤ 5")]
    thousands = sum(len(tokens(document)) for document in documents) / 1000
    for kind, n_partly in (("", 0), (", and 30 in part", 30)):
        matcher.find(documents, n_partly)
        times = []
        for _ in range(3):
            start = time.process_time()
            found = matcher.find(documents, n_partly)
            times.append(1000 * (time.process_time() - start) / thousands)
        rows.append((f"{what}{kind}: milliseconds for 1,000 words", min(times), "≤ 1"))
    rows.append((f"{what}: found in 1,000 words", np.count_nonzero(found.count) / thousands, ""))
    return rows


def languages() -> list[Row]:
    """Detected languages of library records, and the time for names in several languages, relative to all names.

    The catalogue knows one language of a record, and some titles are in another. Names in other languages than English
    are English ones with an ending that no text has.
    """
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "tibkat" / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [record for record in map(json.loads, file) if record["split"] == "test"]
    european = EUROPEAN.split()
    rows: list[Row] = []
    for codes in (european[:2], european):
        for what, n_lines in (("titles", 1), ("records", None)):
            texts = ["\n".join(record["text"].split("\n")[:n_lines]) for record in records]
            found = [detect_language(sentence_tokens(text), codes) for text in texts]
            wrong = sum(code not in (None, record["lang"]) for code, record in zip(found, records, strict=True))
            name = f"{what}, {len(codes)} languages"
            rows.append((f"{name}: detected, percent", 100 * sum(code is not None for code in found) / len(found), ""))
            rows.append((f"{name}: not as in the catalogue, percent", 100 * wrong / len(found), ""))
    texts = [record["text"] for record in records[:1000]]
    words = [sentence_tokens(text) for text in texts]
    names = [concept.texts()[0][1] for concept in tibkat()[2].values()][:7000]
    for n in (2, 24):
        matcher = NameMatcher(
            Name(number, code, name if code == "en" else " ".join(word + code for word in name.split()), True)
            for code in european[:n]
            for number, name in enumerate(names)
        )

        def undetected(matcher: NameMatcher = matcher) -> None:
            with patch("ripml.text.matching.detect_language", return_value=None):
                matcher.find(texts, 30)

        def detected(matcher: NameMatcher = matcher) -> None:
            matcher.find(texts, 30)

        def detection(codes: frozenset[str] = frozenset(european[:n])) -> None:
            for some in words:
                detect_language(some, codes)

        seconds = side_by_side({"all": undetected, "detected": detected, "detection": detection}, rounds=4)
        what = f"7,000 names in {n} languages"
        rows += [
            (f"{what}: milliseconds per record, all names", seconds["all"], ""),
            (f"{what}: milliseconds per record, names in its language", seconds["detected"], ""),
            (f"{what}: milliseconds of these for detection", seconds["detection"], ""),
            (f"{what}: time relative to all names", seconds["detected"] / seconds["all"], "≤ 1" if n > 2 else ""),
        ]
    return rows


def quality(name: str, train: Rows, test: Rows, concepts: Concepts | None) -> list[Row]:
    """Answers without and, if labels have any, with names."""
    rows: list[Row] = []
    for what, vocabulary in (("", None), (" with names", concepts)):
        if what and vocabulary is None:
            continue
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
        truth = [set(labels) for _, labels in test]
        found = measures([[label for label, _ in row] for row in suggested], truth, seen)
        found["micro-F1"] = micro_f1(suggested, truth, tagger.documents_.model.threshold_)
        rows += [(f"{name}{what}: {measure}", figure, "") for measure, figure in found.items()]
    return rows


def measures(suggested: list[list[str]], truth: list[set[str]], seen: set[str]) -> dict[str, float]:
    """Means over all texts: P@k, RP@5, the F1 of the five best, nDCG of these and of all suggestions; and R@10 of
    labels without a row, among all suggestions and among those of such labels."""
    figures: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    discount = 1 / np.log2(np.arange(2, SUGGESTIONS + 2))
    for labels, right in zip(suggested, truth, strict=True):
        hit = np.array([label in right for label in labels])
        for k in (1, 3, 5):
            add(f"P@{k}, percent", 100 * hit[:k].sum() / k)
        add("F1@5", 2 * hit[:5].sum() / (5 + len(right)))
        add("RP@5", hit[:5].sum() / min(5, len(right)))
        add("nDCG@5", float(hit[:5] @ discount[: len(hit[:5])] / discount[: min(5, len(right))].sum()))
        add("nDCG", float(hit @ discount[: len(hit)] / discount[: len(right)].sum()))
        unseen = right - seen
        if unseen:
            add("R@10 of labels without a row", len(unseen & set(labels[:10])) / len(unseen))
            of_these = [label for label in labels if label not in seen]
            add("R@10 of labels without a row, among these", len(unseen & set(of_these[:10])) / len(unseen))
    return {name: float(np.mean(values)) for name, values in figures.items()}


def micro_f1(suggested: list[list[Any]], truth: list[set[str]], threshold: float) -> float:
    """2·TP/(2·TP + FP + FN) of the suggestions with a score of at least the threshold."""
    sets = [{label for label, score in row if score >= threshold} for row in suggested]
    hits = sum(len(found & right) for found, right in zip(sets, truth, strict=True))
    return 2 * hits / sum(len(found) + len(right) for found, right in zip(sets, truth, strict=True))


def msdocs(n: int = 10_000) -> tuple[Rows, Concepts]:
    """A sample of the training pages of `msdocs`, and the names of all pages, made of their ids.

    The id of a function is its kind, its header and its name: "nf-winuser-sendmessagea" is called "sendmessagea", or
    "sendmessage" without the letter that tells its two versions apart.
    """
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "msdocs" / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        pages = [page for page in map(json.loads, file) if page["split"] == "train" and page["labels"]]
    sample = np.random.default_rng(0).choice(len(pages), n, replace=False).tolist()
    rows = [(pages[i]["text"], pages[i]["labels"]) for i in sample]
    names: dict[str, list[str]] = {}
    for id in sorted({label for _, labels in rows for label in labels}):
        parts = id.split("-")
        name = " ".join(parts[2:] if len(parts[0]) == 2 and parts[0][0] == "n" and len(parts) > 2 else parts)
        names[id] = [name, name[:-1]] if name[-1] in "aw" and parts[0] in ("nf", "ns") else [name]
    return rows, Concepts.of(
        Concept(id, {"en": name}, {"en": tuple(others)} if others else {}) for id, (name, *others) in names.items()
    )


def new_labels(rows: Rows, concepts: Concepts, n_labels: int = 100) -> list[Row]:
    """R@10 of labels that are new to a fitted tagger: given by name only, then with 1, 2 and 5 documents each.

    The tagger is fitted on the documents that carry none of them. Of those that do, some are learnt, and the others
    are asked: R@10 is the mean share of the new labels of a document among its ten best suggestions.
    """
    random = np.random.default_rng(0)
    carriers: dict[str, list[int]] = {}
    for i, (_, labels) in enumerate(rows):
        for label in labels:
            carriers.setdefault(label, []).append(i)
    frequent = sorted(label for label, some in carriers.items() if len(some) >= 8)
    new = {frequent[i] for i in random.choice(len(frequent), n_labels, replace=False).tolist()}
    held_back = [i for i, (_, labels) in enumerate(rows) if new & set(labels)]
    fitted = [row for i, row in enumerate(rows) if not new & set(row[1])]
    # The documents that are learnt, in the order in which each label gets its next one.
    learnt: list[int] = []
    n_learnt = dict.fromkeys(sorted(new), 0)
    lessons: dict[int, int] = {}  # documents of each label ↦ documents that are learnt by then
    for k in range(1, 6):
        for label in n_learnt:
            waiting = (i for i in carriers[label] if i not in learnt)
            while n_learnt[label] < k and (document := next(waiting, None)) is not None:
                learnt.append(document)
                for other in new & set(rows[document][1]):
                    n_learnt[other] += 1
        lessons[k] = len(learnt)
    asked = [rows[i] for i in held_back if i not in learnt]
    truth = [new & set(labels) for _, labels in asked]
    known = concepts.only(exclude=sorted(new))

    def measured(tagger: Tagger, what: str) -> list[Row]:
        suggested = tagger.suggest_many([text for text, _ in asked], n=100)
        rows = list(zip(truth, suggested, strict=True))
        recall = [len(some & {label for label, _ in row[:10]}) / len(some) for some, row in rows]
        pairs = [(score, label in some) for some, row in rows for label, score in row if label in new]
        scores, right = np.array(pairs, np.float64).reshape(-1, 2).T
        return [
            (f"{what}: R@10", float(np.mean(recall)), "> 0" if what.endswith("by name only") else ""),
            (f"{what}: mean score of new labels", float(scores.mean()) if len(scores) else 0.0, ""),
            (f"{what}: share of them that is right", float(right.mean()) if len(right) else 0.0, ""),
        ]

    def fit(vocabulary: Concepts) -> Tagger:
        return Tagger(vocabulary=vocabulary).fit([text for text, _ in fitted], [labels for _, labels in fitted])

    name = f"msdocs, {n_labels} new labels"
    figures: list[Row] = [
        (f"{name}: documents at the fit", len(fitted), ""), (f"{name}: documents asked", len(asked), ""),
    ]  # fmt: skip
    figures += measured(fit(concepts), f"{name}, in the vocabulary at the fit")
    start = time.perf_counter()
    tagger = fit(known)
    figures.append((f"{name}: seconds of training", time.perf_counter() - start, ""))
    start = time.perf_counter()
    tagger.set_vocabulary(concepts)
    figures.append((f"{name}: seconds to set the vocabulary", time.perf_counter() - start, ""))
    figures += measured(tagger, f"{name}, by name only")
    done = 0
    for k in (1, 2, 5):
        some = [rows[i] for i in learnt[done : lessons[k]]]
        tagger.learn([text for text, _ in some], [labels for _, labels in some])
        done = lessons[k]
        figures += measured(tagger, f"{name}, {k} document{'s' * (k > 1)} each")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="matching only")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--set", choices=["tibkat", "eurlex", "eurlex57k", "msdocs", "languages", "speed"], help="this part only"
    )
    arguments = parser.parse_args()
    sets: dict[str, Any] = {}
    if has_data() and not arguments.quick:
        sets = {"tibkat": tibkat, "eurlex": eurlex, "eurlex57k": eurlex57k}
    rows: list[Row] = []
    if arguments.set in (None, "speed"):
        rows += speed(datasets.load("numpydoc")[0].texts or [])
        rows += speed_of_records() if sets else []
    if sets and arguments.set in (None, "languages"):
        rows += languages()
    for name, read in sets.items():
        if arguments.set in (None, name):
            rows += quality(name, *read())
    if sets and arguments.set in (None, "msdocs"):
        rows += new_labels(*msdocs())
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
