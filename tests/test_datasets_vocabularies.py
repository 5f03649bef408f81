"""Vocabulary files: SKOS in its syntaxes, Annif's TSV and CSV, tables and JSON lines."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from realdata import data_folder, needs_data

from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.datasets import documents_given, read, read_vocabulary, write, write_vocabulary
from ripml.datasets.vocabularies import concepts_given, with_ids
from ripml.labels.concepts import Concept, Concepts

EX = "http://example.org/"
TURTLE = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix ex: <http://example.org/> .
ex:menu a skos:ConceptScheme ; skos:prefLabel "menu"@en ; skos:hasTopConcept ex:drinks .
ex:drinks a skos:Concept ; skos:prefLabel "drinks"@en ; skos:narrower ex:tea .
ex:tea a skos:Concept, ex:Plant ; skos:prefLabel "tea"@en, "Tee"@de ; skos:altLabel "cha"@en ;
    skos:hiddenLabel "te"@en ; skos:notation "T1" ; skos:inScheme ex:menu ; skos:related ex:cup .
ex:cup skos:prefLabel "cup" .
"""
RDF_XML = """<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:ConceptScheme rdf:about="http://example.org/menu">
  <skos:hasTopConcept rdf:resource="http://example.org/drinks"/></skos:ConceptScheme>
<skos:Concept rdf:about="http://example.org/drinks"><skos:prefLabel xml:lang="en">drinks</skos:prefLabel></skos:Concept>
<skos:Concept rdf:about="http://example.org/tea">
  <rdf:type rdf:resource="http://example.org/Plant"/>
  <skos:prefLabel xml:lang="en">tea</skos:prefLabel><skos:prefLabel xml:lang="DE"> Tee </skos:prefLabel>
  <skos:altLabel xml:lang="en">cha</skos:altLabel><skos:altLabel xml:lang="en">te</skos:altLabel>
  <skos:notation>T1</skos:notation><skos:broader rdf:resource="http://example.org/drinks"/>
  <skos:topConceptOf rdf:resource="http://example.org/menu"/>
</skos:Concept>
<skos:Concept rdf:about="http://example.org/cup"><skos:prefLabel>cup</skos:prefLabel>
  <skos:related rdf:resource="http://example.org/tea"/></skos:Concept>
</rdf:RDF>
"""
JSON_LD = """{"@context": {"skos": "http://www.w3.org/2004/02/skos/core#", "ex": "http://example.org/"}, "@graph": [
{"@id": "ex:drinks", "@type": "skos:Concept", "skos:prefLabel": {"@value": "drinks", "@language": "en"},
 "skos:inScheme": {"@id": "ex:menu"}},
{"@id": "ex:tea", "@type": ["skos:Concept", "ex:Plant"], "skos:broader": {"@id": "ex:drinks"},
 "skos:prefLabel": [{"@value": "tea", "@language": "en"}, {"@value": "Tee", "@language": "de"}],
 "skos:altLabel": [{"@value": "cha", "@language": "en"}, {"@value": "te", "@language": "en"}],
 "skos:notation": "T1", "skos:inScheme": {"@id": "ex:menu"}, "skos:related": {"@id": "ex:cup"}},
{"@id": "ex:cup", "@type": "skos:Concept", "skos:prefLabel": "cup"}]}
"""
EXPECTED = Concepts.of(
    [
        Concept(EX + "cup", {"": "cup"}, related=(EX + "tea",)),
        Concept(EX + "drinks", {"en": "drinks"}, schemes=(EX + "menu",)),
        Concept(
            EX + "tea",
            {"de": "Tee", "en": "tea"},
            {"en": ("cha", "te")},
            (EX + "drinks",),
            (EX + "cup",),
            "T1",
            (EX + "Plant",),
            (EX + "menu",),
        ),
    ]
)


def vocabulary(text: str | bytes, format: str | None = None, **options: Any) -> Concepts:
    return read_vocabulary(io.BytesIO(text.encode() if isinstance(text, str) else text), format, **options)


def written(concepts: Concepts, format: str, **options: Any) -> str:
    file = io.BytesIO()
    write_vocabulary(concepts, file, format, **options)
    return file.getvalue().decode()


# ---------------------------------------------------------------------------------------------------------------- SKOS


@pytest.fixture
def rdflib() -> Any:
    return pytest.importorskip("rdflib", reason="the extra `skos` is not installed")


@pytest.mark.usefixtures("rdflib")
@pytest.mark.parametrize("text", [TURTLE, RDF_XML, JSON_LD], ids=["turtle", "xml", "json-ld"])
def test_the_syntaxes_of_skos_say_the_same(text: str) -> None:
    assert vocabulary(text) == EXPECTED
    assert list(vocabulary(text)) == list(EXPECTED), "in the order of their ids, since RDF has none"
    assert vocabulary(gzip.compress(text.encode())) == EXPECTED
    assert vocabulary("\ufeff" + text if text != JSON_LD else text) == EXPECTED


@pytest.mark.usefixtures("rdflib")
@pytest.mark.parametrize("name", ["a.ttl", "a.rdf", "a.jsonld", "a.nt", "a.ttl.gz", "a.csv", "a.jsonl", "b.tsv.gz"])
def test_a_written_vocabulary_reads_back_the_same(name: str, tmp_path: Path) -> None:
    write_vocabulary(EXPECTED, tmp_path / name, "table" if "tsv" in name else None)
    assert read_vocabulary(tmp_path / name) == EXPECTED


@pytest.mark.usefixtures("rdflib")
def test_rdfs_labels_and_skos_xl_are_names_too_and_deprecated_concepts_are_left_out() -> None:
    text = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix ex: <http://example.org/> .
ex:a a skos:Concept ; rdfs:label "A"@en, "Ä"@de ; skos:prefLabel "Alpha"@en .
ex:b a skos:Concept ; xl:prefLabel [ xl:literalForm "Beta"@en ] ; xl:altLabel [ xl:literalForm "B"@en ] .
ex:c a skos:Concept ; skos:prefLabel "gone"@en ; owl:deprecated true .
ex:d a skos:Concept ; skos:prefLabel "two"@en, "names"@en ; skos:broader ex:d .
ex:e a skos:Collection ; skos:prefLabel "a collection"@en ; skos:member ex:a .
[] a skos:Concept ; skos:prefLabel "without an id"@en .
ex:f a owl:Class ; rdfs:label "a class"@en .
"""
    assert vocabulary(text) == Concepts.of(
        [
            Concept(EX + "a", {"de": "Ä", "en": "Alpha"}),
            Concept(EX + "b", {"en": "Beta"}, {"en": ("B",)}),
            Concept(EX + "d", {"en": "names"}, {"en": ("two",)}),
        ]
    )


@pytest.mark.usefixtures("rdflib")
def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonld").write_text('{"@context": {"skos": "http://www.w3.org/2004/02/skos/core#"}}')
    for context in ('"http://127.0.0.1:9/context"', f'["{tmp_path}/secret.jsonld"]', '{"@import": "x.jsonld"}'):
        with pytest.raises(DataError, match=r"^<file>: its @context '.*' is not in the file"):
            vocabulary(f'{{"@graph": [{{"@context": {context}, "@id": "{EX}a"}}]}}')
    (tmp_path / "secret.txt").write_text("secret")
    entity = RDF_XML.replace(
        '<?xml version="1.0"?>', f'<!DOCTYPE rdf:RDF [<!ENTITY e SYSTEM "file://{tmp_path}/secret.txt">]>'
    ).replace(">cup<", ">cup &e;<")
    try:
        names = [concept.name() for concept in vocabulary(entity).values()]
    except DataError:
        names = []
    assert not any("secret" in name for name in names)


@pytest.mark.usefixtures("rdflib")
@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("@prefix skos: <x", {}, r"<file>: this is not RDF in the syntax turtle \("),
        ("<rdf:RDF", {}, r"<file>: this is not RDF in the syntax xml \("),
        ('{"@graph": [', {}, r"<file>: this is not JSON \("),
        (f"<{EX}a> <{EX}b> <{EX}c> .\n", {}, r"<file>: there is no skos:Concept in this file\.$"),
    ],
)
def test_a_file_that_is_not_skos_is_explained_in_one_line(text: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=f"^{sentence}") as caught:
        vocabulary(text, "skos", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("rdflib")
def test_what_skos_cannot_hold_is_not_written() -> None:
    with pytest.raises(DataError, match=r"^the id 'c1' is not a URI, which SKOS needs; write a table or jsonl\.$"):
        written(Concepts.of([Concept("c1", {"en": "tea"})]), "skos")
    with pytest.raises(DataError, match=r"^'e n' is not a language tag"):
        written(Concepts.of([Concept(EX + "1", {"e n": "tea"})]), "skos")
    with pytest.raises(ParameterError, match=r"^`syntax` must be one of turtle, xml, nt, json-ld; got 'rdfa'\.$"):
        vocabulary(TURTLE, "skos", syntax="rdfa")


@pytest.mark.usefixtures("rdflib")
def test_the_order_of_a_vocabulary_does_not_depend_on_hashes(tmp_path: Path) -> None:
    (tmp_path / "v.ttl").write_text(TURTLE)
    code = "import sys, ripml; sys.stdout.buffer.write(ripml.datasets.read_vocabulary(sys.argv[1]).to_json_lines())"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "v.ttl")],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] == EXPECTED.to_json_lines()


def test_without_rdflib_the_error_has_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ripml\[skos\]'"):
        vocabulary(TURTLE)
    assert vocabulary("id,name\nc1,tea\n").name("c1") == "tea", "other formats need nothing"


# --------------------------------------------------------------------------------------------------- Annif and tables


def test_annifs_tsv_has_an_id_a_name_and_a_notation() -> None:
    text = f"\ufeff<{EX}1>\ttea\tT1\r\n\n{EX}2\tcoffee\n<{EX}3>\nc4\tjuice\n"
    assert vocabulary(text, language="EN") == Concepts.of(
        [
            Concept(EX + "1", {"en": "tea"}, notation="T1"),
            Concept(EX + "2", {"en": "coffee"}),
            Concept(EX + "3"),
            Concept("c4", {"en": "juice"}),
        ]
    )


def test_annifs_formats_make_the_round_trip() -> None:
    names = Concepts.of(
        [Concept(EX + "1", {"en": "tea", "fi": "tee"}, notation="T1"), Concept(EX + "2", {"fi": "kahvi"})]
    )
    table = written(names, "annif", kind="csv")
    assert table == f"uri,notation,label_fi,label_en\r\n<{EX}1>,T1,tee,tea\r\n<{EX}2>,,kahvi,\r\n"
    assert vocabulary(table) == names
    assert written(vocabulary(table), "annif", kind="csv") == table
    lines = written(names, "annif", language="en")
    assert lines == f"<{EX}1>\ttea\tT1\n<{EX}2>\tkahvi\n"
    assert written(vocabulary(lines), "annif") == lines
    no_language = vocabulary(lines)
    assert written(no_language, "annif", kind="csv").splitlines()[0] == "uri,notation,label_en"
    with pytest.raises(DataError, match="has a tab or a line break, which Annif's TSV cannot hold"):
        written(Concepts.of([Concept(EX, {"": "a\tb"})]), "annif")


def test_a_table_has_columns_by_language_and_lists_in_cells() -> None:
    text = (
        "id;name;name_DE;synonyms;synonyms_de;broader;related;notation;types;schemes;colour\n"
        'c1;tea;Tee;"[""cha"", ""te""]";Chai|Cha;<c2>;;T1;Plant;menu;red\nc2;drinks;;;;;c3|c4;;;;\n'
    )
    assert vocabulary(text, language="en") == Concepts.of(
        [
            Concept(
                "c1",
                {"en": "tea", "de": "Tee"},
                {"en": ("cha", "te"), "de": ("Chai", "Cha")},
                ("c2",),
                (),
                "T1",
                ("Plant",),
                ("menu",),
            ),
            Concept("c2", {"en": "drinks"}, related=("c3", "c4")),
        ]
    )


@pytest.mark.parametrize(
    ("text", "format", "sentence"),
    [
        ("", None, r"<file>: the file is empty\.$"),
        ("\xff\xfei", None, r"<file>: the text is not utf-16 near byte 3; save the file as UTF-8\.$"),
        ("id,name\n,tea\n", None, r"<file>:2: the id is empty\.$"),
        ("id,name\nc1,tea\nc1,chai\n", None, r"<file>:3: <c1> is listed twice\.$"),
        ("id,name\nc1\n", None, r"<file>:2: there are 1 cells, but 2 columns"),
        ('id,name,broader\nc1,tea,"[1"\n', None, r"<file>:2: the labels '\[1' are not a JSON list"),
        ("id,title\nc1,tea\n", "table", r"<file>:1: there is no column 'name' among id, title\.$"),
        ("name\ntea\n", "table", r"<file>:1: there is no column 'id' among name\.$"),
        (
            "some text\t<http://example.org/1>\n",
            None,
            r"<file>:1: 'some text\t<http.*' is not a line '<uri> tab label'",
        ),
        ("c1\ttea\nc1\tchai\n", None, r"<file>:2: <c1> is listed twice\.$"),
        ('{"id": "a"}\n{"id": 1}\n', None, r"<file>:2: the concept '1' has a value of the wrong type\.$"),
        ('{"id": "a"}\n{"id": "a"}\n', None, r"<file>:2: <a> is listed twice\.$"),
        ('{"id": "a"}\n{\n', None, r"<file>:2: this is not JSON \("),
    ],
)
def test_a_bad_line_is_explained(text: str, format: str | None, sentence: str) -> None:
    with pytest.raises(DataError, match=f"^(?:{sentence})"):
        vocabulary(text.encode("latin-1"), format)


def test_options_and_formats_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"^`format` of a vocabulary must be one of annif, table, skos, jsonl"):
        vocabulary("id,name\n", "rdf")
    with pytest.raises(ParameterError, match=r"^`language` is not an option of the format jsonl"):
        vocabulary('{"id": "a"}\n', language="en")
    with pytest.raises(ParameterError, match=r"^the name '.*x\.doc' does not tell the format"):
        write_vocabulary(EXPECTED, tmp_path / "x.doc")
    with pytest.raises(ParameterError, match=r"^`vocabulary` must be a path, Concepts or None; got 7\.$"):
        concepts_given(7)
    assert concepts_given(None) is None
    assert concepts_given(EXPECTED) is EXPECTED


# --------------------------------------------------------------------------------------------- vocabularies and corpora


def test_labels_given_by_name_become_ids() -> None:
    concepts = Concepts.of([Concept("c1", {"en": "tea", "de": "Tee"}), Concept("c2", {"en": "bank"})])
    concepts = concepts.updated(Concepts.of([Concept("c3", {"en": "bank"})]))
    data = documents_given(["a", "b", "c"], [["Tea", "c1", "bank"], ["TEE"], ["new", "c2"]])
    found = with_ids(data, concepts)
    assert [sorted(found.row_labels(row)) for row in range(3)] == [["bank", "c1"], ["c1"], ["c2", "new"]]
    assert found.Y.toarray().max() == 1
    assert with_ids(data, concepts, known={"Tea", "TEE"}) is data


@pytest.mark.usefixtures("rdflib")
def test_corpora_of_annif_take_skos_as_a_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "v.ttl").write_text(TURTLE)
    (tmp_path / "corpus.tsv").write_text(f"A cup of tea\t<{EX}tea> <{EX}cup>\n")
    data = read(tmp_path / "corpus.tsv", vocabulary=tmp_path / "v.ttl")
    assert data.label_names == ["tea", "cup"]
    write(data, tmp_path / "out.tsv", "annif", vocabulary=EXPECTED)
    assert (tmp_path / "out.tsv").read_bytes() == (tmp_path / "corpus.tsv").read_bytes()


@needs_data
def test_the_names_of_real_vocabularies_are_read() -> None:
    gnd = read_vocabulary(data_folder() / "tibkat" / "names-en.tsv.gz", language="en")
    assert len(gnd) == 78_741
    assert gnd.name("gnd:4154766-4") == "Airport construction"
    eurovoc = read_vocabulary(data_folder() / "eurlex" / "labels.txt")
    assert len(eurovoc) == 3675
    assert eurovoc.name("3") == "adhesive"
