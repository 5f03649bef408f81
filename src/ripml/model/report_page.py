"""The quality of a model as one HTML file: data, charts and style in it, so that it loads nothing and can be sent.

It is made of the same files as the view Quality of the server's page, which are in the package whether or not the
server's extra is installed. Scripts are modules that import from each other by relative paths; a page from the disk may
not, so they are joined in the order of their imports. A content security policy with the hashes of the scripts lets
nothing else run and forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from html import escape
from importlib.resources import files
from typing import Any

__all__ = ["report_page"]

_STYLES = ("page.css", "vendor/uPlot.min.css", "views/quality.css")
_MODULES = ("dom.js", "charts.js", "relations.js", "figures.js", "report.js")  # each imports from those before it only
_IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)


def report_page(title: str, content: Mapping[str, Any]) -> str:
    """The page for the JSON of a `Quality`."""
    styles = "\n".join(map(_read, _STYLES))
    charts, code = _read("vendor/uPlot.iife.min.js"), "".join(_without_imports(_read(name)) for name in _MODULES)
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {_hash(charts)} {_hash(code)}; base-uri 'none'; "
        "form-action 'none'"
    )
    made = datetime.now(timezone.utc).isoformat(timespec="seconds")
    # JSON in HTML: no "</script>" can end it before its end.
    data = json.dumps({**content, "title": title, "made": made}, ensure_ascii=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{styles}</style>\n</head>\n"
        f'<body class="report">\n<main>\n<h1 dir="auto">{escape(title)}</h1>\n<p class="hint" id="made"></p>\n'
        f'<div id="quality">\n{_read("views/quality.html")}</div>\n<p class="unseen" id="say" role="status"></p>\n'
        f'</main>\n<script type="application/json" id="data">{data}</script>\n'
        f'<script>{charts}</script>\n<script type="module">{code}</script>\n</body>\n</html>\n'
    )


def _read(name: str) -> str:
    return (files("ripml") / "server" / "page" / name).read_text(encoding="utf-8")


def _without_imports(code: str) -> str:
    return re.sub(r"^export (default )?", "", _IMPORT.sub("", code), flags=re.MULTILINE)


def _hash(script: str) -> str:
    """The source of a script in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
