"""Tables and documents as people have them, made in code: how each must be read, or the sentence that refuses it."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


class Case(NamedTuple):
    """A file, its options, and either its texts and labels or the sentence (a regular expression) that refuses it."""

    name: str
    content: bytes
    texts: Sequence[str] = ()
    labels: Sequence[Sequence[str]] = ()
    sentence: str = ""
    options: dict[str, Any] = {}  # noqa: RUF012  # never changed
    notes: Sequence[str] = ()  # parts of what must be said about the reading


def archive(files: dict[str, str]) -> bytes:
    """A zip archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name, text in files.items():
            target.writestr(name, text)
    return packed.getvalue()


def docx(*paragraphs: str) -> bytes:
    """A document of Word; a paragraph may be XML of its own."""
    parts = [
        text if text.startswith("<w:") else f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>" for text in paragraphs
    ]
    body = f'<w:document xmlns:w="{WORD}"><w:body>{"".join(parts)}</w:body></w:document>'
    return archive({"[Content_Types].xml": "<Types/>", "word/document.xml": body})


def xlsx(*sheets: Sequence[Sequence[Any]], merged: str = "") -> bytes:
    """A spreadsheet; cells are strings, numbers, booleans or None."""
    files = {"[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>'}
    names, links = [], []
    for number, rows in enumerate(sheets, 1):
        lines = []
        for row, cells in enumerate(rows, 1):
            made = []
            for column, cell in enumerate(cells):
                at = f"{chr(65 + column)}{row}"
                if isinstance(cell, bool):
                    made.append(f'<c r="{at}" t="b"><v>{int(cell)}</v></c>')
                elif isinstance(cell, str):
                    made.append(f'<c r="{at}" t="inlineStr"><is><t>{escape(cell)}</t></is></c>')
                elif cell is not None:
                    made.append(f'<c r="{at}"><v>{cell}</v></c>')
            lines.append(f'<row r="{row}">{"".join(made)}</row>')
        joined = f'<mergeCells count="1"><mergeCell ref="{merged}"/></mergeCells>' if merged else ""
        data = f"<sheetData>{''.join(lines)}</sheetData>{joined}"
        files[f"xl/worksheets/sheet{number}.xml"] = f'<worksheet xmlns="{SHEET}">{data}</worksheet>'
        names.append(f'<sheet name="Sheet{number}" sheetId="{number}" r:id="r{number}"/>')
        links.append(
            f'<Relationship Id="r{number}" Type="{RELATION}/worksheet" Target="worksheets/sheet{number}.xml"/>'
        )
    listed = "".join(names)
    files["xl/workbook.xml"] = f'<workbook xmlns="{SHEET}" xmlns:r="{RELATION}"><sheets>{listed}</sheets></workbook>'
    files["xl/_rels/workbook.xml.rels"] = (
        f'<Relationships xmlns="{PACKAGE}/relationships">{"".join(links)}</Relationships>'
    )
    files["_rels/.rels"] = (
        f'<Relationships xmlns="{PACKAGE}/relationships">'
        f'<Relationship Id="a" Type="{RELATION}/officeDocument" Target="xl/workbook.xml"/></Relationships>'
    )
    return archive(files)


def pdf(*lines: str) -> bytes:
    """A PDF of one page with these lines, or with a drawn line if there are none."""
    shown = " ".join(f"({line}) Tj 0 -14 Td" for line in lines)
    stream = f"BT /F 12 Tf 72 720 Td {shown} ET" if lines else "0 0 m 10 10 l S"
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        f"/Resources << /Font << /F {font} >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
    ]
    made, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(made))
        made += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 5\n0000000000 65535 f \n{table}trailer\n<< /Size 5 /Root 1 0 R >>\nstartxref\n{len(made)}\n%%EOF"
    return made + end.encode()


def table(rows: str, encoding: str = "utf-8") -> bytes:
    return f"text,labels\n{rows}".encode(encoding)


TAGS = 'a,"tea, red"\nb,red\nc,"red, tea"\n'
SPLIT = [["tea", "red"], ["red"], ["red", "tea"]]
COLUMNS: dict[str, Any] = {"text": ["Title", "Body"], "labels": "Tags"}
BODY = ["Refund\nPaid twice.", "Fax\nIt is old."]
HEAD, ONE, TWO = ["Title", "Body", "Tags"], ["Refund", "Paid twice.", "a;b"], ["Fax", "It is old.", "a"]
PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256))
OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
SECRET = "PK\x03\x04 and no more"

TABLES = [
    Case("plain.csv", table("a,x|y\nb,\n"), ["a", "b"], [["x", "y"], []]),
    Case("mark.csv", b"\xef\xbb\xbf" + table("a,x\n"), ["a"], [["x"]]),
    Case("semicolons.csv", b"text;labels\na, b;x|y\n", ["a, b"], [["x", "y"]], notes=["separated by semicolons"]),
    Case("tabs.csv", b"text\tlabels\na, b\tx; y\n", ["a, b"], [["x", "y"]], notes=["separated by tabs"]),
    Case("bars.csv", b"text|labels\na|x; y\n", ["a"], [["x", "y"]], notes=["separated by |"]),
    Case("sep.csv", b"sep=;\r\ntext;labels\r\na;x\r\n", ["a"], [["x"]], notes=["separated by semicolons"]),
    Case("quoted_header.csv", b'"text";"labels";"a,b,c"\na;x;1\n', ["a"], [["x"]]),
    Case("latin.csv", table("café,x\ndéjà,naïve\n", "cp1252"), ["café", "déjà"], [["x"], ["naïve"]], notes=["1252"]),
    Case("quotes.csv", table("“Ok” – it’s €5,x\n", "cp1252"), ["“Ok” – it’s €5"], [["x"]], notes=["Windows-1252"]),
    Case("late.csv", table("a,x\n" * 3 + "größer,y\n", "cp1252"), ["a"] * 3 + ["größer"], [["x"]] * 3 + [["y"]]),
    Case("wide.csv", table("čeština,x\n", "utf-16"), ["čeština"], [["x"]]),
    Case("wide_little.csv", table("čeština,x\n", "utf-16-le"), ["čeština"], [["x"]]),
    Case("wide_big.tsv", "text\tlabels\nčeština\tx\n".encode("utf-16-be"), ["čeština"], [["x"]]),
    Case("wider.csv", table("a,x\n", "utf-32"), ["a"], [["x"]]),
    Case("cut.csv", table("čeština,x\n", "utf-16")[:-1], sentence=r"cut\.csv: the text is not utf-16 near byte"),
    Case(
        "polish.csv", table("słowo ważne żółw,x\n", "cp1250"), sentence=r"polish\.csv:2: the line is neither UTF-8 nor"
    ),
    Case("named.csv", table("słowo,x\n", "cp1250"), ["słowo"], [["x"]], options={"encoding": "cp1250"}),
    Case("unnamed.csv", table("a,x\n"), options={"encoding": "klingon"}, sentence="`encoding` must be a name such as"),
    Case("russian.csv", table("привет мир,x\n", "cp1251"), sentence=r"russian\.csv:2: the line is neither UTF-8 nor"),
    Case("chinese.csv", table("你好世界,x\n", "gbk"), sentence=r"chinese\.csv:2: the line is neither UTF-8 nor"),
    Case("mac.csv", table("café déjà,x\n", "mac_roman"), sentence=r"mac\.csv:2: the line is neither UTF-8 nor"),
    Case("mixed.csv", table("é,x\n") + "é,x\n".encode("cp1252"), sentence=r"mixed\.csv:3: byte 1 of the line is not"),
    Case(
        "mixed_back.csv", table("é a,x\n", "cp1252") + "é,x\n".encode(), sentence=r"mixed_back\.csv:3: the line is nei"
    ),
    Case("commas.csv", table(TAGS), ["a", "b", "c"], SPLIT, notes=["labels are separated by | or ; or ,"]),
    Case("lines.csv", table('a,"tea\nred"\nb,"red\ntea"\n'), ["a", "b"], [["tea", "red"], ["red", "tea"]]),
    Case(
        "places.csv",
        table('a,"London, Ontario"\nb,"Paris, Ontario"\n'),
        ["a", "b"],
        [["London, Ontario"], ["Paris, Ontario"]],
    ),
    Case("given.csv", table('a,"x/y"\nb,z\n'), ["a", "b"], [["x", "y"], ["z"]], options={"tag_separator": "/"}),
    Case("lists.csv", table('a,"[""x, y"", ""z""]"\n'), ["a"], [["x, y", "z"]]),
    Case("twice.csv", table("a,x|x\n"), sentence=r"twice\.csv:2: label 'x' is given twice\.$"),
    Case("short.csv", table("a\n"), sentence=r"short\.csv:2: there are 1 cells, but 2 columns; quote cells"),
    Case("long.csv", table("a, b,x\n"), sentence=r"long\.csv:2: there are 3 cells, but 2 columns; quote cells"),
    Case("open.csv", table('"a,x\n'), sentence=r"open\.csv:2: this is not CSV \(unexpected end of data\)\.$"),
    Case("stray.csv", table('"a" b,x\n'), sentence=r"stray\.csv:2: this is not CSV \(',' expected after"),
    Case("empty.csv", b"", sentence=r"empty\.csv: the file is empty\.$"),
    Case("other.csv", b"Body,Tags\na,x\n", sentence=r"other\.csv:1: there is no column 'text' among Body, Tags; name"),
    Case("same.csv", b"text,text\na,b\n", sentence=r"same\.csv:1: there are 2 columns 'text'\.$"),
    Case(
        "two.csv",
        b"Title,Body,Tags\nRefund,Paid twice.,a;b\nFax,It is old.,a\n",
        BODY,
        [["a", "b"], ["a"]],
        options=COLUMNS,
    ),
    Case("holes.csv", b"Title,Body,Tags\n,Paid twice.,a\n", ["Paid twice."], [["a"]], options=COLUMNS),
    Case("packed.csv.gz", b"\x1f\x8b\x08\0cut", sentence=r"packed\.csv\.gz: the gzip data (ends too early|is damaged)"),
    Case("string.jsonl", b'{"text": "a", "labels": "x|y"}\n', ["a"], [["x", "y"]]),
    Case("list.jsonl", b'{"text": "a", "labels": ["x|y"]}\n', ["a"], [["x|y"]]),
    Case("list.ndjson", b'{"text": "a", "labels": ["x, y"]}\n', ["a"], [["x", "y"]], options={"tag_separator": ","}),
    Case("number.jsonl", b'{"text": "a", "labels": 5}\n', sentence=r"number\.jsonl:1: 'labels' must be a list; got 5"),
    Case("array.jsonl", b'[{"text": "a"}]', sentence=r"array\.jsonl:1: JSONL has one object per line"),
    Case(
        "titles.jsonl",
        json.dumps(dict(zip(HEAD, [*ONE[:2], ["a"]], strict=True))).encode(),
        BODY[:1],
        [["a"]],
        options=COLUMNS,
    ),
    Case("book.xlsx", xlsx([HEAD, ONE, TWO]), BODY, [["a", "b"], ["a"]], options=COLUMNS),
    Case(
        "heading.xlsx", xlsx([["Report"], [], HEAD, ONE]), BODY[:1], [["a", "b"]], options=COLUMNS, notes=["in row 3"]
    ),
    Case("numbers.xlsx", xlsx([HEAD, [7.0, 2.5, True]]), ["7\n2.5"], [["TRUE"]], options=COLUMNS),
    Case("merged.xlsx", xlsx([HEAD, ONE, [*TWO[:2], None]], merged="C2:C3"), BODY, [["a", "b"]] * 2, options=COLUMNS),
    Case("gaps.xlsx", xlsx([HEAD, [], ONE, [None], TWO]), BODY, [["a", "b"], ["a"]], options=COLUMNS),
    Case(
        "sheets.xlsx",
        xlsx([HEAD, TWO], [HEAD, ONE]),
        BODY[1:],
        [["a"]],
        options=COLUMNS,
        notes=["sheet 'Sheet1' is read"],
    ),
    Case("sheet.xlsx", xlsx([HEAD, TWO], [HEAD, ONE]), BODY[:1], [["a", "b"]], options={**COLUMNS, "sheet": "Sheet2"}),
    Case(
        "nosheet.xlsx",
        xlsx([HEAD]),
        options={"sheet": "S"},
        sentence=r"nosheet\.xlsx: there is no sheet 'S' among Sheet1",
    ),
    Case("none.xlsx", xlsx([]), sentence=r"none\.xlsx: the spreadsheet is empty\.$"),
    Case("noheader.xlsx", xlsx([["a", "b"]]), sentence=r"noheader\.xlsx:1: there is no column 'text' among a, b; name"),
    Case("damaged.xlsx", SECRET.encode(), sentence=r"damaged\.xlsx: the file is damaged: its zip archive cannot be"),
    Case("text.xlsx", table("a,x\n"), sentence=r"text\.xlsx: this spreadsheet cannot be read \("),
    Case(
        "locked.xlsx", OLD_OFFICE, sentence=r"locked\.xlsx: this spreadsheet cannot be read \(.*has a password, save it"
    ),
    Case("cut.xlsx", xlsx([HEAD, ONE])[:-40], sentence=r"cut\.xlsx: the file is damaged: its zip archive cannot be"),
    Case("picture.csv", PICTURE, sentence=r"picture\.csv: this is a picture and not text; give the file the ending"),
    Case("picture.jsonl", PICTURE, sentence=r"picture\.jsonl: this is a picture and not text"),
    Case("printed.csv", pdf("Refund"), sentence=r"printed\.csv: this is a PDF and not text"),
    Case("book.csv", xlsx([HEAD, ONE]), sentence=r"book\.csv: this is a zip archive, such as a file of Excel or Word,"),
    Case("office.csv", OLD_OFFICE, sentence=r"office\.csv: this is a file of an old office program and not text"),
    Case("zero.csv", table("a,x\nb\0,y\n"), ["a", "b\0"], [["x"], ["y"]]),
    Case("zeros.csv", bytes(100), sentence=r"zeros\.csv: this is not text: its first line has a byte of zero"),
    Case("old_mac.csv", b'text,labels\ra,x\r"b, c",y\r', ["a", "b, c"], [["x"], ["y"]]),
    Case("windows.csv", b"text,labels\r\na,x\r\nb,y\r\n", ["a", "b"], [["x"], ["y"]]),
    Case("both_ends.csv", b"text,labels\r\na,x\nb,y\r\n", ["a", "b"], [["x"], ["y"]]),
    Case("blank.csv", b"\n \n\n", sentence=r"blank\.csv: the file is empty\.$"),
    Case("above.csv", b"\n\ntext;labels\na, b;x\n\n", ["a, b"], [["x"]]),
    Case("late_quote.csv", table('a,x\n"b,y\nc,z\n'), sentence=r"late_quote\.csv:3: this is not CSV \(unexpected end"),
    Case("two_separators.csv", b"text;labels\na;x\nb,y\n", sentence=r"two_separators\.csv:3: there are 1 cells, but 2"),
    Case(
        "twice_labels.csv",
        b"text,labels,labels\na,x,y\n",
        sentence=r"twice_labels\.csv:1: there are 2 columns 'labels'",
    ),
    Case(
        "capitals.csv", b"Text,Labels\na,x\n", sentence=r"capitals\.csv:1: there is no column 'text' among Text, Labels"
    ),
    Case("spaces.csv", b"text , labels\n a, x | y \n", [" a"], [["x", "y"]]),
    Case("long_cell.csv", table(f"{'word ' * 50_000},x\n"), ["word " * 50_000], [["x"]]),
    Case("formula.csv", table("=1+1,x\n"), ["=1+1"], [["x"]]),
    Case("inches.csv", table('a 5" disk,x\n'), ['a 5" disk'], [["x"]]),
    Case(
        "japanese.csv", table("テスト文書,x\n", "shift_jis"), sentence=r"japanese\.csv:2: the line is neither UTF-8 nor"
    ),
    Case(
        "broken.jsonl",
        b'{"text": "a", "labels": ["x"]}\n{"text": "b", "labels": ["y"\n{"text": "c", "labels": ["z"]}\n',
        sentence=r"broken\.jsonl:2: this is not JSON",
    ),
    Case("mark.jsonl", b'\xef\xbb\xbf{"text": "a", "labels": ["x"]}\n', ["a"], [["x"]]),
    Case("wide.jsonl", '{"text": "č", "labels": ["x"]}\n'.encode("utf-16"), ["č"], [["x"]]),
    Case(
        "latin.jsonl", '{"text": "é"}\n'.encode("cp1252"), sentence=r"latin\.jsonl:1: byte 11 of the line is not UTF-8"
    ),
    Case(
        "null.jsonl", b'{"text": null, "labels": ["x"]}\n', sentence=r"null\.jsonl:1: 'text' must be a string; got null"
    ),
    Case(
        "key_twice.jsonl", b'{"text": "a", "text": "b"}\n', sentence=r"key_twice\.jsonl:1: 'text' is given twice in one"
    ),
    Case("half.jsonl", b'{"text": "\\ud800"}\n', sentence=r"half\.jsonl:1: a \\u escape is half of a surrogate pair"),
    Case("numbers.parquet", b"PAR1 and no more", sentence=r"numbers\.parquet: this is not a readable Parquet file"),
    Case(
        "cut.csv.gz", gzip.compress(table("a,x\n" * 999))[:-9], sentence=r"cut\.csv\.gz: the gzip data ends too early"
    ),
]

MAIL = "Subject: {}\nFrom: a@example.org\nContent-Type: {}\nContent-Transfer-Encoding: 8bit\n\n{}"
PLAIN = "text/plain; charset=utf-8"
TWO_PARTS = (
    'Subject: Both\nContent-Type: multipart/mixed; boundary="b"\n\n--b\nContent-Type: text/plain\n\nSee the file.\n'
    "--b\nContent-Type: application/pdf\nContent-Disposition: attachment; filename=f.pdf\n\n%PDF\n--b--\n"
)
INNER = "<w:p><w:r><w:t>Box</w:t></w:r></w:p>"
BOX = f"<w:p><w:r><w:t>Total</w:t><w:tab/><w:t>5</w:t></w:r><w:r><w:pict>{INNER}</w:pict></w:r></w:p>"
GONE = "<w:p><w:r><w:t>Kept</w:t><w:delText>Gone</w:delText><w:instrText>FIELD</w:instrText></w:r></w:p>"

DOCUMENTS = [
    Case("a.txt", b"Rain.\nMore rain.\n", ["Rain.\nMore rain."]),
    Case("latin.txt", "Größe".encode("cp1252"), ["Größe"], notes=["Windows-1252"]),
    Case("wide.txt", "Größe".encode("utf-16"), ["Größe"]),
    Case("greek.txt", "καλημέρα κόσμε".encode("cp1253"), sentence=r"greek\.txt:1: the line is neither UTF-8 nor"),
    Case("binary.txt", b"\x89PNG\r\n\0\0", sentence=r"binary\.txt: this is not text; documents are PDF, DOCX, HTML"),
    Case("b.md", b"# Refund\n\nPaid *twice*.\n", ["# Refund\n\nPaid *twice*."]),
    Case("c.html", b"<title>Refund</title><nav>Menu</nav><p>Paid <b>twice</b>.<p>Bye", ["Refund\nPaid twice.\nBye"]),
    Case("head.html", b"<html><head><style>p{}</style><p>Paid", ["Paid"]),
    Case("charset.html", '<meta charset="windows-1251"><p>привет мир'.encode("cp1251"), ["привет мир"]),
    Case("wrong_charset.html", '<meta charset="utf-8"><p>Größe'.encode("cp1252"), ["Größe"]),
    Case("script.html", b"<script>alert(1)</script>", sentence=r"script\.html: this page has no text\.$"),
    Case("page.txt", b"<!DOCTYPE html><p>Paid", ["Paid"]),
    Case("d.eml", MAIL.format("=?utf-8?q?Caf=C3=A9?=", PLAIN, "It is\nclosed.").encode(), ["Café\nIt is\nclosed."]),
    Case("page.eml", MAIL.format("Hi", "text/html", "<p>It is<p>closed.").encode(), ["Hi\nIt is\nclosed."]),
    Case("latin.eml", MAIL.format("Hi", "text/plain", "Größe").encode("cp1252"), ["Hi\nGröße"]),
    Case("both.eml", TWO_PARTS.encode(), ["Both\nSee the file."], notes=["attachments are not read: f.pdf"]),
    Case("none.eml", b"just words", sentence=r"none\.eml: this is not an e-mail: it has no headers\.$"),
    Case("e.docx", docx("Refund", "Paid & twice."), ["Refund\nPaid & twice."]),
    Case("box.docx", docx(BOX), ["Total 5\nBox"]),
    Case("changes.docx", docx(GONE), ["Kept"]),
    Case("empty.docx", docx(), sentence=r"empty\.docx: this DOCX file has no text\.$"),
    Case("zip.docx", archive({"a.txt": "a"}), sentence=r"zip\.docx: this is a zip archive, but not a DOCX file"),
    Case("broken.docx", archive({"word/document.xml": "<w:p>"}), sentence=r"broken\.docx: this DOCX file is damaged"),
    Case("words.docx", b"just words", sentence=r"words\.docx: this is not a DOCX file, although it is called so\.$"),
    Case("f.pdf", pdf("Refund", "Paid for the infor-", "mation."), ["Refund\nPaid for the information."]),
    Case("pdf.txt", pdf("Refund"), ["Refund"]),
    Case("scan.pdf", pdf(), sentence=r"scan\.pdf: this PDF has no text, only pictures"),
    Case("cut.pdf", pdf("Refund")[:60], sentence=r"cut\.pdf: this PDF cannot be read \("),
    Case("words.pdf", b"just words", sentence=r"words\.pdf: this is not a PDF file, although it is called so\.$"),
    Case("nothing.pdf", b"", sentence=r"nothing\.pdf: the file is empty\.$"),
    Case("nothing.docx", b"", sentence=r"nothing\.docx: the file is empty\.$"),
    Case("nothing.html", b"", sentence=r"nothing\.html: this page has no text\.$"),
    Case("body.html", b"<html><body></body></html>", sentence=r"body\.html: this page has no text\.$"),
    Case("title.html", b"<html><head><title>Refund</title></head></html>", ["Refund"]),
    Case("subject.eml", b"Subject: Refund\n\n", ["Refund"]),
    Case(
        "sender.eml", b"From: a@example.org\n\n", sentence=r"sender\.eml: this e-mail has neither a subject nor a text"
    ),
    Case(
        "cut.docx", docx("Refund")[:-30], sentence=r"cut\.docx: the file is damaged: its zip archive cannot be opened"
    ),
    Case(
        "late_zero.txt", b"tea " * 20_000 + b"\n\0", sentence=r"late_zero\.txt: this is not text: it has a byte of zero"
    ),
    Case("picture.txt", PICTURE, sentence=r"picture\.txt: this is not text; documents are PDF, DOCX, HTML"),
    Case("old.doc", b"\xd0\xcf\x11\xe0\0\0", sentence=r"old\.doc: \.doc files cannot be read; save it as DOCX"),
    Case("rich.txt", b"{\\rtf1 Refund}", sentence=r"rich\.txt: files of this kind cannot be read; save it as DOCX"),
]
