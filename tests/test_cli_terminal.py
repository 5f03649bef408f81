"""What is shown on a terminal: help with examples, completion in a real bash, progress bars with rates."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from ripml.cli import inputs, main, output
from ripml.cli.app import app
from ripml.cli.options import FileOptions

SCRIPTS = Path(sys.executable).parent
ROWS = "3 2 2\n0 0:1\n1 1:1\n0 0:1\n"


def commands(group: Any, path: str = "ripml") -> Iterator[tuple[str, Any]]:
    """All commands with the words that call them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_of_itself(name: str) -> None:
    help = COMMANDS[name].help
    assert re.search(rf"^Example: .*{name}( |$)", help, re.MULTILINE), help
    assert not any(len(line) > 118 for line in help.splitlines())


def test_every_verb_of_the_design_is_there() -> None:
    verbs = "demo train suggest predict evaluate explain update forget tune inspect serve reproduce datasets"
    assert set(verbs.split()) <= {name.split()[1] for name in COMMANDS}


def test_bash_completes_verbs_options_words_and_data_sets(tmp_path: Path) -> None:
    (tmp_path / "sets" / "mine").mkdir(parents=True)
    (tmp_path / "sets" / "mine" / "train.txt.gz").touch()
    (tmp_path / "mice.jsonl").touch()
    script = """
    ripml --install-completion > /dev/null
    source ~/.bashrc
    complete_words() {
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        $(complete -p ripml | sed 's/.*-F \\([^ ]*\\).*/\\1/') ripml
        echo "${COMPREPLY[*]}"
    }
    complete_words ripml su
    complete_words ripml labels re
    complete_words ripml train --stop
    complete_words ripml train --kernel l
    complete_words ripml train mi
    complete_words ripml datasets info m
    """
    environment = {
        "PATH": f"{SCRIPTS}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "RIPML_DATA": str(tmp_path / "sets"),
        "LANG": "C.UTF-8",
    }
    bash = ["bash", "--norc", "-c", script]
    done = subprocess.run(bash, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["suggest"],
        ["rename", "retire", "reinstate"],
        ["--stop-labels"],
        ["linear", "local"],
        ["mine", "mice.jsonl"],
        ["mine"],
    ]


def on_a_terminal(tmp_path: Path, script: str) -> str:
    """What a Python script shows on a terminal as its standard error."""
    ours, its = pty.openpty()
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", script], stderr=its, cwd=tmp_path, env=environment)
    os.close(its)
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that the other side of a terminal is closed
        while block := os.read(ours, 4096):
            shown += block
    os.close(ours)
    assert process.wait() == 0, shown.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


def test_bars_show_what_is_done_and_how_fast(tmp_path: Path) -> None:
    script = (
        "from ripml.cli.output import progress_bar, step_bars\n"
        "with progress_bar('predicting', 400) as advance:\n    advance(100)\n    advance(100)\n"
        "with progress_bar('reading', 4_000_000, 'bytes') as advance:\n    advance(1_000_000)\n    advance(1_000_000)\n"
        "with step_bars() as show:\n    show('sampling', 1, 4)\n    show('sampling', 3, 4)\n"
    )
    shown = on_a_terminal(tmp_path, script)
    assert re.search(r"predicting .* 200/400 [\d,.]+ rows/(s|min) ", shown), shown
    assert re.search(r"reading .* 2\.0/4\.0 MB [\d,.]+ MB/(s|min) ", shown), shown
    assert re.search(r"sampling .* 3/4 [\d,.]+ steps/(s|min) ", shown), shown


def test_without_a_terminal_progress_is_printed_every_half_minute(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 10.0, 40.0, 40.0, 40.0, 50.0, 50.0])
    monkeypatch.setattr("ripml.cli.output.time.monotonic", lambda: next(times))
    with output.progress_bar("learning", 30) as advance:
        advance(10)
        advance(20)
    assert capfd.readouterr().err.splitlines() == [
        "learning …",
        "learning: 30 rows, 45 rows/min",
        "learning: 30 rows, 36 rows/min",
    ]


def test_the_reading_of_a_large_file_is_counted_and_changes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.txt").write_text(ROWS)
    assert inputs.training_rows(str(tmp_path / "train.txt"), FileOptions())[0].Y.shape == (3, 2)
    assert capfd.readouterr().err == "reading …\n"
    monkeypatch.setattr(inputs, "_LARGE_FILE", 1)
    rows, _ = inputs.training_rows(str(tmp_path / "train.txt"), FileOptions())
    assert (rows.Y.shape, rows.name) == ((3, 2), str(tmp_path / "train.txt"))
    assert re.fullmatch(r"reading …\nreading: 0\.0 MB, [\d,.]+ MB/(s|min|h)\n", capfd.readouterr().err)


@pytest.mark.parametrize("place", ["model", "data.txt"])
def test_an_unknown_command_of_a_group_points_to_the_help(place: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["keys", place])
    assert stop.value.code == 2
    assert capfd.readouterr().err == f"ripml: No such command '{place}'. (ripml --help)\n"
