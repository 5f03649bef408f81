"""A table of 100,000 rows that a server tags in the background, and is killed meanwhile: is each row there once?

    python benchmarks/tag_jobs.py [--quick] [--json PATH]

The table is sent over HTTP. As soon as another fifth of the rows is done, the server is killed (SIGKILL) and started
again, three times in all. The answers are compared with those of `ripml tag` for the same table, byte by byte, and the
rows are counted. --quick sends 20,000 rows.
"""

from __future__ import annotations

import csv
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from harness import Row, finish, options

from ripml.store import Store
from ripml.store.client import Client, TagJob
from ripml.tagging.batch import tag_file

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from served import ServerProcess
from store_writer import WORDS, example, settings

KILLS = 3


def done(client: Client, job: TagJob, rows: int) -> TagJob:
    """The state of a job once so many rows are done, or the job is."""
    while job.status not in ("done", "failed") and (job.rows or 0) < rows:
        time.sleep(0.05)
        job = client.tag_job(job.id)
    return job


def main() -> None:
    arguments = options(__doc__ or "")
    n, rng = 20_000 if arguments.quick else 100_000, random.Random(0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        Store.create(folder / "store", example(), settings()).close()
        with (folder / "rows.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["nr", "text"])
            writer.writerows([number, " ".join(rng.choices(WORDS, k=12))] for number in range(n))
        given = (folder / "store",), {"tables": str(folder / "tables")}
        start, id = time.perf_counter(), ""
        for kill in range(KILLS + 1):
            with ServerProcess(*given[0], **given[1]) as server:
                client = Client(f"http://127.0.0.1:{server.port}", "store")
                job = client.tag_job(id) if id else client.tag(folder / "rows.csv")
                id = job.id
                job = done(client, job, n if kill == KILLS else (kill + 1) * n // 5)
                if kill < KILLS:
                    server.end(signal.SIGKILL)
                else:
                    client.answers(id, folder / "answers.csv")
        seconds = time.perf_counter() - start
        model = Store.open(folder / "store", readonly=True).model
        tag_file(model, folder / "rows.csv", folder / "own.csv")
        with (folder / "answers.csv").open(newline="") as file:
            numbers = [row[0] for row in csv.reader(file)][1:]
        same = (folder / "answers.csv").read_bytes() == (folder / "own.csv").read_bytes()
        rows: list[Row] = [
            ("rows sent", n, ""),
            ("kills of the server", KILLS, ""),
            ("rows that are there once and in order", sum(a == str(b) for b, a in enumerate(numbers)), f"{n}"),
            ("rows in all", len(numbers), f"{n}"),
            ("the bytes are those of ripml tag", float(same), "1"),
            ("seconds with all starts", seconds, ""),
        ]
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
