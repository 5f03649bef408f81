"""Suggest links between articles: in Wikispeedia, every label is itself an article.

The suggestions for an article are related articles. Some are links that it already has; the others are links that an
editor may want to add. Needs the data set `wikispeedia` in the folder RIPML_DATA.

python examples/related_articles.py [--quick]
"""

from __future__ import annotations

import os
import sys

from ripml import RIPML, datasets, metrics

SHOWN = ("Blue_Whale", "Alexander_Graham_Bell", "Volcano")  # articles of the test set


def main() -> None:
    """Train on the links of four fifths of the articles and suggest links for the others."""
    if "RIPML_DATA" not in os.environ:
        print("skipped: set RIPML_DATA to the folder of the data sets")
        return
    train, test = datasets.load("wikispeedia")
    rows = 800 if "--quick" in sys.argv else len(train)
    model = RIPML(random_state=0).fit(train.X[:rows], train.Y[:rows], label_names=train.label_names)
    scores = model.decision_function(test.X)
    print(f"trained on {rows:,} articles; of the first 5 links suggested for {len(test):,} others,", end=" ")
    print(f"{100 * metrics.precision_at_k(test.Y, scores, k=5):.0f} % exist")

    for name in SHOWN:
        row = (test.ids or []).index(name)
        linked = {test.label_names[j] for j in test.Y[[row]].indices}
        suggested = [label for label, _ in model.recommend(test.X[[row]], n=9)[0] if label != name]
        print(f"\n{name}".replace("_", " "))
        print("  links to:     ", named([label for label in suggested if label in linked]))
        print("  might link to:", named([label for label in suggested if label not in linked]))


def named(articles: list[str]) -> str:
    """The titles of articles, separated by commas."""
    return ", ".join(articles).replace("_", " ") or "nothing more"


if __name__ == "__main__":
    main()
