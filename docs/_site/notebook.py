"""Runs examples/notebook.ipynb in this process, and takes the pictures of its outputs for docs/how-to/notebook.md.

`python docs/_site/notebook.py` runs the cells and writes the notebook with their outputs, in Jupyter's format; with
`--pictures` Chromium takes pictures, too. What a cell shows is what Jupyter would show: what is printed, and the value
of its last line as HTML, as a picture or as text.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import html
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
PICTURES = ROOT / "docs" / "how-to" / "notebook"
_THEMES = {"light": "background:#fff;color:#1c1e20", "dark": "background:#111;color:#dadada"}
_MARK = "# picture: "  # the last line of a cell whose output is kept as a picture of this name


def run(cells: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Run the code of a notebook, and yield the outputs of each cell of code."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        if cell["cell_type"] == "code":
            yield _run("".join(cell["source"]), names)


def _run(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None  # type: ignore[attr-defined]
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(last, "<cell>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        data = dict(_shown(value))
        outputs.append({"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": None})
    return outputs


def _shown(value: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "_repr_html_") and (source := value._repr_html_()) is not None:
        yield "text/html", _lines(source)
    if hasattr(value, "_repr_png_"):
        yield "image/png", base64.b64encode(value._repr_png_()).decode()
    yield "text/plain", _lines(repr(value))


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def execute() -> dict[str, Any]:
    """The notebook with the outputs of its cells."""
    notebook: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, outputs) in enumerate(zip(codes, run(notebook["cells"]), strict=True), 1):
        for output in outputs:
            if "execution_count" in output:
                output["execution_count"] = number
        cell["execution_count"], cell["outputs"] = number, outputs
    return notebook


def take_pictures(notebook: dict[str, Any], folder: Path) -> None:
    """Write a picture of each output that has a name, in light and in dark."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, output in _named(notebook):
            for theme, colours in _THEMES.items():
                page = browser.new_page(viewport={"width": 900, "height": 300}, color_scheme=theme)  # type: ignore[arg-type]
                page.set_content(f'<body style="margin:1rem;{colours}">{output}</body>')
                page.screenshot(path=folder / f"{name}-{theme}.png", full_page=True)
                page.close()
        browser.close()


def _named(notebook: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for cell in notebook["cells"]:
        last = "".join(cell["source"]).splitlines()[-1]
        if not last.startswith(_MARK):
            continue
        data = cell["outputs"][-1]["data"]
        if "image/png" in data:
            yield last.removeprefix(_MARK), f'<img src="data:image/png;base64,{data["image/png"]}" style="width:100%">'
        else:
            plain = f"<pre>{html.escape(''.join(data['text/plain']))}</pre>"
            yield last.removeprefix(_MARK), "".join(data.get("text/html", [plain]))


if __name__ == "__main__":
    executed = execute()
    NOTEBOOK.write_text(json.dumps(executed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if "--pictures" in sys.argv[1:]:
        take_pictures(executed, PICTURES)
