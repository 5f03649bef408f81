"""Tag questions as on Stack Exchange: train on tagged questions, suggest tags for new ones, learn from a correction.

By default the "questions" are the docstrings of Python's standard library, tagged with their module and its topic.
`python examples/tag_questions.py Posts.xml` reads the questions of a Stack Exchange dump of any size instead
(https://archive.org/details/stackexchange).

python examples/tag_questions.py
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from typing import IO
from xml.etree import ElementTree

from ripml import RIPML, Tagger

MODULES = {
    "files": "os os.path pathlib shutil tempfile glob fnmatch fileinput io",
    "compression": "gzip lzma tarfile zipfile zlib",
    "network": "ftplib http.client http.cookies http.server ipaddress select selectors socket socketserver ssl "
    "urllib.parse urllib.request urllib.robotparser webbrowser",
    "email": "email.message email.parser email.utils imaplib mailbox poplib smtplib",
    "dates": "calendar datetime time zoneinfo sched",
    "numbers": "decimal fractions math operator random statistics",
    "text": "difflib gettext locale pprint re shlex string textwrap unicodedata",
    "data-formats": "base64 configparser csv html html.parser json mimetypes pickle plistlib shelve sqlite3 struct "
    "wave xml.dom.minidom xml.etree.ElementTree xml.sax",
    "concurrency": "asyncio concurrent.futures multiprocessing.pool queue signal subprocess threading",
    "data-structures": "array bisect collections contextlib copy dataclasses enum functools heapq itertools types "
    "typing weakref",
    "security": "getpass hashlib hmac secrets uuid",
    "code": "ast dis importlib inspect pkgutil symtable tokenize trace traceback",
    "testing": "logging logging.handlers profile pstats timeit unittest unittest.mock warnings",
}
QUESTIONS = [
    "How do I parse a JSON string?",
    "How do I send an email with an attachment over SMTP?",
    "How do I run a function in another thread and wait for its result?",
    "What is the best way to unpack a tar archive?",
    "How can I round a decimal to two places?",
]
Question = tuple[str, list[str]]


def from_dump(posts: str | IO[bytes]) -> Iterator[Question]:
    """Yield the questions of Posts.xml with their tags: title and body with HTML, which the tagger removes."""
    for _, row in ElementTree.iterparse(posts, events=("end",)):
        if row.tag == "row" and row.get("PostTypeId") == "1":
            # "<python><list>" in older dumps, "|python|list|" in newer ones
            tags = re.findall(r"[^<>|]+", row.get("Tags", ""))
            yield f"{row.get('Title', '')}\n{row.get('Body', '')}", tags
        row.clear()  # otherwise the whole file would stay in memory


def from_docstrings() -> Iterator[Question]:
    """Yield the first paragraph of each docstring in the standard library, with its module and topic."""
    seen = set()
    for topic, names in MODULES.items():
        for name in names.split():
            module = importlib.import_module(name)
            things = [module, *(getattr(module, key, None) for key in getattr(module, "__all__", dir(module)))]
            classes = [thing for thing in things if inspect.isclass(thing) and thing.__module__ == name]
            routines = filter(inspect.isroutine, [*things, *(each for kind in classes for each in vars(kind).values())])
            for thing in (module, *classes, *routines):
                text = inspect.cleandoc(thing.__doc__ or "").partition("\n\n")[0]
                if len(text.split()) > 3 and text not in seen:
                    seen.add(text)
                    yield text, [name, topic]


def show(tagger: Tagger, question: str) -> None:
    """Print a question and its best tags."""
    tags = ", ".join(f"{tag} {score:.2f}" for tag, score in tagger.suggest(question, n=3))
    print(f"  {question:70} {tags}")


def main() -> None:
    """Train, suggest, and learn from one correction."""
    questions = list(from_dump(sys.argv[1]) if len(sys.argv) > 1 else from_docstrings())
    texts, tags = zip(*questions, strict=True)
    tagger = Tagger(model=RIPML.linear(random_state=0)).fit(texts, tags)
    print(f"{len(texts):,} questions, {len({tag for row in tags for tag in row}):,} tags")
    for question in QUESTIONS:
        show(tagger, question)

    wrong = "How can I find all files whose names end in .txt?"
    print("A mistake, the reason for it, and a similar question after learning the correct tags:")
    show(tagger, wrong)
    why = tagger.explain(wrong, n=1)[0]
    print(f"    because of {', '.join(f'{word!r} {pull:+.2f}' for word, pull in why.features[:3])}")
    tagger.learn([wrong], [["glob", "files"]])
    show(tagger, "How do I find all files whose names end in .md?")


if __name__ == "__main__":
    main()
