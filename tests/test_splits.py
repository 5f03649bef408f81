"""Labels that may be two: found where two groups were put under one label, and nowhere else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

from ripml import RIPML, Store
from ripml.cli import main
from ripml.datasets import documents_given
from ripml.model.splits import LEVEL, excess_mass, halves_of, two_groups_are_there
from ripml.tagging.documents import DocumentModel

TOPICS = {
    "fruit": "apple pear plum cherry grape peach melon quince",
    "weather": "rain snow wind storm cloud sleet thunder drizzle",
    "music": "violin piano sonata opera choir drum melody flute",
}


def topic_texts(n: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """n texts of each topic, each with 9 of its 24 words, and the topics."""
    rng = np.random.default_rng(seed)
    topics = [topic for topic in TOPICS for _ in range(n)]
    words = {topic: [word + end for word in TOPICS[topic].split() for end in ("", "ly", "ish")] for topic in TOPICS}
    return [" ".join(rng.choice(words[topic], 9, replace=False)) for topic in topics], topics


def bags(rng: np.random.Generator, rows: int, features: int = 200) -> NDArray[np.float64]:
    """Rows of a few words each, drawn independently by Zipf's law."""
    chance = 1 / np.arange(1, features + 1)
    return np.asarray(rng.random((rows, features)) < 8 * chance / chance.sum(), np.float64)


def is_named(X: NDArray[np.float64], seed: int = 0) -> bool:
    """Whether these rows are taken for two groups."""
    random = np.random.default_rng(seed)
    p, _, agreement = two_groups_are_there(halves_of(scipy.sparse.csr_array(X), random), random)
    return p <= LEVEL and agreement >= 0.5


def test_one_cloud_of_any_shape_is_not_named() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        stretched = rng.normal(size=(200, 30)) * np.geomspace(8, 0.1, 30)
        heavy = rng.standard_t(3, size=(150, 20))
        flat = rng.random((300, 6))
        for X in (stretched, heavy, flat, bags(rng, 200)):
            assert not is_named(X, seed)


def test_one_word_that_half_of_the_rows_have_is_not_a_group() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = np.column_stack([bags(rng, 200) / 4, rng.random(200) < 0.5])
        assert not is_named(X, seed)


def test_two_clouds_are_named() -> None:
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        second = np.arange(200) < 70
        X = np.hstack([bags(rng, 200) * ~second[:, None], bags(rng, 200) * second[:, None]])
        found += is_named(X, seed)
    assert found >= 18


def test_the_excess_mass_does_not_depend_on_place_or_scale() -> None:
    values = np.sort(np.random.default_rng(0).normal(size=(4, 60)), axis=1)
    np.testing.assert_allclose(excess_mass(7 * values + 3), excess_mass(values))


def test_a_label_of_two_topics_is_named_with_their_words_and_labels() -> None:
    texts, topics = topic_texts(70)
    tags = [["outdoors"] if topic == "weather" else ["outdoors", topic] for topic in topics]
    tags = [["music"] if topic == "music" else some for topic, some in zip(topics, tags, strict=True)]
    data = documents_given(texts, tags)
    model = DocumentModel.fit(data, None, RIPML(random_state=0))
    (split,) = model.quality(100, 2, lambda rows: texts).splits
    assert (split.label, split.rows) == ("outdoors", 140)
    assert split.p <= LEVEL
    by_topic = {topics[int(group.examples[0])]: group for group in split.groups}
    assert by_topic.keys() == {"fruit", "weather"}
    for topic, group in by_topic.items():
        assert all(word.startswith(tuple(TOPICS[topic].split())) for word in map(str, group.words))
        assert {topics[int(row)] for row in group.examples} == {topic}
        assert group.share == pytest.approx(0.5, abs=0.05)
    assert by_topic["fruit"].labels == (("fruit", 1.0),)
    assert by_topic["weather"].labels == ()


def test_copies_are_not_a_group() -> None:
    X = np.random.default_rng(0).random((200, 8))
    X[:70] = [9, 9, 9, 9, 0, 0, 0, 0]
    X[70:80] += np.repeat([9, 0], 4)  # too few for a group
    Y = np.repeat([["one"], ["other"]], [150, 50], axis=0).tolist()
    assert RIPML(random_state=0, normalize=False).fit(X, Y).quality().splits == ()


def test_the_shell_prints_labels_that_may_be_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, topics = topic_texts(70)
    tags = [["music"] if topic == "music" else ["outdoors"] for topic in topics]
    data = replace(documents_given(texts, tags), ids=[f"d{i}" for i in range(len(texts))])
    with Store.create(tmp_path / "store", data, RIPML(random_state=0)) as store:
        (split,) = store.quality().splits
    assert all(str(id).startswith("d") for group in split.groups for id in group.examples)
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "store"), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [one["label"] for one in found["splits"]] == ["outdoors"]
    assert found["splits"][0]["groups"][0]["words"] == list(split.groups[0].words)
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "store")])
    printed = capsys.readouterr().out
    assert "Labels that may be two" in printed
    assert f"{100 * split.groups[0].share:.0f} %: {', '.join(map(str, split.groups[0].words))}" in printed
