"""Proof of forgetting: certificates, the checks that they hold, and each way in which such a check can fail."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.folders import PLACE
from scipy.sparse import csr_array, vstack
from store_writer import LABELS, example, settings

from ripml.base.errors import DataError, ParameterError
from ripml.cli import main
from ripml.datasets import Dataset
from ripml.labels.ensembles import PolynomialPhase
from ripml.model.estimator import RIPML
from ripml.store import Certificate, Store, StoreError
from ripml.store.forgetting import Verification, find_traces
from ripml.store.journal import Snapshot, chain_entry
from ripml.tagging.documents import DocumentModel
from ripml.text import Doc2Vec, TfIdf

MODELS = {
    "default": RIPML(random_state=0, n_jobs=1),
    "linear": RIPML.linear(random_state=0, n_jobs=1),
    "paper": settings(),
    "clusters": settings().set_params(n_clusters=2),
    "deterministic": settings().set_params(ensemble=PolynomialPhase(2), n_dims=16),
}
FEATURES = ["tfidf", "doc2vec", "encoder", "lists", "objects"]

SECRETS: list[dict[str, Any]] = [
    {"id": "first-secret-id", "text": "zanzibar quagga word1 word2 xylophone", "labels": ["secret label"]},
    {"id": "second-secret-id", "text": "xanadu okapi word3 word4 marimba", "labels": ["later secret"]},
]
VALUES = [[0.7392847, 0.1928374, 0.8374652, 0.3310297], [0.5647382, 0.2233445, 0.9182736, 0.4455667]]


class HashedWords:
    """An encoder of texts without anything to learn."""

    def encode(self, texts: list[str]) -> Any:
        rows = np.zeros((len(texts), 8), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.split():
                row[zlib.crc32(word.encode()) % 8] += 1 + zlib.crc32(word.encode()) % 97 / 97
        return rows


def known_documents(features: str) -> list[dict[str, Any]]:
    """The secret documents as their owners know them."""
    if features not in ("lists", "objects"):
        return SECRETS
    known = []
    for secret, values in zip(SECRETS, VALUES, strict=True):
        named: Any = {**{f"feature {j}": x for j, x in enumerate(values)}, f"secret of {secret['id']}": 3}
        known.append(
            {"id": secret["id"], "features": named if features == "objects" else values, "labels": secret["labels"]}
        )
    return known


def data_with_secret(features: str) -> Dataset:
    """The example and the first secret document, in one form of documents."""
    data, first = example(), known_documents(features)[0]
    ids = [*(f"id{i}" for i in range(len(data))), first["id"]]
    Y = csr_array(np.vstack([np.hstack([data.Y.toarray(), np.zeros((len(data), 1))]), [[0.0] * len(LABELS) + [1.0]]]))
    labels: dict[str, Any] = {"Y": Y, "label_names": [*LABELS, "secret label"], "ids": ids, "name": "with a secret"}
    if features not in ("lists", "objects"):
        return Dataset(X=None, texts=[*(data.texts or []), first["text"]], **labels)
    X = csr_array(np.random.default_rng(0).random((len(data), 4)).round(3).astype(np.float32))
    X = csr_array(vstack([X, csr_array(np.array(VALUES[:1], np.float32))]))
    if features == "lists":
        return Dataset(X=X, **labels)
    odd = csr_array(np.array([[0.0]] * len(data) + [[3.0]], np.float32))
    names = [*(f"feature {j}" for j in range(4)), f"secret of {first['id']}"]
    return Dataset(X=csr_array(np.hstack([X.toarray(), odd.toarray()])), feature_names=names, **labels)


def made(folder: Path, model: RIPML, features: str) -> Store:
    # Every word is a feature, also one that only a secret document has.
    text = {"encoder": HashedWords(), "doc2vec": "doc2vec"}.get(features, TfIdf(tokens="any", letters=4, min_df=1))
    return Store.create(folder, data_with_secret(features), model, features=text)


def failed(report: Verification) -> list[str]:
    return [check.name for check in report.findings if not check.ok]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def certificates(folder: Path) -> list[Certificate]:
    """Those of a store whose two secret documents were forgotten, and which was compacted and closed."""
    with made(folder, settings(), "tfidf") as store:
        store.learn(SECRETS[1:], actor="ann")
        found = store.forget([secret["id"] for secret in SECRETS], certify=True, actor="ben")
        store.relabel("id3", ["label 1"], actor="ann")
        store.compact(actor="cleaner")
    return found


def verified(folder: Path, certificates: list[Certificate], known: Any = SECRETS) -> Verification:
    with Store.open(folder, readonly=True) as store:
        return store.verify(certificates, known)


def execute(folder: Path, *commands: str) -> None:
    """Change the tables without ripml."""
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        for command in commands:
            connection.execute(command)
        connection.commit()


# ------------------------------------------------------------------------------------------------------- what is proved


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("name", MODELS)
def test_after_forgetting_and_compacting_certificates_verify_and_no_trace_is_left(
    folder: Path, name: str, features: str
) -> None:
    known = known_documents(features)
    with made(folder, MODELS[name], features) as store:
        store.learn(known[1:])
        store.snapshot()
        found = store.forget([secret["id"] for secret in known], certify=True)
        store.learn([{**known[1], "id": "kept", "labels": ["label 1"], **similar(features)}])
        store.compact()
    encoder = HashedWords() if features == "encoder" else None
    with Store.open(folder, readonly=True, encoder=encoder) as store:
        report = store.verify(found, known)
        assert failed(report) == [], report
        assert {"chain", "erased", "traces", "names", "rows", "model", "certificate 2", "document 3"} <= {
            check.name for check in report.findings
        }


def similar(features: str) -> dict[str, Any]:
    """Another document's content."""
    if features == "lists":
        return {"features": [0.5, 0.25, 0.125, 1]}
    return {"features": {"feature 1": 0.5}} if features == "objects" else {"text": "word1 word5"}


def test_nothing_of_a_forgotten_document_without_labels_is_left_in_doc2vec(folder: Path) -> None:
    pytest.importorskip("gensim", reason="doc2vec needs gensim")
    data = example()
    texts, Y = [*(data.texts or []), "zanzibar quagga zanzibar"], csr_array(vstack([data.Y, csr_array((1, 6))]))
    ids = [*map(str, range(40)), "unlabelled"]
    data = Dataset(X=None, Y=Y, label_names=LABELS, texts=texts, ids=ids, name="one without labels")
    with Store.create(folder, data, settings(), features=Doc2Vec(n_dims=8, min_count=1, tokens="any")) as store:
        words = {b"zanzibar": "a word", b"quagga": "another"}
        assert find_traces(folder, words)
        found = store.forget(["unlabelled"], certify=True)
        store.compact()
        assert find_traces(folder, words) == []
        assert [entry["kind"] for entry in store.history()] == ["compact", "refit", "forget"]
        assert "were chosen without its document" in " ".join(store.verify(found).notes)
        store.learn([{"id": "later", "text": "word1 word2", "labels": []}])
        store.forget(["later"])
        store.compact()
        assert [entry["kind"] for entry in store.history(3)] == ["compact", "forget", "learn"]  # no need for a refit


def test_a_certificate_names_its_document_only_to_whoever_has_the_key(certificates: list[Certificate]) -> None:
    first, second = certificates
    assert first.names("first-secret-id")
    assert not first.names("second-secret-id")
    assert first.describes(SECRETS[0]["text"].encode())
    assert not first.describes(SECRETS[1]["text"].encode())
    assert first.key != second.key
    assert not replace(first, key=second.key).names("first-secret-id")
    assert (second.store, second.change) == (first.store, first.change + 1)


def test_the_key_and_the_keyed_hash_of_the_content_are_not_in_the_store(
    folder: Path, certificates: list[Certificate]
) -> None:
    for certificate in certificates:
        secret = {bytes.fromhex(certificate.key): "key", certificate.key.encode(): "key in hex"}
        content = {bytes.fromhex(certificate.content): "content", certificate.content.encode(): "content in hex"}
        assert find_traces(folder, secret | content) == []
        assert [trace.file for trace in find_traces(folder, {bytes.fromhex(certificate.digest): "digest"})] == [
            "store.db"
        ]


def test_a_certificate_can_be_written_and_read(tmp_path: Path, certificates: list[Certificate]) -> None:
    path = tmp_path / "certificates.json"
    path.write_text("\n".join(json.dumps(certificate.to_json()) for certificate in certificates) + "\n")
    assert Certificate.read(path) == certificates


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", r"has no certificate\.$"),
        ("{", r"is not a file of certificates"),
        ("[]", r"the fields must be store, change, time, key, content, digest, chain"),
        ("change", r"'change' must be a whole number"),
        ("key", r"'key' must be 64 hexadecimal digits"),
        (b"\xff", r"is not a file of certificates"),
    ],
)
def test_a_file_that_is_not_one_of_certificates_is_refused(
    tmp_path: Path, certificates: list[Certificate], content: str | bytes, sentence: str
) -> None:
    if content in ("change", "key"):
        content = json.dumps({**certificates[0].to_json(), content: "x"})
    (tmp_path / "file").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=sentence):
        Certificate.read(tmp_path / "file")
    with pytest.raises(DataError, match="cannot be read"):
        Certificate.read(tmp_path / "no such file")


def test_forgetting_without_certify_returns_nothing_and_keeps_the_id_until_compacting(folder: Path) -> None:
    with made(folder, settings(), "tfidf") as store:
        assert store.forget(["id1"]) == []
        assert store.history(1)[0]["id"] == "id1"
        assert "certificate" not in store.history(1)[0]
        store.compact()
        assert store.history(2)[1]["id"] is None


def test_a_call_that_fails_gives_no_certificate(folder: Path) -> None:
    with made(folder, settings(), "tfidf") as store:
        with pytest.raises(DataError, match="there is no document 'no such'"):
            store.forget(["id1", "no such"], certify=True)
        assert store.document("id1")
        assert store.history() == []


def test_a_store_that_goes_on_learning_still_verifies(folder: Path, certificates: list[Certificate]) -> None:
    with Store.open(folder) as store:
        store.learn([{"id": "later", "text": "word1 word2 zebra", "labels": ["label 1", "new"]}])
        store.add_labels(["declared"])
        assert failed(store.verify(certificates, SECRETS)) == []
        store.refit()
        report = store.verify(certificates, SECRETS)
    assert failed(report) == []
    assert failed(verified(folder, certificates)) == []
    assert sum("chosen without its document" in note for note in report.notes) == 2


@pytest.mark.parametrize("features", [features for features in FEATURES if features != "doc2vec"])
def test_a_store_that_forgot_everything_verifies(folder: Path, features: str) -> None:
    known = known_documents(features)[:1]
    with made(folder, settings(), features) as store:
        found = store.forget(store.ids(), certify=True)
        store.compact()
        assert failed(store.verify(found[-1:], known)) == []


def test_a_doc2vec_store_that_forgot_everything_says_what_to_do(folder: Path) -> None:
    with made(folder, settings(), "doc2vec") as store:
        ids = store.ids()
        store.forget(ids)
        with pytest.raises(
            StoreError, match=r"no document with labels is left .*; delete the folder, or learn documents"
        ):
            store.compact()
        store.learn([{"id": f"new {i}", "text": 5 * "word1 word2 ", "labels": ["label 1"]} for i in range(4)])
        store.compact()
        assert len(store) == 4


def test_the_report_says_which_frozen_parts_were_chosen_with_the_document(
    folder: Path, certificates: list[Certificate]
) -> None:
    notes = " ".join(verified(folder, certificates).notes)
    first, second = (certificate.change for certificate in certificates)
    assert "when the store was created: the words and weights of tf-idf" in notes
    assert f"The document of change {first} was there at that fit: they were chosen with it." in notes
    assert f"The document of change {second} was learnt after that fit: they were chosen without it." in notes
    assert "Backups and other copies of the folder are out of reach of this check" in notes
    assert f"Copies made before {certificates[0].time} may contain the document of change {first}." in notes


def test_a_document_that_was_forgotten_during_a_refit_counts_as_there_at_the_fit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(folder, settings(), "tfidf") as store:
        fit, found = DocumentModel.fit, list[Certificate]()

        def fit_while_another_forgets(*arguments: Any, **named: Any) -> DocumentModel:
            found.extend(store.forget(["first-secret-id"], certify=True))
            return fit(*arguments, **named)

        monkeypatch.setattr(DocumentModel, "fit", fit_while_another_forgets)
        store.refit()
        monkeypatch.undo()
        assert [entry["kind"] for entry in store.history(2)] == ["refit", "forget"]
        store.compact()
        note = f"The document of change {found[0].change} was there at that fit"
        assert note in " ".join(store.verify(found).notes)
        store.refit()
        assert note not in " ".join(store.verify(found).notes)


# --------------------------------------------------------------------------------------------------- what is found out


@pytest.mark.parametrize("column", ["time", "kind", "actor", "certificate", "nonce"])
def test_a_tampered_entry_is_found(folder: Path, certificates: list[Certificate], column: str) -> None:
    value = "x'00'" if column in ("certificate", "nonce") else "'another'"
    execute(folder, f"UPDATE changes SET {column} = {value} WHERE number = 1")
    report = verified(folder, certificates)
    assert "chain" in failed(report)
    assert "entry 1 of the journal was altered" in report.findings[0].message


def test_a_removed_entry_is_found(folder: Path, certificates: list[Certificate]) -> None:
    execute(folder, "DELETE FROM changes WHERE number = 1")
    report = verified(folder, certificates)
    assert failed(report) == ["chain"]
    assert report.findings[0].message == "The hash chain of the history is broken: entry 1 of the journal is missing."


def test_an_end_of_the_history_that_was_cut_off_is_found(folder: Path, certificates: list[Certificate]) -> None:
    with Store.open(folder) as store:
        store.retire_label("label 1")
        last = store.version
    execute(
        folder, f"DELETE FROM changes WHERE number = {last}", f"UPDATE meta SET value = {last - 1} WHERE key = 'change'"
    )
    execute(folder, f"UPDATE meta SET value = 'model-{last - 1:012d}' WHERE key = 'folder'")
    shutil.move(folder / f"model-{last:012d}", folder / f"model-{last - 1:012d}")
    report = verified(folder, certificates)
    assert failed(report) == ["chain"]
    assert f"ends with entry {last - 1}, but there was an entry {last}" in report.findings[0].message


def test_a_swapped_order_is_found(folder: Path, certificates: list[Certificate]) -> None:
    commands = (f"UPDATE changes SET number = {new} WHERE number = {old}" for old, new in ((2, 99), (3, 2), (99, 3)))
    execute(folder, *commands, "UPDATE sqlite_sequence SET seq = 5 WHERE name = 'changes'")
    report = verified(folder, certificates)
    assert failed(report)[0] == "chain"
    assert {"certificate 2", "certificate 3"} <= set(failed(report))


def test_a_history_that_was_rewritten_with_a_new_chain_is_found_by_a_certificate(
    folder: Path, certificates: list[Certificate]
) -> None:
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        (chain,) = connection.execute("SELECT value FROM meta WHERE key = 'store'").fetchone()
        connection.execute("UPDATE changes SET actor = 'somebody else' WHERE number = 1")
        columns = "number, time, kind, actor, certificate, nonce"
        for entry in connection.execute(f"SELECT {columns} FROM changes ORDER BY number").fetchall():
            chain = chain_entry(chain, *entry)
            connection.execute("UPDATE changes SET chain = ? WHERE number = ?", (chain, entry[0]))
        connection.commit()
    report = verified(folder, certificates)
    assert failed(report) == ["certificate 2", "certificate 3"]
    assert "another hash of the history" in " ".join(check.message for check in report.findings)


@pytest.mark.parametrize(
    ("forged", "names"),
    [
        ({"change": 1}, ["certificate 1"]),
        ({"change": 99}, ["certificate 99"]),
        ({"store": "0" * 64}, ["certificate 2"]),
        ({"time": "2020-01-01T00:00:00.000+00:00"}, ["certificate 2"]),
        ({"chain": "0" * 64}, ["certificate 2"]),
        ({"key": "0" * 64}, ["document 2"]),
        ({"content": "0" * 64}, ["document 2"]),
        ({"digest": "0" * 64}, ["certificate 2", "document 2"]),
    ],
    ids="-".join,
)
def test_a_forged_certificate_is_found(
    folder: Path, certificates: list[Certificate], forged: dict[str, Any], names: list[str]
) -> None:
    assert failed(verified(folder, [replace(certificates[0], **forged)])) == names


def test_a_certificate_of_another_document_or_content_is_found(folder: Path, certificates: list[Certificate]) -> None:
    first = certificates[:1]
    assert failed(verified(folder, first, SECRETS[1:])) == ["document 2"]
    assert failed(verified(folder, first, [{"id": "first-secret-id", "text": "another text of it"}])) == ["document 2"]
    assert failed(verified(folder, first, [{"id": "first-secret-id"}])) == []


@pytest.mark.parametrize("known", [[], SECRETS[:1]], ids=["id unknown", "id known"])
def test_a_document_that_was_put_back_is_found(
    folder: Path, certificates: list[Certificate], known: list[dict[str, Any]]
) -> None:
    with Store.open(folder) as store:
        store.learn([{"id": "first-secret-id", "text": "word1 word2", "labels": ["label 1"]}])
    assert failed(verified(folder, certificates[:1], known))[0] == "absent 2"


def test_a_document_that_is_in_the_store_is_found_without_a_certificate(
    folder: Path, certificates: list[Certificate]
) -> None:
    assert failed(verified(folder, [], [{"id": "id1"}])) == ["absent"]
    assert failed(verified(folder, [], [{"id": "first-secret-id"}])) == []


def save_as_snapshot(folder: Path, model: DocumentModel) -> None:
    """Put a model in the place of the one that was saved, in a way that the store does not notice."""
    place = next(folder.glob("model-*"))
    shutil.rmtree(place)
    model.save(place)
    manifest = Snapshot.saved(int(place.name[6:]), folder).manifest
    execute(folder, f"UPDATE meta SET value = '{manifest}' WHERE key = 'manifest'")


def put_into_model(folder: Path, forget: str | None) -> None:
    """Save a model that has a row of the first secret document, with a label of others, in place of another row."""
    with Store.open(folder) as store:
        version = store._version
        X = store.model.features(Dataset(X=None, Y=csr_array((1, 0)), label_names=[], texts=["word1 word2"]))
        model, rows = version.estimator, version.rows.view
        labels = ["label 1"]
        if forget is not None:
            document = store.document(forget)
            texts = Dataset(X=None, Y=csr_array((1, 0)), label_names=[], texts=[document["text"]])
            labels = document["labels"]
            model.forget(store.model.features(texts), [labels])
        model.partial_fit(X, [labels])
        changed = replace(store.model, model=model, row_documents=np.append(rows, 41))
    save_as_snapshot(folder, changed)


def test_a_model_that_still_contains_a_row_is_found(folder: Path, certificates: list[Certificate]) -> None:
    put_into_model(folder, forget=None)
    report = verified(folder, certificates)
    assert "rows" in failed(report)
    assert "The model has 41 rows for the 40 documents with labels" in " ".join(c.message for c in report.findings)


def test_a_row_that_took_the_place_of_another_with_its_labels_is_found(
    folder: Path, certificates: list[Certificate]
) -> None:
    put_into_model(folder, forget="id7")
    assert failed(verified(folder, certificates)) == ["model"]


@pytest.mark.parametrize(
    "left",
    [b"first-secret-id", b"secret label", b"zanzibar quagga ", b"zanzibar quagga word1 word2 xylophone"],
    ids=["id", "label", "piece", "text"],
)
@pytest.mark.parametrize("place", ["old.db-wal", "model/arrays.npy"])
def test_bytes_that_are_left_in_a_file_are_found(
    folder: Path, certificates: list[Certificate], left: bytes, place: str
) -> None:
    file = next(folder.glob("model-*")) / "arrays.npy" if "model" in place else folder / place
    file.write_bytes(bytes(5000) + left + bytes(100))
    report = verified(folder, certificates)
    assert failed(report) == ["traces"]
    assert file.name in next(check.message for check in report.findings if check.name == "traces")


def test_features_that_are_left_in_a_file_are_found(folder: Path) -> None:
    known = known_documents("lists")[:1]
    with made(folder, MODELS["default"], "lists") as store:  # this model keeps the rows that it learnt from
        found = store.forget(["first-secret-id"], certify=True)
        report = store.verify(found, known)
        assert "traces" in failed(report)
        assert "model-000000000000/" in next(check.message for check in report.findings if check.name == "traces")
        store.compact()
        assert failed(store.verify(found, known)) == []
        seen = store._version.estimator.model_.features(csr_array(np.array(VALUES[:1], np.float32)))
        row = seen.data if hasattr(seen, "indptr") else seen.ravel()
        for left in (row, row.astype(np.float64), np.array(VALUES[0], np.float32)):
            (folder / "left").write_bytes(left.tobytes())
            assert failed(store.verify(found, known)) == ["traces"], left.dtype


def test_what_other_documents_have_too_is_not_a_trace(folder: Path) -> None:
    twin = {**SECRETS[0], "id": "twin-of-first-secret-id", "labels": ["label 1"]}
    with made(folder, settings(), "tfidf") as store:
        store.learn([twin])
        found = store.forget(["first-secret-id"], certify=True)
        store.compact()
        assert failed(store.verify(found, SECRETS[:1])) == []
        store.forget([twin["id"]])
        store.compact()
        (folder / "left").write_bytes(b"first-secret-id")
        assert failed(store.verify(found, SECRETS[:1])) == ["traces"]


def test_a_store_that_was_not_compacted_is_found(folder: Path) -> None:
    with made(folder, settings(), "tfidf") as store:
        found = store.forget(["first-secret-id"], certify=True)
        report = store.verify(found)
        assert failed(report) == ["erased", "names"]
        assert "the store has not been compacted since" in report.findings[1].message
        store.compact()
        assert store.verify(found).ok


def test_details_that_are_left_in_the_history_are_found(folder: Path, certificates: list[Certificate]) -> None:
    execute(folder, "UPDATE changes SET detail = 'x' WHERE number = 2")
    report = verified(folder, certificates)
    assert failed(report) == ["erased"]
    assert "Change 2 still has details" in report.findings[1].message


def test_a_label_that_no_document_carries_is_found(folder: Path, certificates: list[Certificate]) -> None:
    with Store.open(folder) as store:
        store.learn([{"id": "passing", "text": "word1", "labels": ["passing"]}])
        store.relabel("passing", ["label 1"])
    report = verified(folder, certificates)
    assert failed(report) == ["names"]
    assert "Labels that no document carries are in the store: 1" in " ".join(c.message for c in report.findings)


@pytest.mark.parametrize("features", ["tfidf", "objects"])
def test_a_word_or_feature_name_that_no_document_has_is_found(folder: Path, features: str) -> None:
    with made(folder, settings(), features) as store:
        names = store.model
        found = store.forget(["first-secret-id"], certify=True)
        store.compact()
        assert failed(store.verify(found)) == []
        changed = replace(store.model, text=names.text, feature_names=names.feature_names)
    save_as_snapshot(folder, changed)
    report = verified(folder, found, [])
    assert failed(report) == ["names"]
    assert "Words that no document has are in the model" in " ".join(c.message for c in report.findings)


def test_a_store_of_format_1_says_that_it_has_no_chain(folder: Path) -> None:
    shutil.copytree(PLACE / "store", folder)
    with Store.open(folder, readonly=True) as store, pytest.raises(StoreError, match="open it for writing once"):
        store.verify()
    with Store.open(folder) as store:
        store.compact()
        assert failed(store.verify()) == []


# ----------------------------------------------------------------------------------------------------- the audit trail


def test_history_shows_who_did_what_and_hides_documents_forgotten_with_a_certificate_at_once(folder: Path) -> None:
    with made(folder, settings(), "tfidf") as store:
        store.learn(SECRETS[1:], actor="ann")
        store.relabel("second-secret-id", ["label 1"], actor="ben")
        assert store.history(1)[0]["id"] == "second-secret-id"
        (certificate,) = store.forget(["second-secret-id"], certify=True, actor="cem")
        history = store.history(3)
        store.snapshot()
        assert store.history(3) == history
        store.compact(actor="dan")
        assert store.history(4)[1:] == history
    who = [(entry["kind"], entry["actor"]) for entry in history]
    assert who == [("forget", "cem"), ("relabel", "ben"), ("learn", "ann")]
    assert all((entry["id"], entry["before"], entry["after"]) == (None, None, None) for entry in history)
    assert history[0]["certificate"] == certificate.digest


def test_compacting_keeps_the_details_of_recent_changes_except_those_of_what_is_gone(folder: Path) -> None:
    with made(folder, settings(), "tfidf") as store:
        store.relabel("id1", ["label 1"])
        store.relabel("id1", ["label 2"])
        store.relabel("id2", ["label 3"])
        store.forget(["id2"])
        store.add_labels(["declared"])
        store.rename_label("declared", "renamed")
        store.retire_label("renamed")
        with store._database.transaction() as connection:
            connection.execute("UPDATE changes SET time = '2020-01-01T00:00:00.000+00:00' WHERE number = 1")
        store.compact(keep_history=30)
        entries = {entry["number"]: entry for entry in store.history()}
        assert (entries[1]["id"], entries[1]["before"]) == ("id1", None)  # too old
        assert (entries[2]["before"], entries[2]["after"]) == (["label 1"], ["label 2"])
        for number in (3, 4):  # the document is gone
            assert (entries[number]["id"], entries[number]["before"]) == (None, None)
        assert "labels" not in entries[5]  # this name and the one of the next entry are gone
        assert "old" not in entries[6]
        assert entries[7]["label"] == "renamed"
        store.compact()
        entries = {entry["number"]: entry for entry in store.history()}
        assert entries[2]["before"] is None
        assert "label" not in entries[7]
        with pytest.raises(ParameterError, match="`keep_history` must be a number of days from 0 to 36500; got -1"):
            store.compact(keep_history=-1)


# ------------------------------------------------------------------------------------------------------------ the shell


def run(capfd: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """The exit code of a command, and what it printed on standard output and standard error."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0), *capfd.readouterr()


def test_the_shell_forgets_with_a_certificate_and_verifies(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    made(folder, settings(), "tfidf").close()
    proof, text = tmp_path / "proof.json", tmp_path / "text"
    text.write_text(SECRETS[0]["text"])
    assert run(capfd, "forget", folder, "first-secret-id", "--certificate", proof)[0] == 0
    assert proof.stat().st_mode & 0o777 == 0o600
    (certificate,) = Certificate.read(proof)
    known = ("--id", "first-secret-id", "--text", text, "--label", "secret label")
    code, printed, _ = run(capfd, "verify", folder, proof, *known)
    assert code == 1
    assert "WRONG Change 1 forgot a document, and the store has not been compacted since; compact it." in printed
    assert run(capfd, "compact", folder, "--keep-history", "30")[0] == 0
    code, printed, _ = run(capfd, "verify", folder, proof, *known)
    assert (code, "WRONG" in printed) == (0, False)
    assert "ok    The document that change 1 forgot is 'first-secret-id' with the content that was given." in printed
    assert "note  Backups and other copies of the folder" in printed
    code, printed, _ = run(capfd, "verify", folder, proof, "--id", "another-id", "--json")
    report = json.loads(printed)
    assert (code, report["ok"], report["store"]) == (1, False, certificate.store)
    assert [check["name"] for check in report["findings"] if not check["ok"]] == ["document 1"]
    entries = [json.loads(line) for line in run(capfd, "history", folder, "--json")[1].splitlines()]
    assert [(entry["actor"], entry["kind"]) for entry in entries] == [("ann", "compact"), ("ann", "forget")]
    assert "ann" in run(capfd, "history", folder)[1]


def test_every_command_that_writes_names_the_user_in_the_history(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    made(folder, settings(), "tfidf").close()
    (tmp_path / "more.jsonl").write_text('{"id": "a", "text": "word1", "labels": ["label 1"]}\n')
    commands = [
        ("update", folder, tmp_path / "more.jsonl"), ("relabel", folder, "a", "label 2"), ("forget", folder, "a"),
        ("labels", "add", folder, "x"), ("labels", "rename", folder, "x", "y"),
        ("labels", "merge", folder, "y", "--into", "z"), ("labels", "retire", folder, "z"),
        ("labels", "reinstate", folder, "z"), ("refit", folder), ("compact", folder),
    ]  # fmt: skip
    assert [run(capfd, *command)[0] for command in commands] == [0] * len(commands)
    with Store.open(folder, readonly=True) as store:
        assert [entry["actor"] for entry in store.history()] == ["ann"] * len(commands)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("forget", "STORE", "id1", "--certificate", "there"), "there already exists; certificates are written"),
        (("forget", "STORE", "no such", "--certificate", "new"), "there is no document 'no such'"),
        (("forget", "STORE", "id1", "--certificate", "no/such/folder"), "No such file or directory"),
        (("verify", "STORE", "there"), "there: has no certificate"),
        (("verify", "STORE", "--text", "there"), "--text needs the id of its document"),
        (("verify", "STORE", "--label", "x"), "--label needs the id of a document"),
    ],
)
def test_a_mistake_on_the_command_line_forgets_nothing_and_leaves_no_file(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...], sentence: str,
) -> None:  # fmt: skip
    made(folder, settings(), "tfidf").close()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").touch()
    code, _, message = run(capfd, *(str(folder) if word == "STORE" else word for word in words))
    assert code == 2
    assert sentence in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "there"]
    with Store.open(folder, readonly=True) as store:
        assert store.history() == []
