"""Find the stock tickers that Chinese news and posts are about, from raw text.

Chinese is written without spaces. By default, single characters and pairs take the place of words, which needs no
dictionary; `TfIdf(tokens="jieba")` splits the text into words (extra `text`). Needs the data set `zh_stock_news` in the
folder RIPML_DATA.

python examples/chinese_tickers.py [--quick]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from ripml import RIPML, Tagger, datasets


def main() -> None:
    """Train on most of the documents, evaluate on the others, and show some."""
    if "RIPML_DATA" not in os.environ:
        print("skipped: set RIPML_DATA to the folder of the data sets")
        return
    documents = datasets.read(Path(os.environ["RIPML_DATA"]) / "zh_stock_news" / "docs.jsonl.gz")
    texts, names = np.array(documents.texts, dtype=object), np.array(documents.label_names, dtype=object)
    tickers = [names[row.indices].tolist() for row in documents.Y]
    order = [
        i for i in np.random.default_rng(0).permutation(len(texts)) if tickers[i]
    ]  # leaves out documents without a ticker
    train, test = order[200 : 1200 if "--quick" in sys.argv else None], order[:200]

    tagger = Tagger(model=RIPML.linear(random_state=0), min_count=2).fit(texts[train], [tickers[i] for i in train])
    measured = tagger.evaluate(texts[test], [tickers[i] for i in test])
    print(f"{len(train):,} documents learnt; on {len(test)} others P@1 is {100 * measured['P@1']:.0f} %")
    for i in test[:5]:
        text = " ".join(texts[i].split())[:30]
        best = ", ".join(f"{name} {score:.2f}" for name, score in tagger.suggest(texts[i], n=2))
        print(f"  {text} …  →  {best}   (is: {', '.join(tickers[i])})")


if __name__ == "__main__":
    main()
