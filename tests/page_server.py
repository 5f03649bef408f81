"""A server with small stores and Chromium, for the tests and the pictures of the page."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright
from scipy.sparse import csr_array

from ripml import RIPML, Store
from ripml.datasets import Dataset
from ripml.server import Settings, create_app

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None and not os.environ.get("CI"), reason="Chromium is not installed")

_TIMEOUT = 20_000  # milliseconds; long, for busy machines
QUESTIONS = [
    ("How do I reshape an array without copying its memory?", ["numpy", "arrays"]),
    ("Numpy broadcasting of two arrays with different shapes raises an error", ["numpy", "broadcasting", "arrays"]),
    ("Why is my Python loop slow, and how do I make it faster with numpy?", ["python", "performance", "numpy"]),
    ("Pandas merge of two data frames on several columns", ["pandas", "data-frame"]),
    ("Group a data frame by month and sum a column in pandas", ["pandas", "data-frame", "dates"]),
    ("Plot a histogram with matplotlib and set the colour of the bars", ["matplotlib", "plotting"]),
    ("Matplotlib legend outside of the plot", ["matplotlib", "plotting"]),
    ("Sparse matrix times dense vector in scipy is slow", ["scipy", "sparse-matrix", "performance"]),
    ("Solve a large sparse system with conjugate gradients in scipy", ["scipy", "sparse-matrix", "linear-algebra"]),
    ("Read a text file line by line in Python", ["python", "files"]),
    ("كيف أقرأ ملفا نصيا في بايثون", ["ملفات", "python"]),
    ("如何在 Python 中读取文本文件", ["文件", "python"]),
    ("Train a classifier of texts with tf-idf features in scikit-learn", ["scikit-learn", "text-classification"]),
    ("Cross-validation scores differ between runs in scikit-learn", ["scikit-learn", "cross-validation"]),
]
NEWS = [
    ("The central bank raises interest rates again", ["economy", "<img src=x onerror=alert(1)>"]),
    ("Striker scores twice in the cup final", ["football"]),
    ("Inflation slows as interest rates bite", ["economy"]),
    ("The goalkeeper saves a penalty in the final minute", ["football"]),
]


def data_of(documents: Sequence[tuple[str, Sequence[str]]]) -> Dataset:
    """A data set of documents."""
    names = sorted({label for _, labels in documents for label in labels})
    Y = np.array([[name in labels for name in names] for _, labels in documents])
    return Dataset(
        X=None, Y=csr_array(Y.astype(float)), label_names=names, texts=[text for text, _ in documents], name=""
    )


def stores_in(folder: Path) -> dict[str, Store]:
    """Two new stores."""
    return {
        "questions": Store.create(folder / "questions", data_of(QUESTIONS), RIPML(random_state=0)),
        "news": Store.create(folder / "news", data_of(NEWS), RIPML.paper(n_dims=16, n_neighbors=3, random_state=0)),
    }


@contextmanager
def serving(stores: Mapping[str, Store], settings: Settings | None = None) -> Iterator[str]:
    """Serve stores from a thread; yields the URL."""
    ready = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready.set()

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        app = create_app(stores, settings)
        server = Server(uvicorn.Config(app, log_config=None, lifespan="on", ws="none"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        ready.wait(30)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium without background requests."""
    assert CHROMIUM is not None, "Chromium must be installed under CI"
    disabled = ("gpu", "quic", "background-networking", "component-update", "sync")
    flags = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in disabled)]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@dataclass
class Visit:
    """An open page, with its console errors and its requests to other servers."""

    page: Page
    address: str
    errors: list[str] = field(default_factory=list)
    foreign_requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(_TIMEOUT)
        expect.set_options(timeout=_TIMEOUT)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith(self.address):
            self.foreign_requests.append(request.url)


def violations(page: Page) -> list[tuple[str, str]]:
    """The violations that axe finds with all rules enabled: rule and element."""
    page.evaluate("Promise.all(document.getAnimations().map((motion) => motion.finished.catch(() => 0)))")
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    every = "Object.fromEntries(axe.getRules().map(({ ruleId }) => [ruleId, { enabled: true }]))"
    found: dict[str, Any] = page.evaluate(f"axe.run(document, {{ rules: {every}, resultTypes: ['violations'] }})")
    return [(one["id"], node["html"]) for one in found["violations"] for node in one["nodes"]]
