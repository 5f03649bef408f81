"""`ripml --help` against importing scikit-learn, each in a new interpreter, in one run.

python benchmarks/startup.py [--quick] [--json PATH]
"""

from __future__ import annotations

import subprocess
import sys

from harness import Row, finish, options, side_by_side


def run(*words: str) -> None:
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    arguments = options(__doc__ or "")
    commands = {
        "ripml --help": lambda: run("-m", "ripml", "--help"),
        "import sklearn": lambda: run("-c", "import sklearn"),
    }
    taken = side_by_side(commands, 3 if arguments.quick else 7)
    rows: list[Row] = [(f"{name}, s", value, "") for name, value in taken.items()]
    rows.append(("ripml --help / import sklearn", taken["ripml --help"] / taken["import sklearn"], "≤ 0.5"))
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
