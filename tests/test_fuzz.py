"""Random input for everything that reads a file from elsewhere: the parsers of data, dumps, keys, and model folders.

The law, in `obeys_the_law`: a parser returns its data or raises a `RipmlError`, whose message is one sentence that
names the file; it never raises anything else, never hangs, and takes no more memory than the size of its input tells.
A case starts from a valid file and gets a few random edits; the words of its format and odd bytes are among them. The
cases of `make test` have fixed seeds. `make fuzz` tries RIPML_FUZZ others for each parser; a failure names its seed.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
import re
import shutil
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import mutate, reseal

from ripml.base import model_folder
from ripml.base.errors import RipmlError
from ripml.datasets import Dataset, documents_given, iter_blocks, read, read_vocabulary, write
from ripml.datasets.formats import rows, svmlight, xmc
from ripml.lab.wikipedia.dump import Site, open_dump
from ripml.lab.wikipedia.markup import is_disambiguation, parse, redirect_target
from ripml.labels.concepts import Concepts
from ripml.labels.encoding import encode_labels
from ripml.server.keys import add_key, list_keys

CASES = int(os.environ.get("RIPML_FUZZ", "0"))
HANG_SECONDS = 30
MEMORY = 24 * 2**20  # bytes that a parser may take for an input of a few kilobytes; a chunk of a file is 2 MB

FIRST = int(os.environ.get("RIPML_FUZZ_SEED", random.SystemRandom().randrange(2**32) if CASES else 0))
SEEDS = range(FIRST, FIRST + (CASES or 250))


def each_case(run: Callable[[random.Random], object]) -> None:
    """Run a case for each seed; a failure says how to repeat it."""
    seed = FIRST
    try:
        for seed in SEEDS:
            run(random.Random(seed))
    except BaseException as error:
        raise AssertionError(f"RIPML_FUZZ=1 RIPML_FUZZ_SEED={seed}: {error!r}") from error


class Hang(BaseException):
    """A case took too long. It is not an Exception, so no parser can catch it."""


@contextmanager
def obeys_the_law(*names: str) -> Iterator[None]:
    """Return, or raise a RipmlError in one sentence that names one of these files, within bounds of time and memory."""

    def hang(*_: object) -> None:
        raise Hang(f"still running after {HANG_SECONDS} s")

    handler = signal.signal(signal.SIGALRM, hang)
    signal.alarm(HANG_SECONDS)
    tracemalloc.start()
    try:
        yield
    except RipmlError as error:
        message = str(error)
        assert message.endswith("."), message
        assert "\n" not in message, message
        assert not names or any(name in message for name in names), message
        assert len(message) < 1000, message
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    assert peak < MEMORY, f"{peak} bytes"


ODD = [
    *(b"\0", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\r\n", b"\n", b"\n\n", b"\t", b" ", b""),
    *(b"'", b'"', b'""', b"\\", b"{", b"}", b"[", b"]", b"<", b">", b"&", b"%", b"#", b"?", b":", b",", b";", b"|"),
    *(b"-1", b"+1", b"0", b"1", b"1e400", b"-0", b"nan", b"inf", b"1_0", b"9" * 30, b"4294967296", b"2147483647"),
    *("٣".encode(), "\u2028".encode(), "\x85".encode(), "\U0001f600".encode(), b"[" * 3000, b'{"a":' * 3000, b"\x1c"),
]


NUMBER = re.compile(rb"[0-9]+")


def changed(samples: list[bytes], words: list[bytes], rng: random.Random) -> bytes:
    """One of the samples after a few edits."""
    content = rng.choice(samples)
    for _ in range(rng.randint(1, 5)):
        at = rng.randint(0, len(content))
        end = min(len(content), at + rng.randint(1, 8))
        edit = rng.choice(
            ["insert", "insert", "replace", "replace", "delete", "repeat", "cut", "flip", "count", "count"]
        )
        if edit == "cut":
            content = content[:at] if rng.random() < 0.3 else content
        elif edit == "repeat":
            end = min(len(content), at + rng.randint(1, 60))
            content = content[:end] + content[at:end] * rng.randint(1, 3) + content[end:]
        elif edit == "flip":
            flipped = bytes(byte ^ (1 << rng.randrange(8)) for byte in content[at : at + 1])
            content = content[:at] + flipped + content[at + 1 :]
        elif edit == "count" and (numbers := list(NUMBER.finditer(content))):
            number = rng.choice(numbers)  # one more, one less, one too many: where bounds are
            value = int(number[0][:20]) + rng.choice([-1, 1, 1, 2, 3, 40])
            content = content[: number.start()] + b"%d" % value + content[number.end() :]
        else:
            piece = b"" if edit == "delete" else rng.choice([*words, *words, *ODD, rng.randbytes(rng.randint(1, 4))])
            content = content[:at] + piece + content[at if edit == "insert" else end :]
    return content


def named(content: bytes, name: str) -> Any:
    """An open file with a name for messages."""
    file: Any = io.BytesIO(content)
    file.name = name
    return file


def parquet_samples() -> list[bytes]:
    data = documents_given([{"text": "Rain.", "labels": ["weather", "news"], "id": 7}, {"text": "", "id": "b"}])
    file = io.BytesIO()
    write(data, file, "parquet")
    return [file.getvalue()]


SAMPLES: dict[str, tuple[list[bytes], list[bytes]]] = {
    "xmc": ([b"2 3 4\n0,3 0:1 2:0.5\n1 1:2\n", b"3 5 4\n0,2 0:1 3:0.25\n 1:0.5\n3\n"], [b"0:1", b"2 3 4", b"0,1"]),
    "svmlight": ([b"# rows\n1,2 1:0.5 7:1e-3\n 2:1 # end\n0\n", b"0 0:1\n"], [b"# ", b"1:1", b"qid:1", b"1,2"]),
    "jsonl": (
        [
            b'{"id": "a1", "labels": ["news"], "text": "A match"}\n{"id": 2, "labels": [], "text": ""}\n',
            b'{"labels": ["a"], "features": {"h": 1.5, "w": 3}}\n{"labels": [], "features": {"h": 0}}\n',
            b'{"labels": [], "features": [0, 0.25, 1]}\n',
        ],
        [b'"labels"', b'"text"', b'"features"', b"null", b"true", b"NaN", b"\\ud800", b"\\u0000", b"{}", b"1e999"],
    ),
    "csv": (
        [
            b'id,text,labels\na1,"The match, won.",sport|news\na2,"He said ""no"".","[""news""]"\n',
            b"text;labels\na;b\n",
        ],
        [b"text", b"labels", b"id", b'"["', b'"[""a""]"', b'"[1e999]"', b'"[' + b"9" * 5000 + b']"'],
    ),
    "annif": (
        [
            b"A match\t<http://a> <http://b>\nA vote\t<http://b>\n",
            b"text,subject_uris,document_id\nA match,<http://a> <http://b>,7\n",
        ],
        [b"<http://a>", b"\t", b"http://", b"<>", b"subject_uris"],
    ),
    "arff": (
        [b"@relation t\n@attribute h real\n@attribute 'a b' {0,1}\n@attribute tall {0,1}\n@data\n1,0,1\n{1 1,2 1}\n"],
        [b"@data", b"@attribute", b"@attribute x {", b"{0,1}", b"'a\\'", b"{0 1}", b"% "],
    ),
    "parquet": (parquet_samples(), [b"PAR1", b"\x15\x00"]),
}
LABELS_XML = b'<labels xmlns="http://mulan.sourceforge.net/labels"><label name="tall"></label></labels>'


@pytest.fixture(autouse=True)
def _few_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indices up to a limit are allowed and cost memory: each label has a name. The limit is low here, so that memory
    shows what else takes it."""
    for module in (rows, svmlight, xmc):
        monkeypatch.setattr(module, "MAX_LABELS", 1000)


def check(data: Dataset) -> None:
    """What every data set promises."""
    assert data.Y.shape == (len(data), len(data.label_names))
    assert len(set(data.label_names)) == len(data.label_names)
    assert (data.Y.data == 1).all()
    assert data.X is None or np.isfinite(data.X.data).all()
    assert data.texts is None or len(data.texts) == len(data)


@pytest.mark.parametrize("format", SAMPLES)
def test_files_of_data(format: str) -> None:
    def case(rng: random.Random) -> None:
        content = changed(*SAMPLES[format], rng)
        for streamed in (False, True):
            options: dict[str, Any] = {"xml": named(LABELS_XML, "labels.xml")} if format == "arff" else {}
            with obeys_the_law("rows.data"):
                if streamed:
                    options |= {"zero_based": True} if format == "svmlight" else {}
                    for block in iter_blocks(named(content, "rows.data"), format, **options):
                        check(block)
                else:
                    check(read(named(content, "rows.data"), format, **options))

    each_case(case)


def test_files_whose_format_is_recognised() -> None:
    def case(rng: random.Random) -> None:
        content = changed(*SAMPLES[rng.choice(sorted(SAMPLES))], rng)
        with obeys_the_law("rows.data"):
            check(read(named(content, "rows.data")))

    each_case(case)


def test_compressed_files() -> None:
    packed = [gzip.compress(sample, mtime=0) for sample in SAMPLES["jsonl"][0]]

    def case(rng: random.Random) -> None:
        content = changed(packed, [b"\x1f\x8b", b"\x1f\x8b\x08"], rng)
        with obeys_the_law("rows.data"):
            check(read(named(content, "rows.data"), "jsonl"))

    each_case(case)


def test_label_files_of_arff() -> None:
    words = [b"<label", b"<!DOCTYPE", b"&amp;", b"&#0;", b"</labels>", b"<?xml version='1.1'?>", b"encoding='x'"]

    def case(rng: random.Random) -> None:
        content = changed([LABELS_XML, b"<?xml version='1.0' encoding='utf-8'?>" + LABELS_XML], words, rng)
        with obeys_the_law("rows.data", "labels.xml"):
            check(read(named(SAMPLES["arff"][0][0], "rows.data"), "arff", xml=named(content, "labels.xml")))

    each_case(case)


def test_vocabularies_of_annif() -> None:
    def case(rng: random.Random) -> None:
        content = changed([b"<http://a>\tmatch\n<http://b>\tvote\n"], [b"<http://a>", b"<>", b"\t"], rng)
        with obeys_the_law("rows.data", "vocabulary.tsv"):
            sample = named(SAMPLES["annif"][0][0], "rows.data")
            check(read(sample, "annif", vocabulary=named(content, "vocabulary.tsv")))

    each_case(case)


VOCABULARIES: dict[str, tuple[list[bytes], list[bytes]]] = {
    "table": (
        [
            b'id,name,synonyms,broader\nc1,tea,cha|te,c2\nc2,"hot, drinks","[""warm""]",\n',
            b"uri,notation,label_en,label_fi\n<http://a>,T1,tea,tee\n",
        ],
        [b"id", b"name_de", b"synonyms", b'"["', b'"[1]"', b"<>", b"c1"],
    ),
    "jsonl": (
        [b'{"id":"a","names":{"en":"tea"},"synonyms":{"en":["cha"]},"broader":["b"],"notation":"T1"}\n{"id":"b"}\n'],
        [b'"id"', b'"names"', b"null", b"{}", b"[]", b"\\ud800", b'"types":["x"]'],
    ),
    "skos": (
        [
            b"@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n<http://a> a skos:Concept ; "
            b'skos:prefLabel "tea"@en, "Tee"@de ; skos:broader <http://b> ; skos:notation "T1" .\n',
            b'<?xml version="1.0"?><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
            b'xmlns:skos="http://www.w3.org/2004/02/skos/core#"><skos:Concept rdf:about="http://a">'
            b'<skos:prefLabel xml:lang="en">tea</skos:prefLabel></skos:Concept></rdf:RDF>',
            b'{"@context": {"skos": "http://www.w3.org/2004/02/skos/core#"}, "@id": "http://a", '
            b'"@type": "skos:Concept", "skos:prefLabel": {"@value": "tea", "@language": "en"}}',
        ],
        [
            b"a ",
            b"<>",
            b"skos:",
            b"^^",
            b"@en",
            b'"@context": "http://x"',
            b"&e;",
            b"<!DOCTYPE x [",
            b"rdf:about",
            b".",
        ],
    ),
}


@pytest.mark.parametrize("format", VOCABULARIES)
def test_vocabularies(format: str) -> None:
    if format == "skos":
        pytest.importorskip("rdflib", reason="the extra `skos` is not installed")

    def case(rng: random.Random) -> None:
        content = changed(*VOCABULARIES[format], rng)
        with obeys_the_law("vocabulary.data"):
            concepts = read_vocabulary(named(content, "vocabulary.data"), rng.choice([format, None]))
            assert all(id == concept.id and id for id, concept in concepts.items())
            assert Concepts.from_json_lines(concepts.to_json_lines()) == concepts

    each_case(case)


def test_folders_of_annif(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()

    def case(rng: random.Random) -> None:
        for file in folder.iterdir():
            file.unlink()
        (folder / "a.txt").write_bytes(changed([b"A match\nwon\n"], [b"\t"], rng))
        subjects = changed([b"<http://a>\tmatch\n<http://b>\tvote\n", b"match\nvote\n"], [b"<http://a>", b"<>"], rng)
        (folder / rng.choice(["a.tsv", "a.key", "b.txt"])).write_bytes(subjects)
        with obeys_the_law(str(folder)):
            check(read(folder, "annif"))

    each_case(case)


DUMP = b"""<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
<siteinfo><sitename>W</sitename><dbname>enwiki</dbname><case>first-letter</case><namespaces>
<namespace key="0" case="first-letter"/><namespace key="6" case="first-letter">File</namespace></namespaces></siteinfo>
<page><title>Bus</title><ns>0</ns><id>1</id><revision><id>2</id><timestamp>2020-01-01T00:00:00Z</timestamp>
<text>The [[red]] bus.</text></revision></page>
<page><title>Red</title><ns>0</ns><id>3</id><redirect title="Bus"/><revision><id>4</id><text/></revision></page>
</mediawiki>
"""


def test_dumps_of_mediawiki(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    words = [b"<page>", b"</page>", b"<title>", b"<ns>", b"<id>", b"<text>", b"&lt;", b"<!DOCTYPE x>", b"<redirect/>"]

    def case(rng: random.Random) -> None:
        path.write_bytes(changed([DUMP], words, rng))
        with obeys_the_law(str(path)), open_dump(path) as (_, pages):
            for page in pages:
                assert isinstance(page.title, str)

    each_case(case)


MARKUP = b"A '''red''' [[bus]]es of [[London#T|town]].[[File:B.jpg|thumb|In [[Soho]]]]{{T|a=[[b]]|{{u}}}}<ref>x</ref>"


def test_markup_of_mediawiki() -> None:
    words = [
        b"[[",
        b"]]",
        b"{{",
        b"}}",
        b"{|",
        b"|}",
        b"<ref",
        b"</ref>",
        b"<!--",
        b"-->",
        b"''",
        b"{{" * 50,
        b"[[" * 50,
    ]

    def case(rng: random.Random) -> None:
        text = changed([MARKUP], words, rng).decode("utf-8", "replace")
        with obeys_the_law():
            article = parse(text, Site("en", True, {"file": 6}))
            assert all(isinstance(link, str) for link in article.links)
            redirect_target(text)
            is_disambiguation("Bus", text)

    each_case(case)


def odd_value(rng: random.Random, depth: int = 3) -> Any:
    """A value of Python, perhaps with others inside."""
    if not depth or rng.random() < 0.4:
        return rng.choice(
            ["a", "b", "", "\ud800", "\0", 0, 1, -1, 2**70, 1.5, float("nan"), None, True, b"x", {1}, object]
        )
    values = [odd_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return rng.choice([values, tuple(values), {str(i): value for i, value in enumerate(values)}])


def test_names_of_labels() -> None:
    def case(rng: random.Random) -> None:
        Y = [odd_value(rng) for _ in range(rng.randrange(4))] if rng.random() < 0.8 else odd_value(rng)
        with obeys_the_law():
            encode_labels(Y)

    each_case(case)


def test_documents_in_memory() -> None:
    def case(rng: random.Random) -> None:
        keys = ["text", "labels", "id", "other"]
        rows = [{key: odd_value(rng) for key in keys if rng.random() < 0.7} for _ in range(rng.randrange(4))]
        with obeys_the_law():
            check(documents_given(rows))

    each_case(case)


def test_key_files(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    add_key(path, "ana")
    original = path.read_bytes()

    def case(rng: random.Random) -> None:
        path.write_bytes(changed([original], [b'"role"', b'"admin"', b"null", b"{}"], rng))
        with obeys_the_law(str(path)):
            list_keys(path)

    each_case(case)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "model"
    model_folder.save(folder, "example", {"ridge": 0.5, "names": ["a", "é"]}, {"Psi": np.eye(3), "n": np.arange(4)})
    return folder


@pytest.mark.parametrize("sealed", [False, True])
def test_manifests(sealed: bool, model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(model, tmp_path / "model")
    original = (model / "manifest.json").read_bytes()

    def case(rng: random.Random) -> None:
        content = changed([original], [b'"format": 2', b'"arrays"', b"null", b'"shape": [-1]'], rng)
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            content = reseal(json.loads(content)) if sealed else content  # as an attacker would write it
        (folder / "manifest.json").write_bytes(content)
        with obeys_the_law(str(folder)):
            model_folder.load(folder)

    each_case(case)


def test_model_folders_after_random_damage(model: Path, tmp_path: Path) -> None:
    def case(rng: random.Random) -> None:
        folder = shutil.copytree(model, tmp_path / "damaged")
        mutate(folder, rng)
        with obeys_the_law(str(folder)):
            model_folder.load(folder)
        shutil.rmtree(folder)

    each_case(case)


# --- the harness itself: it must find what is planted ---


def planted(error: Callable[[], object]) -> None:
    with obeys_the_law("rows.data"):
        error()


def test_the_harness_finds_other_exceptions_silence_about_the_file_and_memory() -> None:
    def fails(error: BaseException) -> Callable[[], None]:
        def function() -> None:
            raise error

        return function

    with pytest.raises(KeyError, match="planted"):
        planted(fails(KeyError("planted")))
    with pytest.raises(AssertionError, match="the line is wrong"):
        planted(fails(RipmlError("the line is wrong.")))
    with pytest.raises(AssertionError, match="two"):
        planted(fails(RipmlError("rows.data: one\ntwo.")))
    with pytest.raises(AssertionError, match="bytes"):
        planted(lambda: bytearray(2 * MEMORY))
    planted(fails(RipmlError("rows.data:3: the line is wrong.")))
