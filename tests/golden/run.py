"""Check the recorded results, or record them.

python tests/golden/run.py                      check all cases and folders; exit code 1 if any differs
python tests/golden/run.py --only 'paper*'      only those whose name matches
python tests/golden/run.py --write              record the cases as they are now
python tests/golden/run.py --folders            write the folders with the code as it is now
python tests/golden/run.py --answers            record what the folders answer now, and leave them as they are
python tests/golden/run.py --real --record FILE [--write]    on the data sets of RIPML_DATA, see `REAL`
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve()
sys.path[:0] = [str(_HERE.parents[1]), str(_HERE.parents[2] / "src")]  # the code beside these tests

import ripml  # noqa: E402
from golden import folders, recording  # noqa: E402
from golden.cases import CASES, EXACT_ONLY, scores  # noqa: E402
from ripml import RIPML, datasets, metrics  # noqa: E402

# Data set and preset of each fit on real data.
REAL: dict[str, tuple[str, Callable[..., Any]]] = {
    "bibtex-default": ("bibtex", RIPML),
    "bibtex-paper": ("bibtex", RIPML.paper),
    "bibtex-linear": ("bibtex", RIPML.linear),
    "eurlex-paper": ("eurlex", RIPML.paper),
    "eurlex-linear": ("eurlex", RIPML.linear),
}


def checked(pattern: str, exact: bool) -> Iterator[tuple[str, list[str]]]:
    """What differs in each case and folder."""
    recorded = recording.read()["cases"]
    for name in sorted({*recorded, *CASES}):
        if fnmatch(name, pattern) and (exact or name not in EXACT_ONLY):
            if name not in CASES or name not in recorded:
                yield name, ["is missing" if name not in CASES else "was not recorded"]
            else:
                try:
                    yield name, recording.differences(recorded[name], CASES[name](), exact)
                except Exception as error:
                    yield name, [f"fails: {type(error).__name__}: {error}"]
    for name in folders.FOLDERS:
        if fnmatch(f"folder-{name}", pattern):
            before = recording.entries_of(folders.expected(name))
            yield f"folder-{name}", recording.differences(before, folders.answers_of(name), exact)


def check(pattern: str) -> int:
    """Print what differs; the number of cases that do."""
    exact = recording.machine() == recording.read()["machine"]
    print("exact" if exact else f"another machine or versions: values within {recording.TOLERANCE:g}")
    n_wrong = n_checked = 0
    for name, wrong in checked(pattern, exact):
        n_checked, n_wrong = n_checked + 1, n_wrong + bool(wrong)
        for line in wrong:
            print(f"{name}: {line}")
    print(f"{n_checked} cases, {n_wrong} differ")
    return n_wrong


def record(pattern: str) -> None:
    """Record the cases as they are now; those that the pattern leaves out stay as they were."""
    before = recording.read()["cases"] if recording.RECORD.exists() else {}
    found = {
        name: recording.entries_of(case()) if fnmatch(name, pattern) else before[name]
        for name, case in CASES.items()
        if fnmatch(name, pattern) or name in before
    }
    recording.write(recording.RECORD, found, recording.machine())
    print(f"{len(found)} cases recorded")


def real(pattern: str, path: Path, writing: bool) -> int:
    """Scores on the data sets of RIPML_DATA: written to `path`, or compared with it. All BLAS threads are used."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    n_wrong = 0
    for name, (data, make) in REAL.items():
        if not fnmatch(name, pattern):
            continue
        start = time.perf_counter()
        train, test = datasets.load(data)
        predicted = make(random_state=0).fit(train.X, train.Y).decision_function(test.X)
        figures = {f"P@{k}": metrics.precision_at_k(test.Y, predicted, k=k) for k in (1, 3, 5)}
        entry = {**recording.entries_of(scores("scores", predicted))["scores"], **figures}
        same = entry["sha256"] == found.get(name, entry)["sha256"]
        if writing:
            found[name] = entry
        elif name not in found or not same:
            n_wrong += 1
        before = {key: found.get(name, {}).get(key) for key in figures}
        verdict = "written" if writing else "equal" if same and name in found else f"DIFFERS, was {before}"
        print(f"{name}: {verdict}, {figures}, {time.perf_counter() - start:.1f} s", flush=True)
    if writing:
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return n_wrong


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record instead of checking")
    parser.add_argument("--folders", action="store_true", help="write the model folders and stores anew")
    parser.add_argument("--answers", action="store_true", help="record what the folders answer now")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="cases whose name matches")
    parser.add_argument("--real", action="store_true", help="fits on the data sets of RIPML_DATA")
    parser.add_argument("--record", type=Path, metavar="FILE", help="where the results of --real are")
    given = parser.parse_args()
    start, n_wrong = time.perf_counter(), 0
    print(Path(ripml.__file__).parent)
    if given.real:
        if given.record is None:
            parser.error("--real needs --record FILE")
        n_wrong = real(given.only, given.record, given.write)
    else:
        with recording.one_blas_thread():
            if given.write:
                record(given.only)
            if given.folders:
                folders.write_folders()
            if given.answers:
                folders.record_answers()
            if not (given.write or given.folders or given.answers):
                n_wrong = check(given.only)
    print(f"{time.perf_counter() - start:.0f} s")
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
