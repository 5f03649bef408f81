"""Turn the `>>>` examples of docstrings into code blocks; Markdown would read them as quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^([ \t]*)>>> .*(?:\n[ \t]*\S.*)*", re.MULTILINE)
_SECTION = re.compile(r"^[A-Z]\w+\n-{4,}$", re.MULTILINE)


class Doctests(griffe.Extension):
    """An extension of mkdocstrings that rewrites every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the examples, or put them into an "Examples" section where the docstring has sections."""
        if obj.docstring is None:
            return
        text = obj.docstring.value
        if not _SECTION.search(text):
            obj.docstring.value = _EXAMPLE.sub(r"\n\1```pycon\n\g<0>\n\1```", text)
        elif "Examples\n---" not in text:
            obj.docstring.value = _EXAMPLE.sub(r"Examples\n--------\n\g<0>", text, count=1)
