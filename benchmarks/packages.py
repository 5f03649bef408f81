"""The wheel and the sdist in clean environments: without extras, with each extra, and with all of them.

    sdist → wheel → venv → pip install 'ripml[EXTRA]' → version, help, the feature that the extra enables
    without extras: a model is trained and used, and each optional feature answers with its `pip install` line
    with `serve`: also the commands of the README as printed, and the tags that its page shows in Chromium

Every environment is new and gets the versions that pip finds, so this needs the network (or a package index) and takes
minutes.

python benchmarks/packages.py [--quick] [--json PATH]
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from email import message_from_bytes
from pathlib import Path

from harness import Row, finish, options

ROOT = Path(__file__).resolve().parents[1]
# The feature of each extra, in one line of Python; without the extra it must fail with the extra's pip line.
PROBES = {
    "dask": "from ripml.distributed.partitions import dask_modules; dask_modules()",
    "index": "from ripml.neighbors import HNSW; import numpy as np; HNSW().build(np.eye(8, dtype=np.float32))",
    "parquet": "from ripml import datasets as d; d.write(d.read('tiny.jsonl'), 'tiny.parquet'); d.read('tiny.parquet')",
    "plot": "from ripml.cli import main; raise SystemExit(main(['inspect', 'tiny.jsonl', '--plot', 'tiny.png']))",
    "serve": "import ripml.server",
    "skos": "from ripml import datasets as d; d.read_vocabulary('tiny.ttl')",
    "text": "from ripml.text import Doc2Vec; Doc2Vec(tokens='jieba').fit(['腾讯 控股'] * 20)",
    "tune": "from ripml.cli import main; raise SystemExit(main(['tune', 'tiny.jsonl', 'study', '--trials', '1']))",
}


def build(folder: Path) -> Path:
    """Build the sdist, the wheel of the tree and the wheel of the sdist; return the last one."""
    hatchling = [sys.executable, "-m", "hatchling", "build"]
    subprocess.run([*hatchling, "-t", "sdist", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    subprocess.run([*hatchling, "-t", "wheel", "-d", str(folder)], cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def extras_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return sorted(message_from_bytes(archive.read(name)).get_all("Provides-Extra") or [])


def environment(folder: Path, wheel: Path, extra: str) -> Path:
    """Create an environment with the wheel and an extra ("" for none); return its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", wanted]
    subprocess.run(pip, check=True)
    return folder / "bin"


def tiny(folder: Path) -> None:
    """Write the small data file that the probes read."""
    rows = [{"text": f"{word} number {i}", "labels": [word]} for i in range(30) for word in ("apple", "cloud", "river")]
    (folder / "tiny.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    skos = "http://www.w3.org/2004/02/skos/core#"
    (folder / "tiny.ttl").write_text(f'<http://example.org/1> <{skos}prefLabel> "fruit"@en .\n')


def faults(programs: Path, work: Path, extra: str, extras: list[str]) -> list[str]:
    """The faults of an environment."""
    found = []

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RIPML"))}
        return subprocess.run(command, cwd=work, env=outside, capture_output=True, text=True, check=False)

    ripml, python = str(programs / "ripml"), str(programs / "python")
    commands = [([ripml, "--version"], "ripml"), ([python, "-m", "ripml", "--help"], "Usage")]
    if not extra:
        commands += [([ripml, "train", "tiny.jsonl", "model", "--preset", "linear"], "Trained")]
        commands += [([ripml, "suggest", "model", "an apple"], "apple")]
    for command, said in commands:
        done = run(*command)
        if done.returncode or said not in done.stdout:
            said_instead = (done.stderr or done.stdout)[-300:]
            found.append(f"[{extra}] {' '.join(command[1:])}: exit {done.returncode}: {said_instead}")
    for name in (name for name in extras if name != "all" and extra in ("", "all", name)):
        done = run(python, "-c", PROBES[name])
        if extra and done.returncode:
            found.append(f"[{extra}] the probe of {name} fails: {done.stderr[-500:]}")
        if not extra and (not done.returncode or f"pip install 'ripml[{name}]'" not in done.stderr):
            found.append(f"without {name}: exit {done.returncode}, {done.stderr[-300:]!r}")
    return found


def new_user(programs: Path, work: Path) -> list[str]:
    """The faults of the README's commands, run as printed, and of the page that they serve."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    script, serve = "".join(block for block in blocks if not block.startswith("pip")).split("ripml serve ")
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    shell = ["bash", "-euo", "pipefail", "-c"]
    done = subprocess.run([*shell, script], cwd=work, env=environment, capture_output=True, text=True, check=False)
    if done.returncode or "login" not in done.stdout:
        return [f"README: {done.returncode}: {done.stdout[-300:]} {done.stderr[-300:]}"]
    command = f"exec ripml serve {serve.strip()} --port 0"
    with subprocess.Popen([*shell, command], cwd=work, env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        said = next((line for line in server.stderr if "Serving" in line), "")
        url = re.search(r"http://[\d.:]+", said)
        shown = tags_on_page(url[0], "I never got the mail to reset my password") if url else [said]
        server.terminate()
        server.communicate()
    print(f"the README's commands: {done.stdout.splitlines()[-5:]}; the page: {shown}")
    return [] if any("login" in tag for tag in shown) else [f"README: the page shows {shown}"]


def tags_on_page(url: str, text: str) -> list[str]:
    """The tags that the page suggests for a text typed into it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--no-first-run"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page()
        page.goto(url)
        page.fill("#text", text)
        page.wait_for_selector("#tags li")
        shown = [" ".join(tag.split()) for tag in page.locator("#tags li").all_inner_texts()]
        browser.close()
    return shown


def main() -> None:
    arguments = options(__doc__ or "")
    found: list[str] = []
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder)
        extras = extras_of(wheel)
        rows.append(("wheel, MB", wheel.stat().st_size / 1e6, ""))
        for extra in ("", "serve") if arguments.quick else ("", *extras):
            start = time.perf_counter()
            work = folder / f"work-{extra}"
            work.mkdir()
            tiny(work)
            programs = environment(folder / f"venv-{extra}", wheel, extra)
            new = faults(programs, work, extra, extras) + (new_user(programs, work) if extra == "serve" else [])
            found += new
            print(f"{extra or 'no extra'}: {len(new)} faults, {time.perf_counter() - start:.0f} s", flush=True)
            rows.append((f"faults with {extra or 'no extra'}", len(new), "0"))
    print(*found, sep="\n")
    finish(rows, arguments.json)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
