"""Fetch the JavaScript packages that are shipped with the page, as npm has them, and check what was fetched.

    python deploy/vendor.py

`vendor.json` names each package with its version, the hash of its archive and the hashes of the files that are taken
from it unchanged; nothing is written if the archive is another one. For a new version, change the version and the hash
of the archive there.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "src" / "ripml" / "server" / "page" / "vendor"


def packages() -> list[dict[str, Any]]:
    """What is shipped: name, version, licence, the hash of the archive, and files by their paths in it."""
    found: list[dict[str, Any]] = json.loads((VENDOR / "vendor.json").read_text(encoding="utf-8"))
    return found


def fetch(package: dict[str, Any], folder: Path) -> Path:
    """The archive of a package; the hash must be the known one."""
    command = ["npm", "pack", "--silent", f"{package['name']}@{package['version']}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    archive = folder / done.stdout.split()[-1]
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != package["sha256"]:
        raise SystemExit(f"{archive.name}: the hash is {found}, not {package['sha256']}; nothing was changed.")
    return archive


def main() -> None:
    """Write the files, and their hashes beside them."""
    known = packages()
    with tempfile.TemporaryDirectory() as folder:
        for package in known:
            with tarfile.open(fetch(package, Path(folder))) as archive:
                for file in package["files"]:
                    member = archive.extractfile(f"package/{file['path']}")
                    if member is None:
                        raise SystemExit(f"{package['name']}: the archive has no file {file['path']}.")
                    content = member.read()
                    (VENDOR / file["name"]).write_bytes(content)
                    file["sha256"] = hashlib.sha256(content).hexdigest()
                    print(f"{file['name']}: {package['name']} {package['version']}, {len(content):,} bytes")
    (VENDOR / "vendor.json").write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
