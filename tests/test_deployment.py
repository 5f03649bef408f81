"""The container, the service and the supply chain: linted, and their steps run without a container engine."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent  # of the tools of development


def script(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, ROOT / "deploy" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def instructions(kind: str) -> list[str]:
    """The arguments of all instructions of a kind in the Dockerfile, in their order."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    return [line.partition(" ")[2] for line in text.splitlines() if line.startswith(f"{kind} ")]


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False, **options)


# --- lock files ---


@pytest.mark.parametrize("name", ["requirements-dev.lock", "deploy/requirements.lock", "deploy/build.lock"])
def test_every_locked_package_has_hashes_and_no_host(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", text.strip())
    assert len(entries) >= 8
    for entry in entries:
        assert re.match(r"[a-z0-9.-]+==\S+( ; [^\\]+)? \\\n {4}--hash=sha256:[0-9a-f]{64}", entry), entry[:80]
    assert "://" not in text
    assert "index" not in re.sub(r"importlib[\w-]*", "", text)


@pytest.mark.parametrize("name", ["deploy/requirements.lock", "deploy/build.lock"])
def test_the_container_has_versions_that_are_tested(name: str) -> None:
    def pins(file: str) -> set[str]:
        return set(re.findall(r"^([a-z0-9.-]+==\S+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE))

    assert pins(name) <= pins("requirements-dev.lock")


# --- bill of materials and audit ---


def test_the_bill_of_materials_has_what_ripml_needs_and_no_tools() -> None:
    bom = script("sbom").bill_of_materials()  # validated there
    names = {entry["name"] for entry in bom["components"]}
    assert names >= {"numpy", "scipy", "scikit-learn", "fastapi", "starlette", "gensim", "mwxml", "para", "faiss-cpu"}
    assert not names & {"pytest", "mypy", "ruff", "ripml", "mkdocs"}
    (root,) = [entry for entry in bom["dependencies"] if entry["ref"] == "ripml"]
    assert {"numpy", "optuna", "distributed", "uplot"} <= set(root["dependsOn"]) <= names
    assert all("licenses" in entry for entry in bom["components"] if entry["name"] in ("numpy", "fastapi"))
    (numpy,) = [entry for entry in bom["components"] if entry["name"] == "numpy"]
    assert len(numpy["externalReferences"][0]["hashes"]) > 5


@pytest.mark.parametrize(
    ("answer", "log", "code", "sentence"),
    [
        (
            {"dependencies": [{"name": "a", "version": "1", "vulns": []}]},
            "",
            0,
            "1 packages of lock were looked up; 0 ",
        ),
        (
            {"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}]},
            "",
            1,
            "a 1: X-1, mended in 2",
        ),
        ({"dependencies": [{"name": "a", "skip_reason": "gone"}]}, "", 2, "NOT AUDITED: 1 of 1 packages of lock"),
        ({"dependencies": []}, "", 2, "NOT AUDITED: 0 of 0 packages of lock were not looked up (it lists no package)."),
        (None, "ERROR\nno network", 2, "NOT AUDITED: the packages of lock were not looked up (no network)."),
    ],
)
def test_an_audit_that_asked_nobody_does_not_pass(
    answer: Any, log: str, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script("audit").report("lock", "" if answer is None else json.dumps(answer), log) == code
    out, err = capsys.readouterr()
    assert sentence in out + err


# --- container and service ---


def test_the_dockerfile_passes_the_linter() -> None:
    done = run(BIN / "hadolint", "--no-color", "Dockerfile", cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_container_is_unprivileged_and_copies_only_what_it_needs() -> None:
    assert instructions("USER")[-1] == "10001"
    assert len(instructions("FROM")) == 2
    assert instructions("COPY")[-1] == "--from=build /opt/ripml /opt/ripml"
    installs = [line for line in instructions("RUN") if "pip install" in line]
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for line in instructions("COPY")[:-1]:
        assert all(f"!{source.split('/')[0]}" in ignored for source in line.split()[:-1])


def test_the_compose_file_matches_its_schema_and_hardens_every_service() -> None:
    done = run(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["tmpfs"] == ["/tmp"]
    assert services["ripml"]["command"] == json.loads(instructions("CMD")[-1])
    assert "ripml backup /data/store" in services["backup"]["command"][0]


def test_the_service_is_understood_by_systemd(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = (ROOT / "deploy" / "ripml.service").read_text(encoding="utf-8")
    copy = tmp_path / "ripml.service"
    copy.write_text(unit.replace("/opt/ripml/bin/ripml", "/bin/true"), encoding="utf-8")
    done = run("systemd-analyze", "verify", "--man=no", copy)
    assert "ripml.service" not in done.stderr, done.stderr


def test_the_steps_of_the_dockerfile_give_a_command_that_starts(tmp_path: Path) -> None:
    """Without the downloads, which `make` tests with the same lock: the dependencies are those of this environment."""
    build = next(line for line in instructions("RUN") if "-m build" in line)
    wheel, install = (shlex.split(part) for part in build.split("&&"))
    source, wheels = tmp_path / "src", tmp_path / "wheels"
    for line in instructions("COPY")[:-1]:
        *names, _ = line.split()
        for name in names:
            place = source / name
            place.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, place)
    places = {"/wheels": str(wheels), "/opt/build/bin/python": sys.executable}
    done = run(*(places.get(word, word) for word in wheel), cwd=source)
    assert done.returncode == 0, done.stderr
    assert wheel[0] == "/opt/build/bin/python"
    assert install[0] == "/opt/ripml/bin/python"
    places = {"/wheels": str(wheels), "/opt/ripml/bin/python": sys.executable}
    command = [places.get(word, word) for word in install]
    done = run(*command, "--quiet", "--target", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(instructions("ENTRYPOINT")[-1])
    assert (tmp_path / "site" / "bin" / entry).exists()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    help_text = run(sys.executable, "-m", entry, json.loads(instructions("CMD")[-1])[0], "--help", env=environment)
    assert help_text.returncode == 0, help_text.stderr
    for option in (word for word in json.loads(instructions("CMD")[-1]) if word.startswith("--")):
        assert option in help_text.stdout


def test_the_health_check_tells_a_healthy_server_from_others() -> None:
    check = json.loads(instructions("HEALTHCHECK")[0].partition("CMD ")[2])
    assert check[:2] == ["python", "-c"]
    statuses = {"/health": 200}

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses.get(self.path, 404))
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code = check[2].replace("8000", str(server.server_port))
        assert run(sys.executable, "-c", code).returncode == 0
        statuses["/health"] = 503
        assert run(sys.executable, "-c", code).returncode != 0
        server.shutdown()
    assert run(sys.executable, "-c", code).returncode != 0
