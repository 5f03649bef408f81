"""Write docs/reproduce.md from the results of a full run of `ripml reproduce all`.

    python benchmarks/reproduction_page.py [FOLDER]

With FOLDER, the results and figures of the run in that folder are first copied to docs/reproduce. The page keeps its
text above the marked line; everything below is generated.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from ripml.lab.reproduce.laboratory import EXPERIMENTS
from ripml.lab.reproduce.report import markdown

ROOT = Path(__file__).resolve().parent.parent
PAGE, RESULTS = ROOT / "docs" / "reproduce.md", ROOT / "docs" / "reproduce"
MARK = "<!-- Below this line: benchmarks/reproduction_page.py -->\n"


def copy_results(folder: Path) -> None:
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir()
    for experiment in EXPERIMENTS:
        place = folder / f"{experiment.number}-{experiment.word}"
        result = json.loads((place / "result.json").read_text())
        (RESULTS / f"{experiment.number}.json").write_text(json.dumps(result, ensure_ascii=False) + "\n")
        for number in range(1, len(result["figures"]) + 1):
            shutil.copy(place / f"{number}.png", RESULTS / f"{experiment.number}-{number}.png")


def results() -> str:
    """The text below the marked line."""
    parts = []
    for experiment in EXPERIMENTS:
        result = json.loads((RESULTS / f"{experiment.number}.json").read_text())
        text = markdown([(experiment, result)])
        pictures = [
            f"![{caption}](reproduce/{experiment.number}-{number}.png)\n"
            for number, caption in enumerate(result["figures"], start=1)
        ]
        heading, protocol, rest = text.split("\n\n", 2)
        parts.append("\n\n".join([heading, protocol.strip(), "\n".join(pictures).strip(), rest.strip()]) + "\n")
    return "\n".join(parts)


def main() -> None:
    if len(sys.argv) > 1:
        copy_results(Path(sys.argv[1]))
    above = PAGE.read_text().partition(MARK)[0]
    PAGE.write_text(f"{above}{MARK}\n{results()}")


if __name__ == "__main__":
    main()
