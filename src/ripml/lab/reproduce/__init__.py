"""The paper's laboratory: every table and figure again, with our figures beside the paper's.

An experiment is a list of measurements, a way to draw them, and the claims of the paper that they bear on
(`ripml.lab.reproduce.experiment`). `laboratory.run` makes the measurements that are not there yet and
writes JSON, CSV, PNG and SVG for each experiment, and one report.
"""

from __future__ import annotations

from ripml.lab.reproduce.laboratory import EXPERIMENTS, run

__all__ = ["EXPERIMENTS", "run"]
