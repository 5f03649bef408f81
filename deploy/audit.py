"""Look up known vulnerabilities of the locked packages with pip-audit, and say plainly if that was not possible.

    python deploy/audit.py LOCK

pip-audit ends with 1 both for a vulnerability and for a database that it cannot reach. Here the exit code is

    0    every package was looked up, and no vulnerability is known
    1    at least one vulnerability is known; the table names package, version, id and the version that mends it
    2    the packages were not looked up: no database could be reached, or the lock file cannot be read
"""

from __future__ import annotations

import json
import subprocess
import sys

FOUND, NOT_ASKED = 1, 2


def audit(lock: str) -> int:
    """Print the result and return the exit code."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", lock, "--require-hashes", "--disable-pip"]
    done = subprocess.run(
        [*command, "--format", "json", "--progress-spinner", "off"], capture_output=True, check=False, encoding="utf-8"
    )
    return report(lock, done.stdout, done.stderr)


def report(lock: str, answer: str, log: str) -> int:
    """Print what an answer of pip-audit says and return the exit code."""
    try:
        packages = json.loads(answer)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = (log.strip().splitlines() or ["no answer"])[-1][:300]
        print(f"NOT AUDITED: the packages of {lock} were not looked up ({reason}).", file=sys.stderr)
        return NOT_ASKED
    skipped = [package for package in packages if "vulns" not in package]
    if skipped or not packages:
        reason = skipped[0].get("skip_reason", "no reason given")[:300] if skipped else "it lists no package"
        count = f"{len(skipped)} of {len(packages)} packages"
        print(f"NOT AUDITED: {count} of {lock} were not looked up ({reason}).", file=sys.stderr)
        return NOT_ASKED
    found = [(package, vulnerability) for package in packages for vulnerability in package["vulns"]]
    for package, vulnerability in found:
        mended = ", ".join(vulnerability["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {vulnerability['id']}, mended in {mended}")
    print(f"{len(packages)} packages of {lock} were looked up; {len(found)} known vulnerabilities.")
    return FOUND if found else 0


if __name__ == "__main__":
    sys.exit(audit(*sys.argv[1:]))
