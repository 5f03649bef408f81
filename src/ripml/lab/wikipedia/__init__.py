"""The Wikipedia entity data set, built from a dump: articles labelled with the articles that they link to.

`build` makes it; `dump` reads the XML, `markup` the wikitext of a page, `titles` resolves titles and redirects.
"""

from ripml.lab.wikipedia.builder import Summary, build
from ripml.lab.wikipedia.markup import DISAMBIGUATION

__all__ = ["DISAMBIGUATION", "Summary", "build"]
