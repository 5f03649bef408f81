"""The cost of choosing settings: a fit that chooses all of them against fits with the settings that it chose.

    RIPML_DATA=folder python benchmarks/tuning.py [--quick] [--json PATH]

The plain fit gets relevance, kernel, ridge, ε, the number of neighbours and a decoder without trees, so that only the
threshold is left to choose; the other fit has the default settings. --quick uses Bibtex only.
"""

from __future__ import annotations

from harness import Row, finish, has_data, options, side_by_side

from ripml import RIPML, datasets
from ripml.decoding.decoders import LeastSquares


def compared(name: str, preset: str) -> Row:
    """The ratio of the two times."""
    train, _ = datasets.load(name)

    def auto() -> RIPML:
        return (RIPML if preset == "default" else RIPML.linear)(random_state=0).fit(train.X, train.Y)

    chosen = auto()
    plain = RIPML(
        kernel=chosen.kernel_,
        relevance=chosen.chosen_["relevance"],
        ridge=float(chosen.ridge_[0]),
        n_neighbors=50,
        decoder=LeastSquares(chosen.chosen_["epsilon"] or 0.3),
        random_state=0,
    )
    rounds = 1 if name == "eurlex" else 3
    seconds = side_by_side({"auto": auto, "plain": lambda: plain.fit(train.X, train.Y)}, rounds)
    return f"{name}, {preset}: fit / plain fit", seconds["auto"] / seconds["plain"], "≤ 6"


def main() -> None:
    arguments = options(__doc__ or "")
    if not has_data():
        print("skipped: set RIPML_DATA to the folder with bibtex, delicious and eurlex")
        return
    names = ("bibtex",) if arguments.quick else ("bibtex", "delicious", "eurlex")
    finish([compared(name, preset) for name in names for preset in ("default", "linear")], arguments.json)


if __name__ == "__main__":
    main()
