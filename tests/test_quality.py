"""Figures of fits, drift and automation, the same from Python, on the shell, over HTTP and in the file of a report."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from page_server import QUESTIONS, data_of

import ripml
from ripml import RIPML, Store
from ripml.base.errors import ParameterError
from ripml.baselines.popularity import Popularity
from ripml.cli import main
from ripml.server import create_app
from ripml.store import maintenance
from ripml.tagging.documents import DocumentModel

SUBJECTS = {
    "fruit": ["apple", "pear", "plum", "cherry", "quince"],
    "weather": ["rain", "wind", "sun", "cloud", "frost"],
    "music": ["violin", "drum", "flute", "choir", "organ"],
}
VENDOR = Path(ripml.__file__).parent / "server" / "page" / "vendor"


def documents(n: int, seed: int = 0, noise: int = 2) -> list[tuple[str, list[str]]]:
    """Texts of one or two subjects, with some words of any subject."""
    random = np.random.default_rng(seed)
    every, found = [word for words in SUBJECTS.values() for word in words], []
    for i in range(n):
        labels = sorted(random.choice(list(SUBJECTS), random.integers(1, 3), replace=False).tolist())
        words = [word for label in labels for word in random.choice(SUBJECTS[label], 3)]
        words += random.choice(every, noise).tolist()
        found.append((f"number {i}: " + " ".join(random.permutation(words).tolist()), labels))
    return found


def learn(store: Store, n: int, seed: int, noise: int = 2) -> None:
    texts = documents(n, seed, noise)
    store.learn([{"id": f"{seed}-{i}", "text": text, "labels": labels} for i, (text, labels) in enumerate(texts)])


def run(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(arguments)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 460 documents with two fits, decisions, and documents that came since."""
    folder = tmp_path_factory.mktemp("quality") / "subjects"
    with Store.create(folder, data_of(documents(400)), RIPML(random_state=0)) as store:
        learn(store, 30, 1)
        store.refit()
        learn(store, 30, 2)
        store.decide({"id": "a", "text": "apple pear rain"}, ["fruit", "weather"], ["music"])
        store.decide({"id": "b", "text": "violin rain drum"}, ["music"], ["fruit"])
    return folder


@pytest.fixture
def store(made: Path) -> Iterator[Store]:
    with Store.open(made, readonly=True) as store:
        yield store


# --- automation, calibration ---


def test_the_curves_of_automation_have_what_is_asked_of_them(store: Store) -> None:
    estimator = store.model.model
    assert isinstance(estimator, RIPML)
    curves, precisions = estimator.automation_curves(), [0.8, 0.9, 0.95]
    asked = estimator.automation(precisions)
    assert sorted(curves) == ["labels", "rows"]
    for name, curve in curves.items():
        assert curve["threshold"] == sorted(curve["threshold"], reverse=True)
        assert curve["share"] == sorted(curve["share"])
        assert len(asked[name]) == len([p for p in precisions if max(curve["least"]) >= p]) > 0
        for precision, found in zip(precisions, asked[name], strict=False):
            place = max(i for i, value in enumerate(curve["least"]) if value >= precision)
            assert {part: values[place] for part, values in curve.items()} == pytest.approx(found, abs=1e-6)


def test_the_bins_of_calibration_hold_every_candidate_once(store: Store) -> None:
    found = store.quality()
    assert found.enough
    assert [one.probability for one in found.reliability] == sorted(one.probability for one in found.reliability)
    assert all(0 <= one.right <= 1 and one.pairs > 0 for one in found.reliability)
    right = sum(round(one.right * one.pairs) for one in found.reliability)
    assert right == pytest.approx(sum(label.rows for label in found.labels), rel=0.01)  # all labels are candidates


# --- versions ---


def test_each_fit_leaves_its_figures(store: Store) -> None:
    first, second = store.fits()
    assert (first["change"], first["documents"], second["documents"]) == (0, 400, 430)
    assert second["change"] == 31
    assert first["time"] <= second["time"]
    assert second["labels"] == len(SUBJECTS)
    assert second["precision"] == pytest.approx(store.model.left_out_precision, abs=1e-4)
    share = store.model.model.automation([0.95])["labels"][0]["share"]
    assert second["automation"]["labels"] == pytest.approx(share, abs=1e-4)


def test_a_store_of_an_earlier_version_knows_its_last_fit_and_adds_later_ones(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Store.create(folder, data_of(documents(120)), RIPML(random_state=0)) as store:
        (expected,) = store.fits()
    with sqlite3.connect(folder / "store.db") as connection:
        connection.execute("DELETE FROM meta WHERE key = 'fits'")
    with Store.open(folder) as store:
        (known,) = store.fits()
        assert known == {**expected, "time": None}
        learn(store, 10, 1)
        store.refit()
        assert [fit["documents"] for fit in store.fits()] == [120, 130]
        maintenance.backup(folder, tmp_path / "copy")
    with Store.open(tmp_path / "copy") as copy:
        assert [fit["documents"] for fit in copy.fits()] == [120, 130]
        copy.forget(copy.ids()[:5])
        copy.compact()
        assert len(copy.fits()) >= 2


def test_a_rebuilt_store_keeps_the_figures_of_earlier_fits(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Store.create(folder, data_of(documents(120)), RIPML(random_state=0)):
        pass
    Store.rebuild(folder)
    with Store.open(folder) as store:
        first, second = store.fits()
        assert (first["change"], second["change"]) == (0, 1)
        assert first["precision"] == second["precision"]


# --- drift ---


def test_drift_has_decisions_and_familiarity_in_all_and_by_month(store: Store) -> None:
    drift = store.drift()
    decided, newest = drift["decided"], drift["newest"]
    assert (decided["labels"], decided["accepted"], decided["rejected"]) == (5, 3, 2)
    assert decided["acceptance"] == 0.6
    assert [month["labels"] for month in decided["months"].values()] == [5]
    assert newest["documents"] == 30
    assert 0 < newest["familiarity"] <= 1
    (month,) = newest["months"].values()
    assert month == {name: value for name, value in newest.items() if name != "months"}


def test_nothing_is_said_of_drift_where_nothing_is_known(tmp_path: Path) -> None:
    with Store.create(tmp_path / "new", data_of(QUESTIONS), RIPML(random_state=0)) as store:
        assert store.drift() == {"newest": None, "decided": None}


# --- HTTP ---


def test_the_server_answers_as_python_does(made: Path) -> None:
    with TestClient(create_app({"subjects": Store.open(made)}), base_url="http://localhost") as client:
        with Store.open(made, readonly=True) as store:
            expected = store.quality()
            overview = client.get("/v1/stores/subjects/quality").json()
            assert overview == {
                "version": store.version,
                "rows": expected.rows,
                "enough": True,
                "automation": expected.automation,
                "fits": store.fits(),
                "drift": json.loads(json.dumps(store.drift())),
            }
        assert client.get("/v1/stores/subjects/report").json()["version"] is None
        assert client.post("/v1/stores/subjects/report").status_code == 202
        client.app.state.stores["subjects"].report.wait()
        report = client.get("/v1/stores/subjects/report?limit=1000").json()
        for name, value in json.loads(json.dumps(expected.to_json())).items():
            assert report[name] == value, name
        assert report["names"] is None


# --- the file ---


def data_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def test_a_report_is_one_file_with_the_figures_of_the_store(made: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    run(["report", str(made), "--html", str(file)])
    page = file.read_text(encoding="utf-8")
    data = data_in(page)
    with Store.open(made, readonly=True) as store:
        expected = json.loads(json.dumps(store.quality().to_json()))
    assert data.pop("title") == "subjects"
    assert data.pop("made").endswith("+00:00")
    assert data == expected
    assert not re.search(r"\b(src|href)=", page.partition('id="data">')[0]), "no other file is loaded"
    assert "default-src 'none'" in page
    assert not re.search(r"^(import|export) ", page, re.MULTILINE)


def test_a_model_folder_has_a_report_without_versions_and_drift(tmp_path: Path) -> None:
    X = np.repeat(np.eye(4), 30, axis=0) + np.random.default_rng(0).random((120, 4)) / 5
    RIPML(random_state=0).fit(X, [[name] for name in "abcd" for _ in range(30)]).save(tmp_path / "model")
    run(["report", str(tmp_path / "model"), "--html", str(tmp_path / "r.html")])
    data = data_in((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert (data["rows"], data["fits"], data["drift"]) == (120, [], None)


def test_a_baseline_says_that_it_has_no_figures(tmp_path: Path) -> None:
    model = DocumentModel.fit(data_of(documents(60)), None, Popularity())
    with pytest.raises(ParameterError, match="Popularity cannot leave out its training rows"):
        model.quality(10, 3, lambda rows: [])


def test_hostile_names_stay_text_in_the_file() -> None:
    X = np.repeat(np.eye(2), 60, axis=0) + np.random.default_rng(0).random((120, 2)) / 5
    evil = "</script><script>alert(1)</script>"
    found = RIPML(random_state=0).fit(X, [[evil]] * 60 + [["ice"]] * 60).quality()
    page = found.to_html(f"<b>{evil}")
    assert evil not in page
    assert {label["label"] for label in data_in(page)["labels"]} == {evil, "ice"}


def test_a_small_store_says_that_it_is_too_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.create(tmp_path / "small", data_of(QUESTIONS), RIPML(random_state=0)) as store:
        assert not store.quality().enough
    run(["report", str(tmp_path / "small")])
    assert "too few rows to measure" in capsys.readouterr().out


def test_the_library_of_charts_is_unchanged() -> None:
    for package in json.loads((VENDOR / "vendor.json").read_text(encoding="utf-8")):
        for file in package["files"]:
            content = (VENDOR / file["name"]).read_bytes()
            assert hashlib.sha256(content).hexdigest() == file["sha256"], file["name"]
            assert package["version"].encode() in content or file["name"].endswith((".css", ".txt"))
