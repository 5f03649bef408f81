"""The examples and the commands of the tutorial run and print what they promise; the benchmark scripts start."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from realdata import data_folder

ROOT = Path(__file__).resolve().parents[1]
PROMISED = {
    "tag_tickets.py": "cannot log in, password refused: login",
    "which_ensemble.py": "deterministic",
    "grid_search.py": "best: {'ripml__n_neighbors':",
    "tag_questions.py": r"How do I parse a JSON string\? .* json",
    "encoder_embeddings.py": r"embeddings  P@1 \d+",
    "chinese_tickers.py": r"on 200 others P@1 is 9\d %",
    "related_articles.py": r"Blue Whale\n  links to: .*Mammal",
    "subject_indexing.py": r"new/new-1.tsv\n<http://eurovoc.europa.eu/\d+>\t",
}
OF_DATA = ("chinese_tickers.py", "related_articles.py", "subject_indexing.py")
QUICK = (*OF_DATA, "encoder_embeddings.py")
WITH_DATA = ("paper", "losses", "missing_labels", "rivals")


@pytest.mark.filterwarnings("default")  # an example may warn, as it would for a reader
@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs_and_prints_what_it_promises(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if script.name not in OF_DATA:
        monkeypatch.delenv("RIPML_DATA", raising=False)
    elif "RIPML_DATA" not in os.environ:
        if not os.environ.get("CI"):
            pytest.skip("RIPML_DATA is not set to the folder of the data sets")
        data_folder()
    monkeypatch.setattr(sys, "argv", [str(script), *(["--quick"] if script.name in QUICK else [])])
    runpy.run_path(str(script), run_name="__main__")
    out = capsys.readouterr().out
    promised = PROMISED[script.name]
    assert promised in out or re.search(promised, out), out


def example(name: str) -> ModuleType:
    """Import an example without running its `main`."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", OF_DATA)
def test_an_example_that_needs_data_says_so_if_there_is_none(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RIPML_DATA", raising=False)
    example(name.removesuffix(".py")).main()
    assert capsys.readouterr().out == "skipped: set RIPML_DATA to the folder of the data sets\n"


def test_the_questions_of_a_stack_exchange_dump_are_read_with_their_tags_and_answers_are_not() -> None:
    dump = """<?xml version="1.0" encoding="utf-8"?>
<posts>
  <row Id="4" PostTypeId="1" Score="12" Title="Why does 茶 go cold?"
       Body="&lt;p&gt;My &lt;em&gt;tea&lt;/em&gt; …&lt;/p&gt;" Tags="&lt;tea&gt;&lt;heat-transfer&gt;" />
  <row Id="5" PostTypeId="2" ParentId="4" Body="&lt;p&gt;It radiates.&lt;/p&gt;" />
  <row Id="6" PostTypeId="1" Title="Which cup?" Body="&lt;p&gt;Any?&lt;/p&gt;" Tags="|tea|c++|.net|" />
  <row Id="7" PostTypeId="1" Title="Untagged" Body="" />
</posts>"""
    assert list(example("tag_questions").from_dump(io.BytesIO(dump.encode()))) == [
        ("Why does 茶 go cold?\n<p>My <em>tea</em> …</p>", ["tea", "heat-transfer"]),
        ("Which cup?\n<p>Any?</p>", ["tea", "c++", ".net"]),
        ("Untagged\n", []),
    ]


FENCE = re.compile(r"^```(sh|text)\n(.*?)^```$|^<!-- (The server stops here)\. -->$", re.MULTILINE | re.DOTALL)


def steps(page: str) -> Iterator[tuple[str, str]]:
    """The steps of a page: commands to type (sh), output to expect (text), and the point where the server stops."""
    for match in FENCE.finditer(page):
        yield match[1] or "stop", match[2] or ""


def masked(text: str) -> list[str]:
    """The lines without whitespace and numbers, which differ between machines."""
    return [re.sub(r"\s+|\d+(\.\d+)?", "", line) for line in text.splitlines()]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run_in_shell(command: str, folder: Path) -> subprocess.Popen[str]:
    """Run a command in a shell that finds the programs of this environment."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = ["bash", "-euo", "pipefail", "-c", command]
    pipe = subprocess.PIPE
    environment = {**os.environ, "PATH": programs}
    return subprocess.Popen(shell, cwd=folder, env=environment, text=True, stdout=pipe, stderr=pipe)


def follow(name: str, folder: Path) -> None:
    """Type the commands of a page into a shell, and compare what they print with what the page shows."""
    port = free_port()
    page = (ROOT / "docs" / name).read_text(encoding="utf-8").replace(":8000", f":{port}")
    server, out = None, ""
    try:
        for kind, content in steps(page):
            if content.startswith("ripml serve"):
                server = run_in_shell(f"exec {content.strip()} --port {port}", folder)
                assert server.stderr is not None
                out = next(line for line in server.stderr if "Serving" in line)  # printed once it listens
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                    assert b"<html" in answer.read()
            elif kind == "sh":
                with run_in_shell(content, folder) as process:
                    out, errors = process.communicate()
                assert process.returncode == 0, f"{content}\n{errors}"
            elif kind == "text":
                shown = "".join(masked(out))
                assert [line for line in masked(content) if line != "…" and line not in shown] == [], out
            elif server is not None:
                server.send_signal(signal.SIGINT)
                assert server.wait(60) == 0
    finally:
        if server is not None:
            server.kill()
            server.communicate()
    assert server is not None


def test_the_commands_of_the_tutorial_print_what_it_shows(tmp_path: Path) -> None:
    follow("tutorial.md", tmp_path)


def test_the_commands_of_the_page_about_library_records_run_on_some_of_them(tmp_path: Path) -> None:
    home = data_folder() / "tibkat"
    with gzip.open(home / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        records = list(map(json.loads, file))
    with gzip.open(home / "names-en.tsv.gz", "rt", encoding="utf-8") as file:
        names = dict(line.rstrip("\n").split("\t") for line in file)
    datasets = tmp_path / "llms4subjects" / "shared-task-datasets"  # as the task has it
    some = [record for record in records if record["split"] == "train"][::200]
    some += [record for record in records if record["split"] == "test"][::350]
    for record in some:
        title, _, abstract = record["text"].partition("\n")
        subjects = [{"@id": label} for label in record["labels"]]
        graph = [*({**subject, "sameAs": "…"} for subject in subjects), {"title": title, "abstract": [abstract]}]
        graph[-1]["dcterms:subject"] = subjects if len(subjects) > 1 else subjects[0]
        part = {"train": "train", "test": "dev"}[record["split"]]
        folder = datasets / "TIBKAT/tib-core-subjects/data" / part / record["kind"] / record["lang"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{record['id']}.jsonld").write_text(json.dumps({"@graph": graph}), encoding="utf-8")
    taxonomy = [{"Code": code, "Name": name, "Alternate Name": []} for code, name in names.items()]
    (datasets / "GND/dataset").mkdir(parents=True)
    (datasets / "GND/dataset/GND-Subjects-tib-core.json").write_text(json.dumps(taxonomy), encoding="utf-8")
    follow("library.md", tmp_path)
    lines = (tmp_path / "records.jsonl").read_text(encoding="utf-8").splitlines()
    known = {record["id"]: set(record["labels"]) for record in some if record["split"] == "train"}
    assert {row["id"]: set(row["labels"]) for row in map(json.loads, lines)} == known


@pytest.mark.parametrize("name", ["bounds", "ensembles", "solvers", "startup", *WITH_DATA])
def test_a_benchmark_runs_alone_and_writes_flat_json(name: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RIPML_DATA"}
    script = ROOT / "benchmarks" / f"{name}.py"
    command = [sys.executable, str(script), "--quick", "--json", str(tmp_path / "figures.json")]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    if name in WITH_DATA:
        assert process.stdout.startswith("skipped: set RIPML_DATA")
        return
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert all(isinstance(value, (int, float)) for value in figures.values())


def test_the_notebook_was_executed_and_its_cells_still_give_the_same_kinds_of_output() -> None:
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "docs" / "_site" / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kept = json.loads(module.NOTEBOOK.read_text(encoding="utf-8"))
    kinds = [
        [
            [(output["output_type"], sorted(output.get("data", {}))) for output in cell["outputs"]]
            for cell in notebook["cells"]
            if cell["cell_type"] == "code"
        ]
        for notebook in (kept, module.execute())
    ]
    assert kinds[0] == kinds[1]
    assert sum(map(len, kinds[0])) >= 7
    pictures = {f"{name}-{theme}.png" for name, _ in module._named(kept) for theme in ("light", "dark")}
    assert pictures == {path.name for path in module.PICTURES.iterdir()}
