"""ripml's presets, measured by the same protocol as the rivals: default, linear, paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Modules that the first fit would import are imported before the clock starts, as for the rivals.
import sklearn.isotonic  # noqa: F401
from protocol import Method, NotPossibleError, run

from ripml import RIPML
from ripml.base.compiled import loops

loops()


class Preset(Method):
    name = "default"

    def train(self) -> None:
        make = RIPML if self.name == "default" else getattr(RIPML, self.name, None)
        if make is None:
            raise NotPossibleError(f"this version has no RIPML.{self.name}")
        self.model = make(random_state=self.seed).fit(self.X, self.Y)

    def save(self, folder: Path) -> None:
        self.model.save(folder)

    def predict(self, queries: Any) -> Any:
        return self.model.decision_function(queries)


class Linear(Preset):
    name = "linear"


class Paper(Preset):
    name = "paper"


if __name__ == "__main__":
    run({"default": Preset, "linear": Linear, "paper": Paper})
