"""The XML dump: a stream of pages, and the site's rules for what a link leads to.

A dump of MediaWiki (`…-pages-articles.xml.bz2`) begins with `<siteinfo>`, which names the namespaces in the language of
the wiki and says whether titles are case-sensitive in the first letter; the pages follow. Only one page at a time is in
memory.
"""

from __future__ import annotations

import bz2
import gzip
import html
import importlib
import itertools
import os
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote
from xml.etree.ElementTree import ParseError

from ripml.base.errors import DataError, MissingExtraError
from ripml.datasets.source import fault, unreadable

__all__ = ["ARTICLE", "Page", "Site", "Target", "import_extra", "open_dump"]

ARTICLE: Final = 0  # number of the article namespace
_FILES: Final = (-2, 6)
_CATEGORY: Final = 14

# MediaWiki has these names of namespaces in every language, besides those of <siteinfo>.
_CANONICAL: Final = {
    **{"media": -2, "special": -1, "talk": 1, "user": 2, "user talk": 3, "project": 4, "project talk": 5, "wp": 4},
    **{"wt": 5, "file": 6, "image": 6, "file talk": 7, "image talk": 7, "mediawiki": 8, "mediawiki talk": 9},
    **{"template": 10, "template talk": 11, "help": 12, "help talk": 13, "category": 14, "category talk": 15},
}

# A link with a prefix and one of these endings is a file, even if <siteinfo> lacks an old name of its namespace.
_MEDIA: Final = re.compile(
    r"\.(?:jpe?g|png|svg|gif|tiff?|webp|xcf|pdf|djvu|og[agv]|opus|mp3|wav|flac|midi?|webm|mpe?g|stl)$", re.I
)

# The languages of Wikipedia: [[fr:Chat]] is the same article in French, and is not shown in the text.
_LANGUAGES: Final = frozenset(
    """aa ab ace ady af ak als alt am ami an ang ann anp ar arc ary arz as ast atj av avk awa ay az azb ba ban bar
    bat-smg bbc bcl bdr be be-tarask be-x-old bew bg bh bi bjn blk bm bn bo bpy br bs btm bug bxr ca cbk-zam cdo ce ceb
    ch cho chr chy ckb co cr crh cs csb cu cv cy da dag de dga din diq dsb dtp dty dv dz ee el eml en eo es et eu ext fa
    fat ff fi fiu-vro fj fo fon fr frp frr fur fy ga gag gan gcr gd gl glk gn gom gor got gpe gsw gu guc gur guw gv ha
    hak haw he hi hif ho hr hsb ht hu hy hyw hz ia iba id ie ig igl ii ik ilo inh io is it iu ja jam jbo jv ka kaa kab
    kbd kbp kcg kg kge ki kj kk kl km kn knc ko koi kr krc ks ksh ku kus kv kw ky la lad lb lbe lez lfn lg li lij lld
    lmo ln lo lrc lt ltg lv lzh mad mai map-bms mdf mg mh mhr mi min mk ml mn mni mnw mo mos mr mrj ms mt mus mwl my myv
    mzn na nah nan nap nb nds nds-nl ne new ng nia nl nn no nov nqo nr nrm nso nup nv ny oc olo om or os pa pag pam pap
    pcd pcm pdc pfl pi pih pl pms pnb pnt ps pt pwn qu rm rmy rn ro roa-rup roa-tara rsk ru rue rup rw sa sah sat sc scn
    sco sd se sg sgs sh shi shn si simple sk skr sl sm smn sn so sq sr srn ss st stq su sv sw syl szl szy ta tay tcy tdd
    te tet tg th ti tig tk tl tly tn to tpi tr trv ts tt tum tw ty tyv udm ug uk ur uz ve vec vep vi vls vo vro wa war
    wo wuu xal xh xmf yi yo yue za zea zgh zh zh-classical zh-min-nan zh-yue zu""".split()  # noqa: SIM905  # a list would have one code per line
)

# Sister projects and common prefixes of other sites: shown in the text, but not an article of this wiki.
_PROJECTS: Final = frozenset(
    """b betawikiversity bugzilla c chapter cite commons d doi foundation google gerrit hdl imdbname imdbtitle incubator
    irc iso639-3 issn m mail mediazilla meta metawiki metawikimedia mw mwot n nost oeis oldwikisource orthodoxwiki
    outreach phab phabricator q rev rfc s sep sourceforge species strategy testwiki tools tvtropes usemod v voy w
    wiktionary wikt wikia wikibooks wikicities wikidata wikilivres wikimedia wikinews wikipedia wikiquote wikisource
    wikispecies wikitech wikiversity wikivoyage wmf wookieepedia""".split()  # noqa: SIM905
)

_INVISIBLE: Final = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NOT_IN_TITLES: Final = re.compile(r"[<>\[\]{}|\x00-\x1f\x7f\ufffd]")
_MAX_TITLE: Final = 255  # bytes
_PAGES_PER_CALL: Final = 1000


class Page(NamedTuple):
    """One page of a dump; `redirect` is the title in the dump that it leads to, `text` its wikitext."""

    id: int
    namespace: int
    title: str
    redirect: str | None
    text: str


Kind: TypeAlias = Literal["article", "file", "hidden", "other"]


class Target(NamedTuple):
    """What a link leads to: an article with its title, a file, a hidden link that is not shown, or another page."""

    kind: Kind
    title: str


@dataclass(frozen=True)
class Site:
    """The rules of a wiki for titles.

    Attributes
    ----------
    language : str
        From the database name: "en" of enwiki.
    first_letter : bool
        The first letter of a title is always upper case.
    namespaces : dict
        Number of each namespace by its name in lower case.

    Examples
    --------
    >>> site = Site("en", True, {"file": 6, "category": 14})
    >>> site.target("mount_Everest#Name")
    Target(kind='article', title='Mount Everest')
    >>> site.target("File:Everest.jpg").kind, site.target("fr:Everest").kind, site.target(":Category:Peaks").kind
    ('file', 'hidden', 'other')
    """

    language: str
    first_letter: bool
    namespaces: dict[str, int]

    def target(self, written: str) -> Target:
        """Return what the link `[[written]]` leads to."""
        title = html.unescape(_unquoted(written))
        title = title.partition("#")[0]
        title = " ".join(unicodedata.normalize("NFC", _INVISIBLE.sub("", title)).replace("_", " ").split())
        colon = title.startswith(":")  # [[:Category:X]] shows the link that [[Category:X]] hides
        title = title.removeprefix(":").strip()
        prefix, separator, rest = title.partition(":")
        if separator:
            name = prefix.strip().lower()
            namespace = self.namespaces.get(name, _CANONICAL.get(name))
            if not colon and (namespace in _FILES or (rest and _MEDIA.search(rest))):
                return Target("file", "")
            if not colon and (namespace == _CATEGORY or name in _LANGUAGES):
                return Target("hidden", "")
            if namespace is not None or name in _LANGUAGES or name in _PROJECTS:
                return Target("other", "")
        if not title or _NOT_IN_TITLES.search(title) or len(title.encode()) > _MAX_TITLE:
            return Target("other", "")
        return Target("article", self._capital(title[0]) + title[1:] if self.first_letter else title)

    def _capital(self, letter: str) -> str:
        if letter == "i" and self.language in ("tr", "az"):
            return "İ"
        # MediaWiki leaves alone letters without a single capital (ß) and Georgian, whose capitals are never written.
        upper = letter.upper()
        return letter if len(upper) > 1 or "\u10d0" <= letter <= "\u10ff" else upper


def import_extra(package: str) -> Any:
    """Import a package of the extra `text`; they have no type information, hence Any."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtraError(package, "text") from None


@contextmanager
def open_dump(
    path: str | os.PathLike[str], progress: Callable[[int], None] | None = None
) -> Iterator[tuple[Site, Iterator[Page]]]:
    """Open a dump (.xml, .xml.bz2 or .xml.gz, recognised by its first bytes) and yield its site and its pages.

    `progress` is called from time to time with the number of bytes read from the file.
    """
    name = os.fspath(path)
    try:
        file = open(name, "rb")  # noqa: SIM115  # closed by the `with` below
    except OSError as error:
        raise unreadable(name, error) from None
    with file:
        with _as_data_errors(name):
            root = import_extra("mwxml.element_iterator").ElementIterator.from_file(_decompressed(file))
            source = import_extra("mwxml").Dump.from_element(root)
            info = source.site_info
            if root.tag != "mediawiki" or not info.namespaces:
                raise fault(name, None, "there is no <siteinfo>; this must be a pages-articles dump of MediaWiki.")
            case = next((space.case for space in info.namespaces if space.id == ARTICLE), None) or info.case
        names = {space.name.lower(): space.id for space in info.namespaces if space.id != ARTICLE}
        site = Site((info.dbname or "").removesuffix("wiki"), case != "case-sensitive", names)

        def pages() -> Iterator[Page]:
            iterator = iter(source)
            for count in itertools.count(1):
                with _as_data_errors(name):
                    page = _next_page(iterator)
                if page is None:
                    return
                root.element.clear()  # mwxml leaves an empty element of 90 bytes for each page: 2 GB for 25 million
                yield page
                if progress is not None and count % _PAGES_PER_CALL == 0:
                    progress(file.tell())

        yield site, pages()


def _next_page(iterator: Iterator[Any]) -> Page | None:
    item = next(iterator, None)
    if item is None:
        return None
    text = ""
    for revision in item:  # the last one is the newest, if a dump has several
        text = revision.text or ""
    return Page(item.id, item.namespace, item.title, item.redirect, text)


def _unquoted(written: str) -> str:
    if "%" not in written:
        return written
    try:
        return unquote(written, errors="strict")
    except UnicodeDecodeError:  # a plain percent sign
        return written


def _decompressed(file: IO[bytes]) -> Any:
    head = file.read(3)
    file.seek(0)
    if head == b"BZh":
        return bz2.BZ2File(file)
    return gzip.GzipFile(fileobj=file) if head[:2] == b"\x1f\x8b" else file


@contextmanager
def _as_data_errors(name: str) -> Iterator[None]:
    """Turn the errors of bz2, gzip, the XML parser and mwxml into a `DataError` with one sentence."""
    try:
        yield
    except (DataError, MissingExtraError):
        raise
    except EOFError:
        raise fault(
            name, None, "the compressed data ends too early; the file is truncated: download it again."
        ) from None
    except (OSError, zlib.error) as error:
        raise fault(name, None, f"the compressed data is damaged ({error}); download it again.") from None
    except (ParseError, StopIteration) as error:
        reason = str(error).partition("...")[0][:80] or "no element found"
        raise fault(name, None, f"this is not well-formed XML ({reason}); download the dump again.") from None
    except Exception as error:  # mwxml checks little: a page without a title ends in an AttributeError
        if type(error).__module__ == "builtins" or type(error).__name__ == "MalformedXML":
            raise fault(name, None, f"this is not a pages-articles dump of MediaWiki ({error}).") from None
        raise
