"""What goes wrong for a new user, and how it is told: steps of first pages, empty texts, unknown labels, evidence."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from test_cli import run

import ripml
from ripml import RIPML, Store, Tagger, datasets
from ripml.base.errors import DataError
from ripml.cli.app import app
from ripml.cli.summaries import format_left_out, model_summary
from ripml.tagging.documents import DocumentModel
from ripml.text import TfIdf

ROOT = Path(__file__).parents[1]
TEXTS = [
    "The app crashes when I log in with my phone", "Reset password mail never arrives", "The mails are lost",
    "I was charged twice this month", "The invoice shows the wrong amount", "I paid the invoice twice",
]  # fmt: skip
TAGS = [["login"], ["email"], ["email"], ["billing"], ["billing"], ["billing"]]


def rows(path: Path, texts: list[str], labels: list[list[str]]) -> Path:
    lines = (json.dumps({"text": text, "labels": of_text}) for text, of_text in zip(texts, labels, strict=True))
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def model() -> DocumentModel:
    data = datasets.documents_given(TEXTS, TAGS)
    return DocumentModel.fit(
        data, None, RIPML.linear(random_state=0), features=TfIdf(tokens="any", letters=4, min_df=1)
    )


def test_the_documents_that_the_tour_names_are_in_the_file_that_it_makes() -> None:
    tour = (ROOT / "docs/tour.md").read_text()
    made = re.search(r"cat > tickets\.jsonl <<'END'\n(.*?)\nEND", tour, re.DOTALL)
    assert made is not None
    ids = {json.loads(line)["id"] for line in made[1].splitlines()}
    named = [shlex.split(line, comments=True)[3:] for line in tour.splitlines() if line.startswith("ripml forget")]
    assert named
    assert all(ids.issuperset(forgotten) for forgotten in named)


def test_a_document_that_is_not_there_is_told_with_an_id_that_is(tmp_path: Path) -> None:
    data = datasets.read(rows(tmp_path / "a.jsonl", TEXTS, TAGS))
    with (
        Store.create(tmp_path / "store", data, RIPML.linear(random_state=0)) as store,
        pytest.raises(DataError, match=r"there is no document 'ticket-17'; ids here are such as '0'\."),
    ):
        store.forget(["ticket-17"])


@pytest.mark.parametrize("options", [[], ["--store"]])
def test_training_on_empty_texts_is_refused_with_the_option_that_helps(
    options: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = rows(tmp_path / "empty.jsonl", ["", "  "], [["a"], ["b"]])
    _, told = run(capfd, "train", data, tmp_path / "made", *options, code=2)
    assert "all texts are empty; --text-column names another column." in told


def test_rows_whose_labels_are_all_unknown_are_refused_and_not_measured_as_zeros(
    model: DocumentModel, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = rows(tmp_path / "unknown.jsonl", TEXTS[:2], [["Login"], ["Mail"]])
    with pytest.raises(DataError, match="no label here, such as 'Login', is one of the model's"):
        model.evaluate(datasets.read(data))
    model.save(tmp_path / "model")
    out, told = run(capfd, "evaluate", tmp_path / "model", data, code=2)
    assert not out
    assert "there is nothing to measure" in told
    some = datasets.read(rows(tmp_path / "some.jsonl", TEXTS[:2], [["login"], ["Mail"]]))
    assert 0 < model.evaluate(some)["recall@5"] < 1


def test_a_model_of_few_rows_shows_no_precision(model: DocumentModel) -> None:
    estimator: Any = model.model
    assert estimator.left_out_precision_
    assert not model.left_out_precision
    assert format_left_out(model_summary(model)) == "too few rows to measure"
    enough = datasets.documents_given(TEXTS * 17, TAGS * 17)
    fitted = DocumentModel.fit(enough, None, RIPML.linear(random_state=0), features=TfIdf(tokens="any"))
    assert fitted.left_out_precision.keys() == {"P@1", "P@3", "P@5"}
    assert "P@1" in format_left_out(model_summary(fitted))


def test_evidence_is_words_of_the_text_that_add_up_to_the_value_of_the_regression(model: DocumentModel) -> None:
    text = "The mails about a lost passwrd"
    for why in model.explain([text], model.rules.but(n=3), n_features=100)[0]:
        words = [word for word, _ in why.features]
        assert set(words) <= set(text.casefold().split())
        assert len(set(words)) == len(words)
        assert sum(pull for _, pull in why.features) == pytest.approx(why.value - why.intercept, abs=3e-3)
        assert min(abs(pull) for _, pull in why.features) >= 5e-4  # less would be printed as 0.000
    (billing,) = (why for why in model.explain(["I paid the invoice"])[0] if why.label == "billing")
    assert billing.features[0][0] in ("paid", "invoice")  # not "i" or "the"
    assert {word for word, _ in billing.features[-2:]} <= {"i", "the"}


def test_a_word_that_no_document_has_speaks_by_the_letters_that_it_shares(model: DocumentModel) -> None:
    (why,) = (why for why in model.explain(["lost passwords"])[0] if why.label == "email")
    assert dict(why.features).keys() == {"lost", "passwords"}
    assert dict(why.features)["passwords"] > 0


def test_evidence_in_the_tutorial_begins_with_words_that_tell_labels_apart() -> None:
    made = re.search(r"cat > tickets\.jsonl <<'END'\n(.*?)\nEND", (ROOT / "docs/tutorial.md").read_text(), re.DOTALL)
    assert made is not None
    tickets = [json.loads(line) for line in made[1].splitlines()]
    tagger = Tagger(model=RIPML.linear(random_state=0)).fit(
        [t["text"] for t in tickets], [t["labels"] for t in tickets]
    )
    for text in ("I never got the mail to reset my password", "the invoice is on the page"):
        for why in tagger.explain(text, n=3):
            assert why.features[0][0] not in ("i", "the", "is", "my", "to", "on")
            assert not any(word.startswith("-") or word.endswith("-") for word, _ in why.features)


def test_every_option_that_a_message_names_exists() -> None:
    known = {"--help"}

    def collect(command: Any) -> None:
        for parameter in command.params:
            known.update(parameter.opts, parameter.secondary_opts)
        for one in getattr(command, "commands", {}).values():
            collect(one)

    collect(typer.main.get_command(app))
    assert {"--text-column", "--tag-separator"} <= known
    source = Path(ripml.__file__).parent
    named: dict[str, str] = {}
    for path in source.rglob("*.py"):
        if path.name == "report.py":  # a page, whose style has names that begin so
            continue
        known.update(re.findall(r"var\((--[a-z-]+)", path.read_text()))  # of the styles of notebooks
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= {option: str(path) for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", node.value)}
    assert not {option: path for option, path in named.items() if option not in known}
