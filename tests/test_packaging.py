"""The wheel and the sdist: what is in them, and that the one can be made from the other."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "ripml"


def build(target: str, folder: Path, source: Path) -> Path:
    """Build with the backend that pip calls, without a network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", folder, ROOT)) as archive:
        archive.extractall(folder / "source", filter="data")
    (unpacked,) = (folder / "source").iterdir()
    return unpacked


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that is made from the sdist, which is what pip does where there is no wheel."""
    return zipfile.ZipFile(build("wheel", tmp_path_factory.mktemp("wheel"), sdist))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(name))


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    files = {
        f"ripml/{path.relative_to(SOURCE).as_posix()}"
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == files
    assert "ripml/py.typed" in files


def test_the_wheel_has_the_page_that_the_server_shows(wheel: zipfile.ZipFile) -> None:
    page = {Path(name).suffix for name in wheel.namelist() if name.startswith("ripml/server/page/")}
    assert {".html", ".css", ".js"} <= page


def test_the_wheel_brings_the_command_the_licence_and_the_readme(wheel: zipfile.ZipFile, metadata: Message) -> None:
    names = wheel.namelist()
    (entries,) = (name for name in names if name.endswith("entry_points.txt"))
    assert "ripml = ripml.cli:main" in wheel.read(entries).decode()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert str(metadata.get_payload()).startswith("# ripml")


def test_the_extra_named_all_is_the_sum_of_the_others(metadata: Message) -> None:
    needs: dict[str, set[str]] = {}
    for line in metadata.get_all("Requires-Dist", []):
        package, _, extra = line.partition("; extra == ")
        needs.setdefault(extra.strip("'"), set()).add(package)
    needs.pop("")
    for heavy in ("minilm", "model2vec"):  # PyTorch, and models from a hub
        needs.pop(heavy)
    assert needs.pop("all") == set().union(*needs.values())


def test_every_extra_is_described_on_the_page_of_dependencies(metadata: Message) -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert [extra for extra in metadata.get_all("Provides-Extra", []) if f"| `{extra}` |" not in page] == []


def test_every_dependency_has_a_line_about_its_maintenance(metadata: Message) -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    table = page.partition("## Maintenance")[2].partition("\n## ")[0]
    lines = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("|")]
    told = {package.strip(): [cell.strip() for cell in cells] for package, *cells in lines[2:]}
    needed = {re.split(r"[^A-Za-z0-9-]", line)[0] for line in metadata.get_all("Requires-Dist", [])}
    assert needed - {"ripml"} <= told.keys()
    assert all(
        len(cells) == 3 and all(cells) and re.fullmatch(r"20\d\d-\d\d|unknown", cells[1]) for cells in told.values()
    )


def test_the_sdist_has_what_is_needed_to_check_and_document_the_package(sdist: Path) -> None:
    for name in ("pyproject.toml", "mkdocs.yml", "Makefile", "requirements-dev.lock", "docs/README.md", "docs/_site"):
        assert (sdist / name).exists(), name
    for name in ("tests/test_packaging.py", "examples/tag_tickets.py", "benchmarks/packages.py"):
        assert (sdist / name).exists(), name
