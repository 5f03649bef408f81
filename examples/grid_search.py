"""RIPML in a scikit-learn pipeline with grid search and cross-validation, scored by P@1.

The default RIPML chooses its own settings; for the paper's algorithm, the number of neighbours is up to us.

python examples/grid_search.py
"""

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

from ripml import RIPML, datasets


def main() -> None:
    """Choose the number of neighbours by cross-validation on part of the built-in data set."""
    train, _ = datasets.load("numpydoc")
    texts, Y = (train.texts or [])[:600], train.Y[:600]
    pipeline = make_pipeline(TfidfVectorizer(min_df=2), RIPML.paper(ridge=0.1, random_state=0))
    search = GridSearchCV(pipeline, {"ripml__n_neighbors": [2, 5, 10]}, cv=KFold(3, shuffle=True, random_state=0))
    search.fit(texts, Y)
    for k, precision in zip((2, 5, 10), search.cv_results_["mean_test_score"], strict=True):
        print(f"k = {k:2}: P@1 = {100 * precision:.1f} %")
    print(f"best: {search.best_params_}")
    print("If the figures differ by less than a point, the choice matters little. RIPML() makes it automatically.")


if __name__ == "__main__":
    main()
