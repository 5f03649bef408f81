"""The report: one self-contained HTML file with every table and figure, and the same tables as Markdown."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ripml.lab.reproduce.experiment import Experiment, Rows, Table

__all__ = ["VERDICTS", "markdown", "write_report"]

VERDICTS = {True: "holds", False: "does not hold here", None: "cannot be decided here"}
_CLASSES = {True: "holds", False: "fails", None: "open"}

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --page: #ffffff; --rule: #d9dee4; --soft: #f4f6f8; --dim: #5a6875;
  --yes: #12633a; --yes-bg: #dff3e6; --no: #8f1d1d; --no-bg: #fbe3e1; --open: #5b4a00; --open-bg: #fbf1cf; }
@media (prefers-color-scheme: dark) { :root { --ink: #dde4ea; --page: #14191f; --rule: #36414c; --soft: #1d242c;
  --dim: #9fb0bf; --yes: #a7e6c1; --yes-bg: #163a28; --no: #ffb8b2; --no-bg: #4a1c1c; --open: #f3df93;
  --open-bg: #40370e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1.5rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0.5rem 0; }
h2 { font-size: 1.3rem; margin: 3rem 0 0.5rem; padding-top: 1rem; border-top: 1px solid var(--rule); }
p.dim, figcaption, caption { color: var(--dim); }
nav ol { padding-left: 1.3rem; }
a { color: inherit; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: 0.35rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--rule); text-align: right; vertical-align: top; }
th:first-child, td:first-child, .claims th, .claims td { text-align: left; }
thead th { border-bottom-width: 2px; }
figure { margin: 1.25rem 0; padding: 0.75rem; background: #ffffff; border: 1px solid var(--rule); border-radius: 6px; }
figure svg { display: block; width: auto; height: auto; max-width: 100%; margin: 0 auto; }
figcaption { color: #5a6875; padding-top: 0.5rem; font-size: 0.92rem; }
.verdict { display: inline-block; padding: 0.05rem 0.6rem; border-radius: 1rem; font-weight: 600; white-space: nowrap; }
.holds { color: var(--yes); background: var(--yes-bg); }
.fails { color: var(--no); background: var(--no-bg); }
.open { color: var(--open); background: var(--open-bg); }
"""


def write_report(folder: Path, experiments: Sequence[tuple[Experiment, Path]]) -> Path:
    """Write report.html and summary.md of experiments with results in these folders; return the path of the former."""
    results = [
        (experiment, place, json.loads((place / "result.json").read_text("utf-8"))) for experiment, place in experiments
    ]
    path = folder / "report.html"
    path.write_text(_page(results), encoding="utf-8")
    (folder / "summary.md").write_text(markdown([(one, result) for one, _, result in results]), encoding="utf-8")
    return path


def _page(results: Sequence[tuple[Experiment, Path, dict[str, Any]]]) -> str:
    quick = any(result["quick"] for _, _, result in results)
    environment = results[0][2]["environment"]
    versions = ", ".join(f"{name} {value}" for name, value in environment.items() if name != "cores")
    links = "".join(f'<li><a href="#{one.word}">{_text(one.title)}</a></li>' for one, _, _ in results)
    claims = [claim for _, _, result in results for claim in result["claims"]]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>RIPML: the paper’s experiments</title><style>{_STYLE}</style></head><body>
<h1>RIPML: the paper’s tables and figures, repeated</h1>
<p>{"A quick look: fewer values, splits and rows than the full run. " if quick else ""}Made with {_text(versions)}, on
{environment["cores"]} cores. No parameter was chosen on test rows; where a claim is about the best m, it is the best on
test rows, for all methods alike. Precision is in percent.</p>
<nav><ol>{links}</ol></nav>
<h2 id="claims">The paper’s claims, and what was found here</h2>
{_claims(claims)}
{"".join(_section(*result) for result in results)}
</body></html>
"""


def _section(experiment: Experiment, place: Path, result: dict[str, Any]) -> str:
    figures = "".join(
        f"<figure>{_inline(place / f'{number}.svg', f'{experiment.word}-{number}')}"
        f"<figcaption>{_text(caption)}</figcaption></figure>"
        for number, caption in enumerate(result["figures"], start=1)
    )
    return f"""<section id="{experiment.word}"><h2>{experiment.number}. {_text(experiment.title)}</h2>
<p class="dim">{_text(result["protocol"])}</p>{figures}
{_claims(result["claims"])}
{"".join(_table(table) for table in experiment.tables(Rows(result["rows"])))}</section>
"""


def _inline(path: Path, prefix: str) -> str:
    """An SVG to stand inside a page: without its prologue, and with ids that no other figure has."""
    drawing = path.read_text(encoding="utf-8")
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'\b(id|xlink:href|href)="(#?)', rf'\1="\2{prefix}-', drawing)
    return drawing.replace("url(#", f"url(#{prefix}-")


def _claims(claims: Sequence[dict[str, Any]]) -> str:
    lines = "".join(
        f"<tr><td>{_text(claim['text'])}</td>"
        f'<td><span class="verdict {_CLASSES[claim["holds"]]}">{VERDICTS[claim["holds"]]}</span></td>'
        f"<td>{_text(claim['evidence'])}</td></tr>\n"
        for claim in claims
    )
    head = "<thead><tr><th>claim</th><th></th><th>evidence</th></tr></thead>"
    return f'<div class="scroll"><table class="claims">{head}<tbody>{lines}</tbody></table></div>\n'


def _table(table: Table) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in table.columns)
    lines = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>\n" for row in table.rows)
    return (
        f'<div class="scroll"><table><caption>{_text(table.title)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>\n"
    )


def _text(value: Any) -> str:
    return html.escape(_cell(value))


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def markdown(results: Sequence[tuple[Experiment, dict[str, Any]]]) -> str:
    """The claims and the tables as Markdown, for a page of documentation."""
    parts = []
    for experiment, result in results:
        parts.append(f"## {experiment.number}. {experiment.title}\n\n{result['protocol']}\n")
        claims = [[claim["text"], VERDICTS[claim["holds"]], claim["evidence"]] for claim in result["claims"]]
        tables = [Table("", ["the paper's claim", "", "evidence"], claims), *experiment.tables(Rows(result["rows"]))]
        for table in tables:
            rows = [table.columns, ["---"] * len(table.columns), *table.rows]
            lines = ("| " + " | ".join(_cell(cell).replace("|", "\\|") for cell in row) + " |\n" for row in rows)
            parts.append((f"**{table.title}**\n\n" if table.title else "") + "".join(lines))
    return "\n".join(parts)
