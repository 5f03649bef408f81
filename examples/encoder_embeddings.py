"""Use embeddings instead of words: any object with `encode`, or with scikit-learn's `fit` and `transform`.

If sentence-transformers is installed, `--model all-MiniLM-L6-v2` uses one of its models (it is downloaded). By default
the encoder is latent semantic analysis: 200 components of tf-idf, by scikit-learn.

python examples/encoder_embeddings.py [--quick] [--model NAME]
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from ripml import RIPML, Tagger, datasets


def encoder() -> Any:
    """Return an encoder, which turns texts into dense rows."""
    if "--model" in sys.argv:
        module = importlib.import_module("sentence_transformers")
        return module.SentenceTransformer(sys.argv[sys.argv.index("--model") + 1])
    return make_pipeline(TfidfVectorizer(sublinear_tf=True, min_df=2), TruncatedSVD(200, random_state=0))


def main() -> None:
    """Compare words and embeddings on the documentation of NumPy, SciPy and scikit-learn."""
    train, test = datasets.load("numpydoc")
    rows = 400 if "--quick" in sys.argv else len(train)
    texts, test_texts = (train.texts or [])[:rows], test.texts or []
    links = [[train.label_names[j] for j in row.indices] for row in train.Y[:rows]]
    test_links = [[train.label_names[j] for j in row.indices] for row in test.Y]
    for name, features in (("words", "tfidf"), ("embeddings", encoder())):
        tagger = Tagger(features, RIPML.linear(random_state=0)).fit(texts, links)
        measured = tagger.evaluate(test_texts, test_links)
        print(
            f"{name:10}  " + "  ".join(f"{metric} {100 * measured[metric]:.1f} %" for metric in ("P@1", "P@3", "P@5"))
        )
        functions = [function for function, _ in tagger.suggest("solve a least squares problem", n=3)]
        print(f"{'':10}  least squares: {', '.join(functions)}")


if __name__ == "__main__":
    main()
