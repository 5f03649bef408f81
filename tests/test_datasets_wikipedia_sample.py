"""Eleven articles of real dumps against what a reader finds in their wikitext.

The expectations below were written down while reading the raw wikitext of each article from top to bottom, before the
parser was ever run on it: every `[[…]]` outside references and comments, with its first letter made upper case and its
section cut off. `exactly` is the whole list of a short article; for a long one `among` must be there and `never` must
not. The dumps are the excerpts of English and Bulgarian Wikipedia that come with gensim.
"""

from __future__ import annotations

import bz2
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ripml.lab.wikipedia import build

pytest.importorskip("mwxml", reason="the extra `text` is not installed")
pytest.importorskip("mwparserfromhell", reason="the extra `text` is not installed")
datapath = pytest.importorskip("gensim.test.utils", reason="the extra `text` is not installed").datapath

ENGLISH = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
BULGARIAN = "bgwiki-latest-pages-articles-shortened.xml.bz2"


@dataclass(frozen=True)
class Read:
    """What a reader found in one article; names are separated by semicolons."""

    title: str
    begins: str
    exactly: str = ""
    among: str = ""
    never: str = ""
    not_in_text: str = ""


SAMPLE = [
    Read(  # an infobox; a reference with a link of its own, which the text has too
        "Algorithms (journal)",
        "Algorithms is a peer-reviewed open access mathematics journal concerning design, analysis, and experiments on "
        "algorithms. The journal is published by MDPI and was established in 2008.",
        exactly="Algorithms; MDPI; Peer review; Open access; Mathematics journal; Algorithm; Editor-in-chief; "
        "Kyoto University; Chemical Abstracts Service; Compendex; DBLP Computer Science Bibliography; Inspec; "
        "MathSciNet; Scopus; Zentralblatt MATH; Algorithmica",
        not_in_text="Infobox; Quarterly; About Algorithms; Category; 405716627",
    ),
    Read(  # plain prose; a link that goes on in letters; templates that only name pages
        "Answer",
        "Generally, an answer is a reply to a question. It can be solution, a retaliation or a response to it.",
        exactly="Question; Defense (legal); Reply; Objection (law); Common law; Pleading; Defendant; Plaintiff; "
        "Complaint; Information; Indictment; Motion to dismiss; Demurrer; Default judgment; Guilt (law); "
        "Equitable remedy; Restitution; Injunction; Fine (penalty); Punishment; Imprisonment; Lawyer; Countersubject",
        not_in_text="Chisholm; other uses; Legal documents",
    ),
    Read(  # United States Patent and Trademark Office is linked in a reference only
        "Abstract (law)",
        "In law, an abstract is a brief statement that contains the most important points of a long legal document or "
        "of several related legal papers.\nAbstract of title\nThe Abstract of Title, used in real estate transactions,",
        exactly="Law; Legal document; Real estate; Deed; Will (law); Mortgage law; Ownership; Patent; Prior art; "
        "Novelty (patent); Inventive step and non-obviousness; United States patent law; Property abstract; "
        "World Book; Patent Cooperation Treaty; European Patent Convention",
        not_in_text="USPTO; unbroken chain; 608.01",
    ),
    Read(  # "argument form" is a redirect to Logical form in the same excerpt; a formula
        "Affirming the consequent",
        "Affirming the consequent, sometimes called converse error, fallacy of the converse or confusion of necessity "
        "and sufficiency, is a formal fallacy of inferring the converse from the original statement. The corresponding "
        "argument has the general form:\nIf P, then Q.\nQ.\nTherefore, P.\n",
        exactly="Formal fallacy; Converse (logic); Logical form; Validity; Contraposition; Consequent; "
        "Indicative conditional; Bill Gates; United States Bullion Depository; Wealth; Contrapositive; Flu; "
        "Sore throat; Common cold; Strep throat; Confusion of the inverse; Denying the antecedent; ELIZA effect; "
        "Fallacy of the single cause; Fallacy of the undistributed middle; Inference to the best explanation; "
        "Modus ponens; Modus tollens; Post hoc ergo propter hoc; Necessity and sufficiency",
        not_in_text="leftrightarrow; Damer; fallacyfiles",
    ),
    Read(  # lists, a file, a link in the bold title, letters outside ASCII
        "Transport in Angola",
        "Transport in Angola comprises:\nRailways\nThere are three separate railway lines in Angola:\n"
        "Luanda Railway (CFL) (northern)\nBenguela Railway (CFB) (central)\nMoçâmedes Railway (CFM) (southern)\n",
        exactly="Angola; Luanda Railway; Caminhos de Ferro de Luanda; Benguela Railway; Caminho de Ferro de Benguela; "
        "Moçâmedes Railway; Democratic Republic of the Congo; Lobito; Lusaka; Zambia; Barra do Dande; "
        "Bengo (province); Caxito; TAAG Angola Airlines; Sonair; Luanda International Airport; Aeroflot; "
        "British Airways; Brussels Airlines; Lufthansa; Air France; Air Namibia; Cubana; Ethiopian Airlines; "
        "Emirates (airline); Delta Air Lines; Royal Air Maroc; Iberia Airlines; Hainan Airlines; Kenya Airways; "
        "South African Airways; TAP Air Portugal; Benguela; Cabinda (city); Huambo; Namibe; Catumbela; "
        "CIA World Factbook",
        not_in_text="Ship loading minerals; Victor Carvalho; Nautical; &nbsp;",
    ),
    Read(  # three links to disambiguation pages, a link to Wiktionary, captions; New York Times in references only
        "Adventure",
        "An adventure is an exciting or unusual experience. It may also be a bold, usually risky undertaking, with an "
        "uncertain outcome. Adventures may be activities",
        exactly="Fridtjof Nansen; Nansen's Fram expedition; Risk; Exploring; Skydiving; Mountain climbing; "
        "River rafting; Extreme sports; Arousal; Fear; Flow (psychology); Yerkes-Dodson law; André Malraux; "
        "Helen Keller; Recreation; Adventure racing; Adventure travel; Jason Lewis (adventurer); Sustainability; "
        "Adventure education; Learning; Homer; The Odyssey; Joseph Campbell; Monomyth; "
        "The Hero with a Thousand Faces; Knight errant; Adventure novel; Adventure film; Star Wars; "
        "Raiders of the Lost Ark; Lewis Carroll; Alice's Adventures in Wonderland; List of genres; Tourism; Travel; "
        "Sports",
        not_in_text="redirect here; 260px; international fame; Elsevier",
    ),
    Read(  # an infobox with templates inside templates; El Pais, Highbeam, Los Angeles Times in references only
        "Actrius",
        "Actresses (Catalan: Actrius) is a 1997 Catalan language Spanish drama film produced and directed by Ventura "
        "Pons and based on the award-winning stage play E.R. by Josep Maria Benet i Jornet. The film has no male",
        exactly="Catalan language; Ventura Pons; Josep Maria Benet i Jornet; Núria Espert; Rosa Maria Sardà; "
        "Anna Lizaran; Mercè Pons; Canal+; Generalitat de Catalunya; Televisión Española; Buena Vista International; "
        "Spain; Grauman's Egyptian Theatre; American Cinematheque; Stockholm International Film Festival; Daily Mail; "
        "All About Eve; Rashomon; The Guardian; The Evening Standard; MRQE; Butaca Awards; Goya Awards; "
        "Wayback Machine",
        not_in_text="Pladevall; condensed and rounded; Rosanna",
    ),
    Read(  # a title with a colon that is no namespace; a commented-out infobox
        "Animalia (book)",
        "Animalia is an illustrated children's book by Graeme Base. It was originally published in 1986, followed by",
        exactly="Graeme Base; Picture books; Harcourt Brace Jovanovich; Children's literature; Alliteration; Alphabet; "
        "Alligator; Butterfly; Colouring book; Abrams Books; Animalia (TV series); Venezuela; Minimax (TV channel); "
        "Czech Republic; Slovakia; Greece; ET1 (Greece); Australian Children's Television Foundation; IPad; IPhone; "
        "IPod Touch; Children's Book Council of Australia; Children's Book of the Year Award: Picture Book",
        not_in_text="Book cover; LibraryThing; Puffin; graemebase.com",
    ),
    Read(  # a list inside a taxobox; Fortey, R.A. in a reference only
        "Agnostida",
        "Agnostida is an order of arthropod which first developed near the end of the Early Cambrian period and "
        "thrived during the Middle Cambrian.",
        exactly="John William Salter; Agnostina; Agnostidae; Ammagnostidae; Clavagnostidae; Diplagnostidae; "
        "Doryagnostidae; Glyptagnostidae; Metagnostidae; Peronopsidae; Ptychagnostidae; Spinagnostidae; "
        "Condylopygoidea; Condylopygidae; Eodiscina; Eodiscoidea; Calodiscidae; Eodiscidae; Hebediscidae; "
        "Tsunyidiscidae; Weymouthiidae; Yukoniidae; Order (biology); Arthropod; Cambrian; Lower Cambrian; Trilobites; "
        "Redlichiida; Corynexochida; Ptychopariida; Extinct; Ordovician; Family (biology); Pygidium; "
        "Cephalon (arthropod anatomy); Stem group; Juvenile (organism); Lamellipedia; Clade; Proximal endite; "
        "Sister taxon; Crustaceomorpha; Cladistic; Dorsum (anatomy); Exoskeleton; Brachiopods; Pelagic; Benthic; "
        "Detritus; Fossil record; Ostracod; Hyolith; Sponge; Selkirkia; Sidneyia",
        not_in_text="Miomera; Walossek; Vokáč; Superfamily",
    ),
    Read(  # tables, one of them inside <div>; a section link
        "American Football Conference",
        "The American Football Conference (AFC) is one of the two conferences of the National Football League (NFL). "
        "This conference and its counterpart, the National Football Conference (NFC), currently contain 16 teams each,",
        among="National Football League; American Football League; Denver Broncos; Conference (sports); "
        "AFL–NFL merger; Division (sport); AFC East; Orchard Park (town), New York; New York; Ralph Wilson Stadium; "
        "M&T Bank Stadium; FirstEnergy Stadium (Cleveland); Qualcomm Stadium; Tampa Bay Buccaneers; "
        "San Francisco 49ers; 2015 NFL season; 2016 Denver Broncos season; NFC South; Wild card (sports); Lamar Hunt; "
        "Super Bowl; AFL-NFL Merger",
        never="2015 NFL season#standings; American Football Conference; File:Oldafclogo.JPG",
        not_in_text="wikitable; rowspan; Gillette Stadium; Original American Football Conference logo; thumbinner",
    ),
    Read(  # Bulgarian; the file is UTF-16, files stand before the text, a time line after it
        "Григориански календар",
        "Григорианският календар (понякога наричан и Грегориански календар, „нов стил“) е съвременният международно "
        "признат светски календар, на който се основава и международният стандарт ISO 8601.",
        among="Папа; Григорий XIII; Целогодишни календари; Христофор Клавий; Светски; Календар; ISO 8601; 4 октомври; "
        "Була; 24 февруари; 1582; Юлиански календар; Тропическа година; Равноденствие; Високосна година; "
        "Приемане на григорианския календар; Слънчев календар; Земя; Слънце; Ден; Час; Януари; Неделя; "
        "Исус Христос; Ирод Велики; Новата ера; Съкращение; Високосна секунда; Новоюлиански календар",
        never="Календари; Категория:Календари; File:Gregory XIII.jpg; Файл:Gregory XIII.jpg; папа; януари; "
        "Григориански календар",
        not_in_text="thumb; пфениг; barset; frac; Naval Observatory; Категория",
    ),
]


def names(listed: str) -> set[str]:
    return {name.strip() for name in listed.split(";") if name.strip()}


@pytest.fixture(scope="module")
def articles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return the documents of both excerpts, with every target a label."""
    home = tmp_path_factory.mktemp("excerpts")
    # Two copies of the one Bulgarian article: a data set has at least two documents.
    bulgarian = Path(datapath(BULGARIAN))
    build(datapath(ENGLISH), home / "en", min_count=1, features=None, targets="any", n_jobs=2)
    build(doubled(bulgarian, home), home / "bg", min_count=1, features=None, targets="any", n_jobs=1)
    found: dict[str, dict[str, Any]] = {}
    for name in ("en", "bg"):
        with open(home / name / "docs.jsonl", encoding="utf-8") as file:
            found |= {document["title"]: document for document in map(json.loads, file)}
    return found


def doubled(dump: Path, home: Path) -> Path:
    """Return the dump with its first page once more, under another title."""
    text = bz2.decompress(dump.read_bytes()).decode("utf-16")
    start, end = text.index("<page>"), text.index("</page>") + len("</page>")
    again = text[start:end].replace("<title>Григориански календар<", "<title>Копие<", 1)
    path = home / "bg.xml"
    path.write_bytes((text[:end] + again + text[end:]).encode("utf-16"))
    return path


@pytest.mark.parametrize("read", SAMPLE, ids=lambda read: read.title)
def test_an_article_is_as_a_person_read_it(read: Read, articles: dict[str, dict[str, Any]]) -> None:
    article = articles[read.title]
    labels, text = set(article["labels"]), article["text"]
    assert len(labels) == len(article["labels"])
    if read.exactly:
        assert labels == names(read.exactly)
    assert names(read.among) <= labels
    assert not names(read.never) & labels
    assert text.startswith(read.begins)
    assert [words for words in names(read.not_in_text) if words in text] == []
    assert not any(mark in text for mark in ("[[", "]]", "{{", "}}", "''", "<ref", "{|"))


def test_disambiguation_pages_and_redirects_are_not_documents(articles: dict[str, dict[str, Any]]) -> None:
    # All of these are pages of the excerpt: four with a template for it, then two redirects.
    for title in ("Austin (disambiguation)", "Aberdeen (disambiguation)", "Ada", "Alien", "AfricA", "Argument form"):
        assert title not in articles
    assert not any(title.startswith("Уикипедия:") for title in articles)
    assert not any(name.endswith("(disambiguation)") for article in articles.values() for name in article["labels"])
