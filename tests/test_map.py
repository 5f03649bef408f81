"""Documents in two dimensions: the layout, the map of a store and of a tagger, and the routes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from scipy.sparse import csr_array

from ripml import RIPML, Store, Tagger
from ripml.base.compiled import loops
from ripml.datasets import Dataset
from ripml.model import layout
from ripml.model.layout import Layout, arrange, neighbour_graph
from ripml.server import Settings, create_app
from ripml.store import maps
from ripml.tagging.map import DocumentMap

MAP, ADDRESS = "/v1/stores/things/map", "http://localhost:8000"
GROUPS = ("fruit", "weather", "music")
WORDS = {
    "fruit": ["apple", "pear", "plum", "cherry", "grape", "melon", "peach", "lemon", "fig", "mango"],
    "weather": ["rain", "snow", "wind", "storm", "cloud", "hail", "fog", "frost", "thunder", "drizzle"],
    "music": ["violin", "piano", "drum", "flute", "cello", "organ", "harp", "trumpet", "guitar", "oboe"],
}


def world(n: int = 40, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Texts of three groups that have no word in common, n of each, and their labels."""
    rng = np.random.default_rng(seed)
    pairs = [(" ".join(rng.choice(WORDS[group], 6)), [group]) for group in GROUPS for _ in range(n)]
    return [text for text, _ in pairs], [labels for _, labels in pairs]


def data_of(texts: list[str], labels: list[list[str]]) -> Dataset:
    Y = csr_array(np.array([[float(name in some) for name in GROUPS] for some in labels]).reshape(-1, len(GROUPS)))
    return Dataset(X=None, Y=Y, label_names=list(GROUPS), texts=texts)


def nearest(positions: Any, k: int) -> Any:
    distances = ((positions[:, None].astype(float) - positions[None]) ** 2).sum(2)
    np.fill_diagonal(distances, np.inf)
    return distances.argsort(1)[:, :k]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "store", data_of(*world()), RIPML.linear(random_state=0)) as store:
        yield store


# -------------------------------------------------------------------------------------------------------------- layout


def features(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random((n, 20)).astype(np.float32)


def test_the_same_rows_and_seed_give_the_same_layout_on_any_number_of_threads() -> None:
    X = features(300)
    first = Layout.of(X, 3, n_jobs=1)
    assert np.array_equal(first.positions, Layout.of(X, 3, n_jobs=2).positions)
    assert not np.array_equal(first.positions, Layout.of(X, 4).positions)
    assert first.positions.dtype == np.uint16
    assert np.ptp(first.positions, axis=0).max() > 0.9 * layout.SIDE


@pytest.mark.skipif(loops() is None, reason="Numba is not installed")
def test_a_step_is_the_same_to_the_last_bit_without_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    X = features(200)
    near, squares = layout._nearest(X, X, 10, None, apart=True)
    W, start = neighbour_graph(near, squares), X[:, :2].astype(float) * 10
    monkeypatch.setattr(layout, "_STEPS", 5)
    compiled = arrange(W, start, 7)
    monkeypatch.setattr(layout, "loops", lambda: None)
    assert np.array_equal(compiled, arrange(W, start, 7))
    assert not np.array_equal(compiled, start)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_few_rows_have_a_layout(n: int) -> None:
    found = Layout.of(csr_array(features(n)), 0)
    assert found.positions.shape == (n, 2)
    assert len(np.unique(found.positions, axis=0)) == n


def test_rows_that_are_equal_or_empty_have_a_layout() -> None:
    X = csr_array(np.repeat(np.eye(3, 5), 20, axis=0))
    assert Layout.of(X).positions.shape == (60, 2)
    assert Layout.of(csr_array((40, 5))).positions.shape == (40, 2)


def test_new_rows_are_placed_among_the_most_similar_and_rows_can_go() -> None:
    X = np.repeat(np.eye(2, 8), 30, axis=0) + 0.1 * features(60)[:, :8]
    found = Layout.of(X)
    placed, near = found.place(X[[3, 40]])
    assert near[0, 0] == 3
    assert near[1, 0] == 40
    middles = np.array([found.positions[:30].mean(0), found.positions[30:].mean(0)])
    assert [int(((middles - row) ** 2).sum(1).argmin()) for row in placed] == [0, 1]
    left = found.kept(np.arange(1, 60))
    assert np.array_equal(left.positions, found.positions[1:])
    assert left.near.max() == 58
    assert (left.near[found.near[1:] == 0] == -1).all()


# ----------------------------------------------------------------------------------------------------------------- map


def test_groups_that_share_no_word_stand_apart_and_have_their_names() -> None:
    texts, labels = world()
    found = Tagger(model=RIPML.linear(random_state=0)).fit(texts, labels).map(texts, labels)
    group = np.repeat(np.arange(3), 40)
    assert (group[nearest(found.positions, 5)] == group[:, None]).mean() > 0.97
    assert {region.label for region in found.regions} == set(GROUPS)
    for region in found.regions:
        there = found.positions[group == GROUPS.index(region.label)]
        assert np.abs(there - [region.x, region.y]).max(1).min() < 0.01
    assert dict(found.top) == dict.fromkeys(GROUPS, 40)
    assert found.labels(0) == ["fruit"]
    assert found.carriers("weather").tolist() == list(range(40, 80))
    assert found.carriers("unknown").tolist() == []


def test_the_document_with_a_wrong_label_is_the_most_doubtful_and_stays_with_its_words() -> None:
    texts, labels = world()
    tagger = Tagger(model=RIPML.linear(random_state=0)).fit(texts, labels)
    right = tagger.map(texts, labels)
    wrong = tagger.map(texts, [["music"], *labels[1:]])
    assert int(np.nanargmax(wrong.doubt)) == 0
    assert wrong.doubt[0] > 0.9
    assert right.doubt[0] < 0.5
    assert np.array_equal(right.grid, wrong.grid)
    none = tagger.map(texts, [[], *labels[1:]])
    assert np.isnan(none.doubt[0])


def test_a_point_takes_six_bytes() -> None:
    labels = csr_array(np.array([[1, 1], [0, 1], [0, 0.0]]))
    labels.eliminate_zeros()
    grid = np.array([[1, 2], [3, 4], [65535, 0]], np.uint16)
    found = DocumentMap(7, ["a", "b", "c"], grid, labels, ["rare", "usual"], np.array([0, 1, np.nan], np.float32), [])
    assert found.top == [("usual", 2), ("rare", 1)]
    assert found.packed() == bytes([1, 0, 3, 0, 255, 255, 2, 0, 4, 0, 0, 0, 1, 0, 255, 0, 254, 255])
    assert found.tag.startswith("7-")


# --------------------------------------------------------------------------------------------------------------- store


def test_positions_stay_when_a_store_is_opened_again_and_documents_come_and_go(store: Store, tmp_path: Path) -> None:
    assert store.known_map() is None
    shares: list[float] = []
    first = store.map(shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    assert store.map() is first
    store.learn([{"id": "new", "text": "rain and snow and wind and hail", "labels": ["weather"]}])
    store.forget(["5"])
    store.relabel("6", ["music"])
    after = store.known_map()
    assert after is not None
    assert not after.stale
    assert after.version == store.version
    assert "5" not in after.ids
    assert after.labels(after.ids.index("6")) == ["music"]
    before = dict(zip(first.ids, first.grid.tolist(), strict=True))
    now = dict(zip(after.ids, after.grid.tolist(), strict=True))
    assert {id: now[id] for id in now if id != "new"} == {id: before[id] for id in before if id != "5"}
    close = nearest(after.grid, 5)[after.ids.index("new")]
    assert sum(after.labels(row) == ["weather"] for row in close) >= 4
    store.close()
    with Store.open(tmp_path / "store") as again:
        found = again.known_map()
        assert found is not None
        assert found.tag == after.tag
        assert found.ids == after.ids
    with Store.open(tmp_path / "store", readonly=True) as reader:
        assert reader.map().tag == after.tag


def test_a_document_with_another_text_moves(store: Store) -> None:
    first = store.map()
    store.learn([{"id": "0", "text": "violin piano drum flute", "labels": ["music"]}])
    after = store.known_map()
    assert after is not None
    assert after.grid[after.ids.index("0")].tolist() != first.grid[0].tolist()
    assert not after.stale


def test_a_refit_and_many_new_documents_make_a_map_stale_and_it_is_shown_until_there_is_another(store: Store) -> None:
    first = store.map()
    texts, labels = world(10, seed=1)
    store.learn([{"text": text, "labels": some} for text, some in zip(texts, labels, strict=True)])
    found = store.known_map()
    assert found is not None
    assert found.stale
    assert len(found) == 150
    assert np.array_equal(found.grid[:120], first.grid)
    assert not store.map().stale
    store.refit()
    store.learn([{"id": "late", "text": "apple", "labels": ["fruit"]}])
    found = store.known_map()
    assert found is not None
    assert found.stale
    assert found.n_waiting == 1
    assert "late" in store.map().ids


def test_compact_removes_the_file_of_the_map_and_no_text_is_in_it(store: Store, tmp_path: Path) -> None:
    store.learn([{"id": "secret-id", "text": "confidential apple", "labels": ["fruit"]}])
    store.map()
    content = (tmp_path / "store" / maps.FILE).read_bytes()
    assert b"secret-id" not in content
    assert b"confidential" not in content
    store.forget(["secret-id"])
    store.compact()
    assert not (tmp_path / "store" / maps.FILE).exists()
    assert store.known_map() is None
    assert len(store.map()) == 120


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 and no more"])
def test_a_damaged_file_is_computed_again(store: Store, tmp_path: Path, content: bytes) -> None:
    first = store.map()
    store.close()
    (tmp_path / "store" / maps.FILE).write_bytes(content)
    with Store.open(tmp_path / "store", readonly=True) as reader:
        assert reader.known_map() is None
        assert reader.map().tag == first.tag  # for itself
    with Store.open(tmp_path / "store") as again:
        assert again.known_map() is None
        assert again.map().tag == first.tag
    with Store.open(tmp_path / "store", readonly=True) as reader:
        assert reader.known_map() is not None


def test_documents_of_features_have_a_map(tmp_path: Path) -> None:
    X, Y = csr_array(features(30)), csr_array(np.eye(3)[np.arange(30) % 3])
    data = Dataset(X=X, Y=Y, label_names=["a", "b", "c"])
    with Store.create(tmp_path / "rows", data, RIPML.linear(random_state=0)) as store:
        assert len(store.map()) == 30


# -------------------------------------------------------------------------------------------------------------- server


def drawn(client: TestClient) -> dict[str, Any]:
    """The map when it is computed."""
    for _ in range(10_000):
        found: dict[str, Any] = client.get(MAP).json()
        if found["status"] != "running":
            return found
    raise AssertionError("the map takes too long")


def test_the_routes_of_the_map(store: Store) -> None:
    with TestClient(create_app({"things": store}), base_url=ADDRESS) as client:
        assert client.get(f"{MAP}/points").status_code == 404
        assert "map" not in client.get(MAP).json()  # which starts it
        found = drawn(client)
        assert found["points"] == 120
        assert found["version"] == store.version
        assert found["labels"] == [{"label": name, "documents": 40} for name in GROUPS]
        assert {region["label"] for region in found["regions"]} == set(GROUPS)
        points = client.get(f"{MAP}/points")
        assert points.headers["content-type"] == "application/octet-stream"
        assert len(points.content) == 6 * 120
        known = store.known_map()
        assert known is not None
        assert points.content == known.packed()
        same = client.get(f"{MAP}/points", headers={"If-None-Match": points.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")
        query = {"map": found["map"], "point": [3, 50]}
        documents = client.get(f"{MAP}/documents", params=query).json()["documents"]
        assert [(one["point"], one["id"], one["labels"]) for one in documents] == [
            (3, "3", ["fruit"]),
            (50, "50", ["weather"]),
        ]
        assert documents[0]["text"] == store.document("3")["text"]
        carriers = client.get(f"{MAP}/carriers", params={"map": found["map"], "label": "fruit"}).json()
        assert carriers == {"label": "fruit", "points": list(range(40))}
        assert client.get(f"{MAP}/documents", params={**query, "point": 120}).status_code == 422
        assert client.delete("/v1/stores/things/documents/3").status_code == 200
        assert "has changed" in client.get(f"{MAP}/documents", params=query).json()["detail"]
        after = client.get(MAP).json()
        assert (after["points"], after["status"]) == (119, "idle")
        other = client.get(f"{MAP}/points", headers={"If-None-Match": points.headers["etag"]})
        assert other.status_code == 200
        assert other.headers["etag"] != points.headers["etag"]


def test_the_old_map_is_served_while_another_is_computed(store: Store) -> None:
    first = store.map()
    with TestClient(create_app({"things": store}), base_url=ADDRESS) as client:
        store.forget(["3"])
        store.refit()
        found = client.get(MAP).json()
        assert found["stale"]
        assert found["status"] == "running"
        assert found["points"] == len(first) - 1
        assert not drawn(client)["stale"]
        assert client.post(MAP).status_code == 202
        assert not drawn(client)["stale"]


def test_a_read_only_server_computes_the_map_for_itself(store: Store, tmp_path: Path) -> None:
    reader = Store.open(tmp_path / "store", readonly=True)
    with TestClient(create_app({"things": reader}, Settings(read_only=True)), base_url=ADDRESS) as client:
        client.get(MAP)
        assert drawn(client)["points"] == 120
    assert not (tmp_path / "store" / maps.FILE).exists()
