"""Write the software bill of materials of ripml and its extras: CycloneDX 1.6, as JSON.

    python deploy/sbom.py FILE

The packages are those installed beside this interpreter that `ripml[all]` needs, directly or not, with versions,
licences and dependencies, and the hashes of their files in the lock; the tools of development are left out. The
JavaScript that is shipped with the page comes last. The result is validated against the schema before it is written,
and is the same for the same packages.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-dev.lock"
VENDOR = ROOT / "src" / "ripml" / "server" / "page" / "vendor" / "vendor.json"
NAME = "ripml"


def requirements(package: str, extras: Iterable[str]) -> list[Requirement]:
    """What an installed package needs here, with some of its extras."""
    lines = map(Requirement, importlib.metadata.requires(package) or [])
    environments = [{"extra": extra} for extra in ("", *extras)]
    return [line for line in lines if line.marker is None or any(map(line.marker.evaluate, environments))]


def dependencies() -> dict[str, set[str]]:
    """The packages that ripml with all extras needs, and what each of them needs itself."""
    found: dict[str, set[str]] = {}
    waiting = [(NAME, frozenset({"all"}))]
    seen = set(waiting)
    while waiting:
        package, extras = waiting.pop()
        for line in requirements(package, extras):
            name = canonicalize_name(line.name)
            found.setdefault(package, set()).add(name)
            if (step := (str(name), frozenset(line.extras))) not in seen:
                seen.add(step)
                waiting.append(step)
        found.setdefault(package, set()).discard(NAME)
    return found


def locked_hashes() -> dict[str, list[str]]:
    """The sha256 of the files of each package in the lock."""
    hashes: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=\S)", LOCK.read_text(encoding="utf-8")):
        hashes[canonicalize_name(entry.partition("==")[0])] = re.findall(r"sha256:([0-9a-f]{64})", entry)
    return hashes


def component(name: str, hashes: list[str]) -> dict[str, Any]:
    """The entry of an installed package."""
    about: Any = importlib.metadata.metadata(name)
    version = importlib.metadata.version(name)
    kind = "application" if name == NAME else "library"
    entry: dict[str, Any] = {"type": kind, "bom-ref": name, "name": name, "version": version}
    entry["purl"] = f"pkg:pypi/{name}@{version}"
    classifiers = about.get_all("Classifier") or []
    licences = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License")]
    if expression := about.get("License-Expression"):
        entry["licenses"] = [{"expression": expression}]
    elif licence := next(iter([*licences, *(about.get("License") or "").splitlines()]), None):
        entry["licenses"] = [{"license": {"name": licence.strip()}}]
    if hashes:
        entry["externalReferences"] = [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{name}/{version}/",
                "hashes": [{"alg": "SHA-256", "content": content} for content in hashes],
            }
        ]
    return entry


def shipped() -> list[dict[str, Any]]:
    """The entries of the JavaScript packages of which files are in ripml itself, see `deploy/vendor.py`."""
    return [
        {
            "type": "library",
            "bom-ref": package["name"],
            "name": package["name"],
            "version": package["version"],
            "purl": f"pkg:npm/{package['name']}@{package['version']}",
            "licenses": [{"license": {"id": package["licence"]}}],
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"https://www.npmjs.com/package/{package['name']}/v/{package['version']}",
                    "hashes": [{"alg": "SHA-256", "content": package["sha256"]}],
                }
            ],
        }
        for package in json.loads(VENDOR.read_text(encoding="utf-8"))
    ]


def bill_of_materials() -> dict[str, Any]:
    """The document, validated."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    graph, hashes, scripts = dependencies(), locked_hashes(), shipped()
    needs = {name: sorted(graph[name]) for name in sorted(graph)}
    needs[NAME] += [script["bom-ref"] for script in scripts]
    packages = [component(name, hashes.get(name, [])) for name in sorted(graph) if name != NAME]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(NAME, [])},
        "components": [*packages, *scripts],
        "dependencies": [
            *({"ref": name, "dependsOn": refs} for name, refs in needs.items()),
            *({"ref": script["bom-ref"], "dependsOn": []} for script in scripts),
        ],
    }
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bom))
    if error is not None:
        raise SystemExit(f"the bill of materials does not match CycloneDX's schema: {error}")
    return bom


def main(file: str) -> None:
    """Write the document and say what it has."""
    bom = bill_of_materials()
    Path(file).write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")
    print(f"{file}: {len(bom['components'])} packages")


if __name__ == "__main__":
    main(*sys.argv[1:])
