"""`document_text`: the text of a document in a file of its own: PDF, DOCX, HTML, e-mail, Markdown or plain text.

The kind is told by the first bytes, and otherwise by the suffix. The title of a page and the subject of a message are
the first line of the text. PDF needs pypdf, which comes with `pip install 'ripml[files]'`; the others are read by
Python's standard library. What is not text is refused: no document is ever read as its raw bytes.
"""

from __future__ import annotations

import email
import email.policy
import importlib
import io
import logging
import os
import re
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, Final
from xml.etree import ElementTree

from ripml.base.errors import DataError, MissingExtraError
from ripml.base.parallel import available_memory
from ripml.datasets.source import Source, fault, text_lines, text_of

__all__ = ["SUFFIXES", "document_text", "is_document", "unzipped"]

_BY_SUFFIX: Final = {
    ".pdf": "pdf", ".docx": "docx", ".html": "html", ".htm": "html", ".xhtml": "html", ".eml": "eml",
    ".md": "text", ".markdown": "text", ".rst": "text", ".txt": "text", ".text": "text",
}  # fmt: skip
SUFFIXES: Final = tuple(_BY_SUFFIX)

_OTHER_PROGRAMS: Final = (".doc", ".rtf", ".odt", ".msg", ".pages", ".ppt", ".pptx", ".odp", ".epub")
_HTML: Final = re.compile(
    rb"\s*(<!--.*?-->\s*)*(<\?xml[^>]*>\s*)?<(!doctype\s+html|html)[\s>]", re.IGNORECASE | re.DOTALL
)
_CHARSET: Final = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_HYPHEN: Final = re.compile(r"(?<=[^\W\d_A-Z])-\n(?=[^\W\d_A-Z])")  # between the parts of a word on two lines
_WORD: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"

_log = logging.getLogger("ripml.reading")


def is_document(name: str) -> bool:
    """Whether the suffix of a name is that of a document.

    >>> is_document("letter.PDF"), is_document("tickets.csv")
    (True, False)
    """
    return _suffix(name) in _BY_SUFFIX


def document_text(source: Source) -> str:
    """Return the text of a document; raise if it has none that can be read."""
    head, suffix = source.head(), _suffix(source.name)
    if head[:1024].lstrip().startswith(b"%PDF-"):
        return _pdf_text(source)
    if head.startswith(b"PK\x03\x04"):
        return _docx_text(source)
    if suffix in _OTHER_PROGRAMS or head.startswith((b"{\\rtf", b"\xd0\xcf\x11\xe0")):
        kind = f"{suffix} files" if suffix in _OTHER_PROGRAMS else "files of this kind"
        raise fault(source.name, None, f"{kind} cannot be read; save it as DOCX, PDF or plain text.")
    if _BY_SUFFIX.get(suffix) in ("pdf", "docx") and not head:
        raise fault(source.name, None, "the file is empty.")
    if _BY_SUFFIX.get(suffix) in ("pdf", "docx"):
        raise fault(source.name, None, f"this is not a {suffix[1:].upper()} file, although it is called so.")
    if b"\0" in head:
        raise fault(
            source.name, None, "this is not text; documents are PDF, DOCX, HTML, e-mail, Markdown or plain text."
        )
    if suffix == ".eml":
        return _message_text(source)
    if _BY_SUFFIX.get(suffix) == "html" or _HTML.match(head):
        return _page_text(source)
    text = "\n".join(line for _, line in text_lines(source))
    if "\0" in text:
        raise fault(source.name, None, "this is not text: it has a byte of zero.")
    return text


def unzipped(name: str, content: bytes) -> zipfile.ZipFile:
    """Open a zip file; raise if it is damaged, or would fill the memory when it is unpacked."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except (zipfile.BadZipFile, ValueError, OSError, EOFError):
        raise fault(name, None, "the file is damaged: its zip archive cannot be opened.") from None
    if sum(entry.file_size for entry in archive.infolist()) > available_memory() // 4:
        raise fault(name, None, "the file does not fit into memory when it is unpacked.")
    return archive


def _suffix(name: str) -> str:
    return os.path.splitext(name.removesuffix(".gz"))[1].lower()


def _pdf_text(source: Source) -> str:
    try:
        pypdf: Any = importlib.import_module("pypdf")
    except ImportError:
        raise MissingExtraError("pypdf", "files") from None
    logger = logging.getLogger("pypdf")
    before, logger.disabled = logger.disabled, True  # it warns of every oddity that it can read
    try:
        reader = pypdf.PdfReader(io.BytesIO(source.read()))
        if reader.is_encrypted and not reader.decrypt(""):
            raise fault(source.name, None, "the PDF is protected by a password; save it without one.")
        pages = [page.extract_text() for page in reader.pages]
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything in a parser of PDF
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise fault(source.name, None, f"this PDF cannot be read ({reason}).") from None
    finally:
        logger.disabled = before
    text = "\n".join(page.strip() for page in pages).strip()
    if not text:
        raise fault(source.name, None, "this PDF has no text, only pictures; read them with a program for OCR first.")
    return _HYPHEN.sub("", text)


def _docx_text(source: Source) -> str:
    archive = unzipped(source.name, source.read())
    try:
        root = ElementTree.fromstring(archive.read("word/document.xml"))
    except KeyError:
        raise fault(source.name, None, "this is a zip archive, but not a DOCX file; give the files in it.") from None
    except (ElementTree.ParseError, zipfile.BadZipFile, RuntimeError, OSError, EOFError):
        raise fault(source.name, None, "this DOCX file is damaged or protected by a password.") from None
    paragraphs = ("".join(_run_text(paragraph)) for paragraph in root.iter(f"{_WORD}p"))
    text = "\n".join(line for line in map(str.strip, paragraphs) if line)
    if not text:
        raise fault(source.name, None, "this DOCX file has no text.")
    return text


def _run_text(element: ElementTree.Element) -> Iterator[str]:
    """The text of a paragraph without that of paragraphs inside it, such as those of a text box."""
    for child in element:
        if child.tag == f"{_WORD}t":
            yield child.text or ""
        elif child.tag in (f"{_WORD}tab", f"{_WORD}br", f"{_WORD}cr"):
            yield " " if child.tag == f"{_WORD}tab" else "\n"
        elif child.tag not in (f"{_WORD}p", f"{_WORD}delText", f"{_WORD}instrText"):
            yield from _run_text(child)


def _page_text(source: Source) -> str:
    head = source.head()
    declared = _CHARSET.search(head[:4096])
    encoding = None if declared is None else declared[1].decode()
    if encoding is not None and encoding.lower() in ("iso-8859-1", "latin1", "us-ascii", "ascii", "utf-8", "utf8"):
        encoding = None  # browsers read these as Windows-1252, and what they call UTF-8 often is not
    try:
        lines = list(text_lines(source, encoding))
    except DataError as error:
        raise fault(source.name, None, f"its characters cannot be read: {error}") from None
    text = page_text("\n".join(line for _, line in lines))
    if not text:
        raise fault(source.name, None, "this page has no text.")
    return text


def page_text(html: str) -> str:
    """Return the text of an HTML page: its title on the first line, then a line for each paragraph.

    >>> page_text("<title>Refund</title><p>I was <b>charged</b> twice.<script>x</script><p>Regards")
    'Refund\\nI was charged twice.\\nRegards'
    """
    page = _Page()
    page.feed(html)
    page.close()
    lines = [" ".join(line.split()) for line in "".join(page.pieces).split("\n")]
    title = " ".join("".join(page.title).split())
    lines = [line for line in lines if line]
    return "\n".join([title, *lines] if title and title not in lines[:1] else lines)


class _Page(HTMLParser):
    """Collects the words of a page that a reader sees."""

    _HIDDEN: Final = {"script", "style", "noscript", "template", "svg", "nav", "select", "button", "head", "iframe"}
    _INLINE: Final = {
        "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins", "kbd", "label",
        "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.title: list[str] = []
        self._hidden: list[str] = []  # the open elements whose text is not seen
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "title":
            self._in_title = "svg" not in self._hidden
        elif tag in self._HIDDEN:
            self._hidden.append(tag)
        elif tag in ("body", "main", "article") or self._hidden == ["head"]:  # an end tag was left out
            if tag not in ("meta", "link", "base"):
                self._hidden.clear()
        elif tag not in self._INLINE:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        elif tag not in self._INLINE:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._hidden:
            self.pieces.append(data.replace("\n", " "))


def _message_text(source: Source) -> str:
    try:
        message = email.message_from_bytes(source.read(), policy=email.policy.default)
        body: Any = message.get_body(("plain", "html"))
        subject = str(message["subject"] or "")
        attachments = [str(part.get_filename() or part.get_content_type()) for part in message.iter_attachments()]
        content = b"" if body is None else body.get_payload(decode=True) or b""
        is_page = body is not None and body.get_content_subtype() == "html"
        charset = None if body is None else body.get_content_charset()
    except DataError:
        raise
    except Exception as error:  # the parser of headers can raise nearly anything
        raise fault(source.name, None, f"this e-mail cannot be read ({type(error).__name__}).") from None
    if not message.keys():
        raise fault(source.name, None, "this is not an e-mail: it has no headers.")
    if attachments:
        _log.warning("%s: attachments are not read: %s", source.name, ", ".join(attachments)[:200])
    text = text_of(source.name, content, charset).replace("\r\n", "\n")
    text = page_text(text) if is_page else text.strip()
    if not (subject + text).strip():
        raise fault(source.name, None, "this e-mail has neither a subject nor a text.")
    return f"{' '.join(subject.split())}\n{text}".strip()
