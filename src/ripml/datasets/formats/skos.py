"""SKOS, the W3C's format for thesauri and other vocabularies, in any syntax of RDF that rdflib reads.

::

    <http://example.org/1> a skos:Concept ;
        skos:prefLabel "tea"@en, "Tee"@de ;  skos:altLabel "cha"@en ;
        skos:broader <http://example.org/2> ;  skos:notation "T1" ;  skos:inScheme <http://example.org/drinks> .

What is read: prefLabel, else rdfs:label, as names; altLabel and hiddenLabel as synonyms, all three also by SKOS-XL;
broader, or narrower of the other concept; related, in both directions; notation; rdf:type; inScheme and topConceptOf.
A concept is what has the type skos:Concept, or a prefLabel. Concepts that are owl:deprecated are left out.

RDF has no order, so concepts, synonyms and ids are sorted. Nothing is loaded from elsewhere: JSON-LD must contain its
@context.
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.datasets.formats import suffix_of
from ripml.datasets.source import BOM, Source, fault
from ripml.labels.concepts import Concept, Concepts

SUFFIXES: Final = (".ttl", ".rdf", ".xml", ".owl", ".nt", ".jsonld", ".json")

_SYNTAXES: Final = {
    ".ttl": "turtle", ".rdf": "xml", ".xml": "xml", ".owl": "xml", ".nt": "nt", ".jsonld": "json-ld",
    ".json": "json-ld",
}  # fmt: skip
_TURTLE: Final = re.compile(rb"@(prefix|base)\b|(prefix|base)\s|<[^<>\s]*> +(a |<|[\w-]*:)|#", re.IGNORECASE)


def recognises(source: Source) -> bool:
    """Whether the beginning is XML, JSON-LD or Turtle."""
    return _recognised(source) is not None


def _recognised(source: Source) -> str | None:
    """The syntax that the beginning of a file shows."""
    head = source.head().removeprefix(BOM).lstrip()
    if re.match(rb"<(\?xml|!--|!DOCTYPE|\w*:?RDF\b)", head):
        return "xml"
    if head[:1] in (b"{", b"["):
        return "json-ld"
    return "turtle" if _TURTLE.match(head) else None


def read(source: Source, *, syntax: str | None = None) -> Concepts:
    """Read a whole file; `syntax` is a format of rdflib, by default that of the suffix or the beginning."""
    rdflib = _rdflib()
    syntax = syntax or _SYNTAXES.get(suffix_of(source.name)) or _recognised(source) or "turtle"
    _check_syntax(syntax)
    content = source.read().removeprefix(BOM)
    if syntax == "json-ld":
        _check_context(content, source.name)
    graph = rdflib.Graph()
    try:
        with _quiet():
            graph.parse(data=content, format=syntax)
    except Exception as error:  # each parser of rdflib has its own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise fault(source.name, None, f"this is not RDF in the syntax {syntax} ({reason}).") from None
    concepts = Concepts.of(sorted(_concepts(graph), key=lambda concept: concept.id))
    if not concepts:
        raise fault(source.name, None, "there is no skos:Concept in this file.")
    return concepts


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what rdflib reports of its own classes, and of literals that are not what their datatype says."""
    logger = logging.getLogger("rdflib.term")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _concepts(graph: Any) -> Iterator[Concept]:
    """The concepts of a graph."""
    from rdflib.namespace import OWL, RDF, RDFS, SKOS
    from rdflib.term import Literal, URIRef

    SKOSXL = "http://www.w3.org/2008/05/skos-xl#"
    # Property ↦ what it says of its subject. XL labels are nodes whose text is a statement of its own.
    literals = {SKOS.prefLabel: "name", RDFS.label: "label", SKOS.altLabel: "synonym", SKOS.hiddenLabel: "synonym"}
    nodes = {URIRef(f"{SKOSXL}{name}"): literals[SKOS[name]] for name in ("prefLabel", "altLabel", "hiddenLabel")}
    forward = {
        SKOS.broader: "broader", SKOS.related: "related", RDF.type: "types",
        SKOS.inScheme: "schemes", SKOS.topConceptOf: "schemes",
    }  # fmt: skip
    backward = {SKOS.narrower: "broader", SKOS.related: "related", SKOS.hasTopConcept: "schemes"}
    forms = dict(graph.subject_objects(URIRef(f"{SKOSXL}literalForm")))

    found: dict[Any, _Facts] = {}

    def facts(node: Any) -> _Facts:
        if node not in found:
            found[node] = _Facts()
        return found[node]

    for subject, predicate, value in graph:
        if predicate in literals and isinstance(value, Literal):
            facts(subject).add_text(literals[predicate], value)
        elif predicate in nodes and value in forms:
            facts(subject).add_text(nodes[predicate], forms[value])
        elif predicate in forward and isinstance(value, URIRef):
            facts(subject).ids[forward[predicate]].append(str(value))
        elif predicate == SKOS.notation and isinstance(value, Literal):
            facts(subject).notations.append(str(value))
        if predicate in backward and isinstance(subject, URIRef):
            facts(value).ids[backward[predicate]].append(str(subject))
    concept_type, groups = str(SKOS.Concept), {str(SKOS[name]) for name in _GROUP_CLASSES}
    deprecated = {node for node, value in graph.subject_objects(OWL.deprecated) if value.toPython() is True}
    for node, fact in found.items():
        types = fact.ids["types"]
        is_concept = concept_type in types or ("name" in fact.texts and groups.isdisjoint(types))
        if is_concept and isinstance(node, URIRef) and str(node) and node not in deprecated:
            yield fact.concept(str(node), concept_type)


_GROUP_CLASSES: Final = ("ConceptScheme", "Collection", "OrderedCollection")


class _Facts:
    """What a graph says of a node."""

    def __init__(self) -> None:
        self.texts: dict[str, dict[str, list[str]]] = {}  # kind ↦ language ↦ texts
        self.ids: dict[str, list[str]] = {"broader": [], "related": [], "types": [], "schemes": []}
        self.notations: list[str] = []

    def add_text(self, kind: str, literal: Any) -> None:
        text = str(literal).strip()
        if text:
            self.texts.setdefault(kind, {}).setdefault((literal.language or "").lower(), []).append(text)

    def concept(self, id: str, concept_type: str) -> Concept:
        """As a concept; a second preferred name in a language, which SKOS does not allow, is a synonym."""
        preferred = {**self.texts.get("label", {}), **self.texts.get("name", {})}
        others = self.texts.get("synonym", {})
        names = {language: min(preferred[language]) for language in sorted(preferred)}
        synonyms = {}
        for language in sorted({*preferred, *others}):
            texts = {*preferred.get(language, ()), *others.get(language, ())} - {names.get(language)}
            if texts:
                synonyms[language] = tuple(sorted(texts))
        lists = {name: tuple(sorted({*ids} - {id, concept_type})) for name, ids in self.ids.items()}
        return Concept(id, names, synonyms, notation=min(self.notations, default=None), **lists)


def write_options(name: str) -> dict[str, Any]:
    """The syntax of a file of this name."""
    return {"syntax": _SYNTAXES.get(suffix_of(name), "turtle")}


def write(concepts: Concepts, file: IO[bytes], *, syntax: str = "turtle") -> None:
    """Write a whole file; ids must be URIs."""
    rdflib = _rdflib()
    from rdflib.namespace import RDF, SKOS

    _check_syntax(syntax)

    def uri(id: str) -> Any:
        if ":" not in id or re.search(r'[\x00-\x20<>"{}|\\^`]', id):
            raise DataError(f"the id {id!r} is not a URI, which SKOS needs; write a table or jsonl.")
        return rdflib.URIRef(id)

    def literal(text: str, language: str) -> Any:
        try:
            return rdflib.Literal(text, lang=language or None)
        except ValueError:
            raise DataError(f"{language!r} is not a language tag such as 'de'; SKOS needs one, or none.") from None

    graph = rdflib.Graph()
    graph.bind("skos", SKOS)
    properties = {"broader": SKOS.broader, "related": SKOS.related, "types": RDF.type, "schemes": SKOS.inScheme}
    for concept in concepts.values():
        node = uri(concept.id)
        graph.add((node, RDF.type, SKOS.Concept))
        for language, text, is_name in concept.texts():
            graph.add((node, SKOS.prefLabel if is_name else SKOS.altLabel, literal(text, language)))
        if concept.notation is not None:
            graph.add((node, SKOS.notation, rdflib.Literal(concept.notation)))
        for name, predicate in properties.items():
            for id in getattr(concept, name):
                graph.add((node, predicate, uri(id)))
    for scheme in dict.fromkeys(scheme for concept in concepts.values() for scheme in concept.schemes):
        graph.add((uri(scheme), RDF.type, SKOS.ConceptScheme))
    with _quiet():
        file.write(graph.serialize(format=syntax, encoding="utf-8"))


def _check_syntax(syntax: str) -> None:
    known = dict.fromkeys(_SYNTAXES.values())
    if syntax not in known:
        raise ParameterError(f"`syntax` must be one of {', '.join(known)}; got {syntax!r}.")


def _check_context(content: bytes, name: str) -> None:
    """Raise if JSON-LD refers to a context elsewhere, which rdflib would load from the web or from a file."""
    try:
        waiting = [json.loads(content)]
    except (ValueError, RecursionError) as error:
        raise fault(name, None, f"this is not JSON ({str(error)[:100]}).") from None
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            context = value.get("@context", ())
            outside = [one for one in (context if isinstance(context, list) else [context]) if isinstance(one, str)]
            outside += [value["@import"]] if isinstance(value.get("@import"), str) else []
            if outside:
                raise fault(name, None, f"its @context {outside[0]!r} is not in the file; ripml does not load others.")
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _rdflib() -> Any:
    try:
        import rdflib
    except ImportError:
        raise MissingExtraError("rdflib", "skos") from None
    return rdflib
