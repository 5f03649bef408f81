"""What the paper says, in numbers: its two tables. Its figures are pictures whose numbers are not in its source."""

from __future__ import annotations

__all__ = ["ENTITIES", "MILLISECONDS", "STATISTICS", "TRAINING_MINUTES"]

# d, features a row, L, labels a row, all rows, training rows, test rows
STATISTICS: dict[str, tuple[str, str, int, float, int, int, int]] = {
    "Bibtex": ("1,836", "68.74", 159, 2.40, 7_395, 4_880, 2_515),
    "EURLex": ("5,000", "236.69", 3_993, 5.31, 19_314, 17_383, 1_931),
    "Delicious": ("500", "18.17", 983, 19.03, 16_091, 12_910, 3_181),
    "Chinese Relevance Modeling": ("100 – 400", "dense", 391, 1.02, 5_011, 4_511, 500),
    "Entity Recommendation": ("400", "dense", 359_524, 32.55, 510_539, 500_539, 10_000),
}

# P@1, P@3 and P@5 of entity recommendation by (m, number of clusters)
ENTITIES: dict[tuple[int, int], tuple[float, float, float]] = {
    (50, 1): (31.02, 23.60, 20.20),
    (50, 25): (39.42, 31.72, 27.61),
    (50, 43): (41.72, 33.67, 29.32),
    (50, 56): (41.23, 33.69, 29.54),
    (100, 1): (33.55, 25.58, 21.70),
    (100, 25): (42.10, 34.24, 29.89),
    (100, 43): (44.11, 36.08, 31.39),
    (100, 56): (43.91, 36.16, 31.65),
    (250, 1): (35.76, 27.20, 23.46),
    (250, 25): (44.44, 35.81, 31.38),
    (250, 43): (46.28, 37.95, 33.15),
    (250, 56): (46.30, 37.92, 33.45),
}
TRAINING_MINUTES = {1: 3.0, 43: 7.0}  # "less than 3" and "about 7", on a laptop of 2.5 GHz
MILLISECONDS = {1: 72.0, 43: 6.5}  # a prediction
