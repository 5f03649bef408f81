"""The pages: links resolve, commands and files exist, every page is linked, and none names a path of one machine."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import typer
from importlinter import api

from ripml.base import registry

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

FENCED = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
# [text](target), ![image](target "title"), and [name]: target on its own line.
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^ {0,3}\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
HTML_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
MACHINE_PATH = re.compile(r"(?<![\w.~/-])(?:/(?:home|root|work|Users|mnt|opt|tmp)/|[A-Z]:\\)[\w.-]+")


def links(page: Path) -> Iterator[str]:
    """The targets of the relative links of a page; code is skipped."""
    prose = INLINE_CODE.sub("``", FENCED.sub("", page.read_text(encoding="utf-8")))
    for match in LINK.finditer(prose):
        target = match[1] or match[2]
        if not EXTERNAL.match(target):
            yield unquote(target)


def anchors(page: Path) -> set[str]:
    """GitHub's anchors for a page: headings in lower case, no punctuation, hyphens for spaces, duplicates numbered."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    names = set(HTML_ANCHOR.findall(text))
    for heading in HEADING.findall(text):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        repeat = 0
        name = slug
        while name in names:
            repeat += 1
            name = f"{slug}-{repeat}"
        names.add(name)
    return names


def fault(page: Path, target: str) -> str | None:
    """The problem with a link, or None."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    where = f"{page.relative_to(ROOT)}: {target}"
    if path.startswith("/") or not file.is_relative_to(ROOT):
        return f"{where} leaves the repository"
    if not file.exists():
        return f"{where} does not exist"
    if anchor and file.suffix == ".md" and anchor not in anchors(file):
        return f"{where} has no such heading"
    return None


def test_every_relative_link_leads_to_a_file_and_a_heading_that_exist() -> None:
    assert [problem for page in PAGES for target in links(page) if (problem := fault(page, target))] == []


def test_every_page_of_the_docs_is_linked_from_the_readme_or_an_index_of_the_docs() -> None:
    indexes = [ROOT / "README.md", *DOCS.rglob("README.md")]
    linked = {(page.parent / target.partition("#")[0]).resolve() for page in indexes for target in links(page)}
    pages = [page for page in PAGES if page.is_relative_to(DOCS) and page != DOCS / "README.md"]
    assert [str(page.relative_to(ROOT)) for page in pages if page not in linked] == []


def test_no_page_names_a_path_of_one_machine() -> None:
    assert [
        f"{page.relative_to(ROOT)}: {path}"
        for page in PAGES
        for path in MACHINE_PATH.findall(page.read_text(encoding="utf-8"))
    ] == []


def test_a_broken_link_a_missing_heading_and_a_link_out_of_the_repository_are_detected() -> None:
    here = ROOT / "CONTRIBUTING.md"
    assert fault(here, "pyproject.toml") is None
    assert fault(here, "no-such-page.md") == "CONTRIBUTING.md: no-such-page.md does not exist"
    assert fault(here, "#no-such-heading") == "CONTRIBUTING.md: #no-such-heading has no such heading"
    assert fault(here, "../elsewhere.md") == "CONTRIBUTING.md: ../elsewhere.md leaves the repository"


def test_links_in_code_are_not_links(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '[a](one.md) ![b](two.png "title") `[c](code.md)` [d](https://example.org)\n'
        "```python\nx[0](fenced.md)\n```\n\n[e]: three.md#part\n",
        encoding="utf-8",
    )
    assert list(links(page)) == ["one.md", "two.png", "three.md#part"]


def test_anchors_are_made_as_github_makes_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# The `k` of P@k\n## Why?\n## Why?\n### [Linked](x.md) text ###\n", encoding="utf-8")
    assert anchors(page) == {"the-k-of-pk", "why", "why-1", "linked-text"}


def test_machine_paths_are_distinguished_from_addresses_and_relative_paths() -> None:
    text = "see https://example.org/work/page, docs/work/x and ~/work/y, not /home/someone/data"
    assert MACHINE_PATH.findall(text) == ["/home/someone"]


def test_the_page_of_the_papers_experiments_has_the_figures_of_the_stored_full_run() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        page = importlib.import_module("reproduction_page")
    finally:
        sys.path.pop(0)
    assert (DOCS / "reproduce.md").read_text(encoding="utf-8").partition(page.MARK)[2].strip() == page.results().strip()
    assert not any(json.loads(path.read_text())["quick"] for path in page.RESULTS.glob("*.json"))


SOURCE = ROOT / "src" / "ripml"
SOURCE_FILE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py|/))`")
LAYER = re.compile(r"^\| (\d) \| `([a-z_]+)(?:/|\.py)` \|", re.MULTILINE)


def test_every_file_and_folder_that_the_architecture_page_names_exists() -> None:
    named = SOURCE_FILE.findall((DOCS / "architecture.md").read_text(encoding="utf-8"))
    assert len(named) > 60
    assert sorted({name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists()}) == []


def test_every_stage_can_be_imported_as_the_architecture_page_shows() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    shown = [
        (module, name)
        for module, names in re.findall(r"^from (ripml\.\w+) import (.+)$", page, re.MULTILINE)
        for name in names.split(", ")
    ]
    kinds = ("ensemble", "kernel", "solver", "index", "decoder")
    assert {name for _, name in shown} == {name for kind in kinds for name in registry.class_names(kind)}
    assert [f"{module}.{name}" for module, name in shown if not hasattr(importlib.import_module(module), name)] == []


def test_the_architecture_page_and_its_picture_have_every_package_in_its_layer() -> None:
    contract = api.read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"][0]
    expected = {
        package: str(number)
        for number, layer in enumerate(reversed(contract["layers"]), start=1)
        for package in re.findall(r"[a-z_]+", layer)
    }
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert {package: number for number, package in LAYER.findall(page)} == expected
    picture = (DOCS / "architecture.svg").read_text(encoding="utf-8")
    assert set(re.findall(r'<text class="n"[^>]*>([a-z_]+)</text>', picture)) == set(expected)


COMMAND = re.compile(r"^(?:.*\| )?(ripml(?: .*)?)$", re.MULTILINE)
CODE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def commands(page: Path) -> Iterator[list[str]]:
    """The `ripml` commands on a page, each as a list of words."""
    for block in CODE.finditer(page.read_text(encoding="utf-8")):
        for match in COMMAND.finditer(block[2].replace("\\\n", " ")) if block[1] in ("", "sh") else ():
            yield shlex.split(match[1].partition("  #")[0].replace("…", "x"), comments=True)


def unknown_words(words: list[str]) -> list[str]:
    """The first subcommand or option of a command that `ripml` does not have."""
    command: Any = typer.main.get_command(importlib.import_module("ripml.cli.app").app)
    known = {"--help"}
    for word in words[1:]:
        if hasattr(command, "commands") and not word.startswith("-"):
            if word not in command.commands:
                return [word]
            command = command.commands[word]
        elif word.startswith("-") and word != "-":
            known |= {option for parameter in command.params for option in parameter.opts}
            if word.partition("=")[0] not in known:
                return [word]
    return []


def test_every_command_on_the_pages_exists() -> None:
    pages = [page for page in PAGES if page.name not in ("shell.md", "CHANGELOG.md")]
    lines = [(page, words) for page in pages for words in commands(page)]
    assert len(lines) > 40
    assert [f"{page.relative_to(ROOT)}: {' '.join(words)}" for page, words in lines if unknown_words(words)] == []


def test_commands_and_options_that_do_not_exist_are_detected() -> None:
    assert unknown_words(["ripml", "train", "x.jsonl", "model/", "--preset", "linear"]) == []
    assert unknown_words(["ripml", "trian", "x.jsonl"]) == ["trian"]
    assert unknown_words(["ripml", "labels", "list", "store/", "--no-such-option"]) == ["--no-such-option"]
