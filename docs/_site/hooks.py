"""Pages of the site generated from other files: the changelog, CONTRIBUTING, SECURITY, and one page per example."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import material.plugins.search.plugin as search
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

search.jieba = None  # it would cache its dictionary in the temporary folder, and all pages are in English

ROOT = Path(__file__).resolve().parents[2]
_FROM_ELSEWHERE = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//|<link\b[^>]*\bhref=\"?(?:https?:)?//"
)
_FIGURES = re.compile(r"(?<=\d) / (?=\d)")  # "88.4 / 76.9 / 64.6"
_EXAMPLE_LINK = re.compile(r"\]\((?P<up>(?:\.\./)+)examples/(?P<name>\w+)\.py\)")


def example_page(script: Path) -> str:
    """A page of an example: its docstring in front of its code."""
    source = script.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    title, _, rest = docstring.partition("\n\n")
    prose = rest.rpartition("\n\n")[0]  # the last paragraph is the command
    code = source.split('"""', 2)[2].strip()
    return f"# {title.rstrip('.')}\n\n{prose}\n\n```\npython examples/{script.name}\n```\n\n```python\n{code}\n```\n"


def examples_index(scripts: list[Path]) -> str:
    """The list of examples, each with the first sentence of its docstring."""
    lines = ["# Examples", "", "Each example is a single script that runs in seconds. The tests run all of them.", ""]
    for script in scripts:
        docstring = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        lines.append(f"- [`{script.name}`]({script.stem}.md): {docstring.partition(chr(10) * 2)[0]}")
    return "\n".join(lines) + "\n"


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    scripts = sorted((ROOT / "examples").glob("*.py"))
    pages = {
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        "security.md": (ROOT / "SECURITY.md")
        .read_text(encoding="utf-8")
        .replace("](docs/", "](")
        .replace("](CHANGELOG.md)", "](changelog.md)"),
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").replace("](docs/", "]("),
        "examples/index.md": examples_index(scripts),
        **{f"examples/{script.stem}.md": example_page(script) for script in scripts},
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to files outside docs/ at their generated pages, and keep "88.4 / 76.9 / 64.6" on one line."""
    depth = page.file.src_uri.count("/")

    def target(match: re.Match[str]) -> str:
        inside = match["up"].count("../") == depth + 1
        return f"]({'../' * depth}examples/{match['name']}.md)" if inside else match[0]

    markdown = markdown.replace("](../CONTRIBUTING.md)", "](contributing.md)").replace(
        "](../SECURITY.md)", "](security.md)"
    )
    return _FIGURES.sub("\u00a0/\u00a0", _EXAMPLE_LINK.sub(target, markdown))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that loads anything from another host."""
    if found := _FROM_ELSEWHERE.search(output):
        raise PluginError(f"{page.file.src_uri} loads from another host: {output[found.start() : found.end() + 60]}")
    return output
