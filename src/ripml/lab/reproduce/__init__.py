"""The paper's experiments: every table and figure measured again, our numbers next to the paper's.

An experiment is a list of measurements, a way to draw them, and the claims of the paper that they judge
(`experiment.Experiment`). `laboratory.run` makes the missing measurements and writes JSON, CSV, PNG and SVG for each
experiment, and one report.
"""

from __future__ import annotations

from ripml.lab.reproduce.laboratory import EXPERIMENTS, run

__all__ = ["EXPERIMENTS", "run"]
