"""What `check` finds in documents before a model learns from them: in Python, on the command line, and in short."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from ripml.cli import main
from ripml.datasets import Dataset, check, documents_given, read
from ripml.datasets.checks import Finding
from ripml.datasets.documents import separators_in

WORDS = [f"word{letter}{other}" for letter in "abcdefghij" for other in "klmnopqrst"]
NAMES = ["billing", "mobile", "network", "refund", "account", "delivery", "parts", "garden"]


def corpus(n: int = 60, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    rng = random.Random(seed)
    return [" ".join(rng.sample(WORDS, 20)) for _ in range(n)], [rng.sample(NAMES, rng.randint(1, 3)) for _ in range(n)]


def found(data: Dataset, quick: bool = False) -> dict[str, Finding]:
    return {finding.name: finding for finding in check(data, quick=quick).findings}


def test_nothing_looks_wrong_in_data_without_faults() -> None:
    report = check(documents_given(*corpus()))
    assert report.warnings == []
    assert (report.rows, report.labels) == (60, len(NAMES))


def test_the_separator_inside_labels_is_suspected_with_the_fix_that_works(tmp_path: Path) -> None:
    texts, tags = corpus(300)
    data = documents_given(texts, [["/".join(names)] for names in tags])
    finding = found(data, quick=True)["separator"]
    assert finding.remedy == "tag_separator='/'"
    assert f"{len(NAMES)} labels would be left instead of {len(data.label_names)}" in finding.message
    rows = [json.dumps({"text": text, "labels": ["/".join(names)]}) for text, names in zip(texts, tags, strict=True)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    divided = read(tmp_path / "rows.jsonl", tag_separator="/")
    assert sorted(divided.label_names) == sorted(NAMES)
    assert "separator" not in found(divided)


def test_lists_that_are_sorted_are_recognised_however_many_labels_they_have() -> None:
    rng = random.Random(0)
    weights = [1 / (1 + rank) for rank in range(len(WORDS))]  # few labels are frequent, as in most data
    tags = [", ".join(sorted(set(rng.choices(WORDS, weights, k=5)))) for _ in range(600)]
    assert found(documents_given(corpus(600)[0], [[cell] for cell in tags]))["separator"].remedy == "tag_separator=','"
    assert separators_in(tags) == ("|", ";", ",")
    paths = [["/".join(["top", letter, word][: 1 + row % 3])] for row, word in enumerate(WORDS) for letter in "ab"]
    assert "separator" not in found(documents_given(corpus(len(paths))[0], paths))


def test_a_comma_that_is_part_of_names_is_no_separator() -> None:
    names = [f"{city}, {state}" for city, state in zip(WORDS[:40], 20 * ["Ontario", "Utah"], strict=True)]
    assert "separator" not in found(documents_given(corpus(40)[0], [[name] for name in names]))
    one = documents_given(["a b c"], [["billing, refund"]])
    assert "separator" not in found(one)
    assert check(one, known=NAMES).findings[0].remedy == "tag_separator=','"


def test_labels_that_are_missing_alike_or_rare_are_named() -> None:
    texts, tags = corpus()
    tags[0], tags[1], tags[2], tags[3] = ["nan"], ["None", "Billing"], ["log-in"], ["Login", "gardens"]
    findings = found(documents_given(texts, tags))
    assert (findings["missing"].count, findings["missing"].examples) == (2, ["nan", "None"])
    groups = {frozenset(example.split(" = ")) for example in findings["alike"].examples}
    assert groups == {
        frozenset(("billing", "Billing")),
        frozenset(("log-in", "Login")),
        frozenset(("garden", "gardens")),
    }
    assert set(findings["one row"].examples) <= {"nan", "None", "Billing", "log-in", "Login", "gardens"}
    assert not findings["one row"].is_warning


def test_empty_repeated_and_nearly_repeated_texts_are_counted() -> None:
    texts, tags = corpus()
    near = " ".join([*texts[5].split()[:-1], "another"])
    data = documents_given([*texts, "", f" {texts[0]}\n", near], [*tags, ["parts"], ["unlike"], tags[5]])
    findings = found(data)
    assert (findings["empty"].count, findings["empty"].examples) == (1, ["row 60"])
    assert (findings["copies"].count, findings["copies"].examples) == (1, ["row 0 = row 61"])
    assert findings["copies"].message.endswith("1 of them with other labels")
    assert findings["near copies"].examples == ["row 5 = row 62"]
    assert not findings["near copies"].is_warning
    assert "near copies" not in found(data, quick=True)


def test_near_duplicates_are_found_wherever_they_are_and_nothing_else() -> None:
    texts, tags = corpus(2000, seed=1)
    rng = random.Random(2)
    pairs = rng.sample(range(1000), 200)
    for place in pairs:
        words = texts[place].split()
        words[rng.randrange(2)] = "changed"  # two pairs of twenty words at most
        texts[1000 + place] = " ".join(words)
    assert check(documents_given(texts, tags)).findings[-1].count >= 190


def test_what_gives_a_label_away_is_found() -> None:
    texts, tags = corpus()
    tagged = [f"{text}\nTags: {names[0].upper()}, other" for text, names in zip(texts, tags, strict=True)]
    finding = found(documents_given(tagged, tags), quick=True)["labels in texts"]
    assert (finding.count, finding.examples[0]) == (60, f"row 0: {tags[0][0]}")
    texts = [f"{text} QUEUE_17" if "parts" in names else text for text, names in zip(texts, tags, strict=True)]
    assert found(documents_given(texts, tags))["giveaways"].examples == ["QUEUE_17 → parts"]
    ids = [f"case-{row}" for row in range(60)]
    data = replace(documents_given([f"{id}: {text}" for id, text in zip(ids, texts, strict=True)], tags), ids=ids)
    assert found(data)["ids in texts"].count == 60


def test_several_languages_are_named() -> None:
    english = ["the words of the author die with him and nobody reads them", "she went to the market with her mother"]
    german = ["die worte des dichters sterben nicht mit ihm allein", "sie ging gestern mit ihrer mutter auf den markt"]
    finding = found(documents_given([*english, *german], [["a"]] * 4))["languages"]
    assert finding.message == "the texts are in several languages: en 50 %, de 50 %"
    assert not finding.is_warning


def test_features_are_checked_for_their_labels_alone() -> None:
    X = csr_array(np.eye(2, dtype=np.float32))
    data = Dataset(X=X, Y=csr_array(np.eye(2, dtype=np.float32)), label_names=["nan", "a"], name="x")
    assert list(found(data)) == ["missing", "one row"]
    twice = found(data.take([0, 1, 0]))["copies"]
    assert twice.message == "1 row repeats the features of another row, 0 of them with other labels"
    assert twice.examples == ["row 0 = row 2"]


# --------------------------------------------------------------------------------------------------------------- shell


def run(capfd: pytest.CaptureFixture[str], *words: str | Path) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    assert stop.value.code == 0, err
    return out, err


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts, tags = corpus()
    path = tmp_path_factory.mktemp("check") / "rows.csv"
    rows = "".join(f"{text},{'/'.join(names)}\n" for text, names in zip(texts, tags, strict=True))
    path.write_text(f"Body,Tags\n{rows},nan\n")
    return path


def test_the_shell_prints_findings_with_options_as_remedies(table: Path, capfd: pytest.CaptureFixture[str]) -> None:
    columns = ("--text", "Body", "--labels", "Tags")
    out, _ = run(capfd, "check", table, *columns)
    assert "--tag-separator /" in out
    report = json.loads(run(capfd, "check", table, *columns, "--json")[0])
    data = read(table, text="Body", labels="Tags")
    assert [finding["count"] for finding in report["findings"]] == [one.count for one in check(data).findings]
    assert "wrong?  1 text is empty: row 60" in out
    divided, _ = run(capfd, "check", table, *columns, "--tag-separator", "/")
    assert "--tag-separator" not in divided


def test_train_and_update_warn_in_short(table: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    columns = ("--text-column", "Body", "--labels-column", "Tags")
    quick = ("--preset", "paper", "--dims", "8", "--ridge", "1", "--neighbors", "3")
    _, err = run(capfd, "train", table, tmp_path / "store", "--store", *columns, *quick)
    assert "such as 'nan'; leave the cells of labels empty." in err
    assert "; --tag-separator /." in err
    _, err = run(capfd, "update", tmp_path / "store", table, *columns)
    assert "ripml: warning: 1 text is empty, such as 'row 60'; fill or delete the rows" in err
    assert run(capfd, "check", tmp_path / "store")[0].startswith("ok    database")
