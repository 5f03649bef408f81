"""Subject indexing with Annif's files: a vocabulary, a corpus, and suggested subjects for new documents.

`prepare` writes the files that an Annif user has: `vocabulary.tsv` (URI and label of each EuroVoc concept) and the
short-text corpora `train.tsv` and `test.tsv` (a text and its URIs on each line). `main` trains on the first, evaluates
on the second, and writes suggestions as a full-text corpus: for each document `NAME.txt`, and `NAME.tsv` with URIs and
labels.

Needs the data set `eurlex` in the folder RIPML_DATA. Files go to FOLDER, or to a temporary folder that is removed at
the end.

python examples/subject_indexing.py [--quick] [FOLDER]
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
from pathlib import Path

from ripml import RIPML, Tagger, datasets


def prepare(folder: Path, n_train: int) -> None:
    """Write the vocabulary and the two corpora."""
    home = Path(os.environ["RIPML_DATA"]) / "eurlex"
    concepts = dict(line.split("\t") for line in (home / "labels.txt").read_text(encoding="utf-8").splitlines())
    lines = [f"<http://eurovoc.europa.eu/{number}>\t{name}\n" for number, name in concepts.items()]
    (folder / "vocabulary.tsv").write_text("".join(lines), encoding="utf-8")
    documents: dict[str, list[dict[str, object]]] = {"train": [], "test": []}
    with gzip.open(home / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            document = json.loads(line)
            text = " ".join(document["text"].split())  # the format has one line per document
            labels = [f"http://eurovoc.europa.eu/{number}" for number in document["labels"]]
            documents[document["split"]].append({"text": text, "labels": labels})
    for part, n in (("train", n_train), ("test", 300)):
        some = documents[part][:: max(1, len(documents[part]) // n)]  # evenly, because they are ordered by year
        datasets.write(datasets.documents_given(some[:n]), folder / f"{part}.tsv", "annif")


def main() -> None:
    """Train on one corpus, evaluate on the other, and write subjects for three documents."""
    if "RIPML_DATA" not in os.environ:
        print("skipped: set RIPML_DATA to the folder of the data sets")
        return
    words = [word for word in sys.argv[1:] if word != "--quick"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(words[0] if words else temporary)
        prepare(folder, 1000 if "--quick" in sys.argv else 17_383)

        train = datasets.read(folder / "train.tsv", "annif", vocabulary=folder / "vocabulary.tsv")
        test = datasets.read(folder / "test.tsv", "annif", vocabulary=folder / "vocabulary.tsv")
        tagger = Tagger(model=RIPML.linear(random_state=0), min_count=2).fit(train)
        measured = tagger.evaluate(test)
        print(f"{len(train):,} documents, {len(train.label_names):,} concepts; on {len(test)} others", end=" ")
        print(", ".join(f"{name} {100 * measured[name]:.0f} %" for name in ("P@1", "P@5", "nDCG@5")))

        texts = (test.texts or [])[:3]
        suggested = tagger.suggest_many(texts, n=5)
        rows = [
            {"id": f"new-{i}", "text": text, "labels": [name for name, _ in best]}
            for i, (text, best) in enumerate(zip(texts, suggested, strict=True), start=1)
        ]
        datasets.write(datasets.documents_given(rows), folder / "new", "annif", vocabulary=folder / "vocabulary.tsv")
        print(f"\n{texts[0][:110]} …\n\nnew/new-1.tsv")
        print((folder / "new" / "new-1.tsv").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
