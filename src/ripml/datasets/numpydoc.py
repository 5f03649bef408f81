"""The built-in data set `numpydoc`: the docstrings of NumPy, SciPy and scikit-learn, labelled with what they refer to.

A document is the docstring of a public function or class, without its signature and its "See Also" section; its labels
are the functions and classes that this section names. Nothing is downloaded or cached: the docstrings are those of the
installed packages, so sizes differ a little from version to version.

The rules:

- An object that is public in several places has one name, that of the first place in `_MODULES`.
- A link is looked up as written, then in the object's module and its parents. Links to the object itself and links that
  cannot be resolved (methods, prose, other packages) are left out; so are objects without links.
- Every label of any document is a column. One that occurs only in test documents cannot be predicted.
- A fifth of the documents, chosen by a hash of their names, is the test part; tf-idf is fitted on the others only.
- The text begins with the object's name, also split into words: the author of a docstring knows it.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from ripml.datasets.dataset import Dataset, join
from ripml.datasets.documents import Row, blocks
from ripml.text import TfIdf

__all__ = ["build_numpydoc"]

# In the order in which they are searched; "." is the package itself.
_PACKAGES: Final = {
    "numpy": """
        . linalg fft random polynomial polynomial.polynomial polynomial.chebyshev polynomial.hermite
        polynomial.hermite_e polynomial.laguerre polynomial.legendre polynomial.polyutils strings char
        lib.stride_tricks lib.scimath ma testing
    """,
    "scipy": """
        cluster.vq cluster.hierarchy constants datasets differentiate fft integrate interpolate io linalg ndimage
        optimize signal signal.windows sparse sparse.linalg sparse.csgraph spatial spatial.distance
        spatial.transform special stats stats.contingency stats.mstats stats.qmc stats.sampling
    """,
    "sklearn": """
        . base calibration cluster compose covariance cross_decomposition datasets decomposition
        discriminant_analysis dummy ensemble feature_extraction feature_extraction.image feature_extraction.text
        feature_selection gaussian_process gaussian_process.kernels impute inspection isotonic kernel_approximation
        kernel_ridge linear_model manifold metrics metrics.cluster metrics.pairwise mixture model_selection
        multiclass multioutput naive_bayes neighbors neural_network pipeline preprocessing random_projection
        semi_supervised svm tree utils
    """,
}
_MODULES: Final = [f"{package}.{name}".rstrip(".") for package, names in _PACKAGES.items() for name in names.split()]

# Public only in processes that have imported sklearn.experimental: the data set must not depend on that.
_EXPERIMENTAL: Final = {"HalvingGridSearchCV", "HalvingRandomSearchCV", "IterativeImputer"}

_HEADING: Final = re.compile(r"^(\S[^\n]*)\n-{3,}[ \t]*$", re.MULTILINE)
_SIGNATURES: Final = re.compile(r"\A(?:[\w.]+\([^\n]*(?:\n[ \t]+[^\n]*)*\n\s*)+")
_SEE_ALSO_PARAGRAPH: Final = re.compile(r"^[ \t]*(?:\.\.[ ]*)?see[ ]?also\b.*?(?:\n\s*\n|\Z)", re.I | re.M | re.S)
_ROLE: Final = re.compile(r":[\w:]+:`~?([\w.]+)`")
_NAMES: Final = re.compile(r"[`~]*[A-Za-z_][\w.]*`*(?:\s*,\s*[`~]*[A-Za-z_][\w.]*`*)*,?\s*(?=:|$)")
_PRINTED_SET: Final = re.compile(r"\{('\w+'(?:, '\w+')+)\}")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
_WORD_BREAK: Final = re.compile(r"[._]|(?<=[a-z0-9])(?=[A-Z])")


def build_numpydoc() -> tuple[Dataset, Dataset]:
    """Return the training and the test part; takes a few seconds, mostly to import SciPy and scikit-learn."""
    docs, aliases = _documents()
    texts: dict[str, str] = {}
    links: dict[str, list[str]] = {}
    for name, doc in docs.items():
        text, section = _split_see_also(doc)
        found = {_resolve(written, name, aliases) for written in _link_names(section)}
        targets = sorted(link for link in found if link is not None and link != name)
        if targets:
            links[name] = targets
            texts[name] = f"{name} {_WORD_BREAK.sub(' ', name)}\n\n{text}"
    label_names = sorted({label for targets in links.values() for label in targets})

    def part(split: str, in_test: bool) -> Dataset:
        names = [name for name in sorted(links) if _in_test(name) == in_test]
        rows = (Row((name, None), texts[name], links[name], name) for name in names)
        return join(blocks(f"numpydoc {split}", rows, label_names))

    train, test = part("train", False), part("test", True)
    tfidf = TfIdf().fit(train.texts or [])
    train, test = (
        replace(data, X=tfidf.transform(data.texts or []), feature_names=tfidf.feature_names) for data in (train, test)
    )
    return train, test


def _in_test(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % 5 == 0


def _documents() -> tuple[dict[str, str], dict[str, str]]:
    """Return {name: docstring} of the public objects, and {every public path: name}."""
    docs: dict[str, str] = {}
    aliases: dict[str, str] = {}
    name_of: dict[int, str] = {}  # by id(): modules keep the objects alive, so no id is used twice
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some attributes warn that they are deprecated
        for path, value in _public_objects():
            doc = getattr(value, "__doc__", None)
            if not isinstance(doc, str) or not callable(value):
                continue
            name = name_of.setdefault(id(value), path)
            aliases[path] = name
            if name == path:
                docs[name] = _reproducible(inspect.cleandoc(doc))
    return docs, aliases


def _reproducible(doc: str) -> str:
    """Return a docstring that is the same in every process: some contain a printed set or a memory address."""
    doc = _PRINTED_SET.sub(lambda match: "{" + ", ".join(sorted(match[1].split(", "))) + "}", doc)
    return _ADDRESS.sub("", doc)


def _public_objects() -> Iterator[tuple[str, Any]]:
    for module_name in _MODULES:
        try:
            module = importlib.import_module(module_name)
        except ImportError:  # not in this version
            continue
        names = getattr(module, "__all__", None)
        for name in sorted(set(names or dir(module)) - _EXPERIMENTAL):
            try:
                value = getattr(module, name)
            except (AttributeError, ImportError):  # declared, but absent or not enabled
                continue
            # Without __all__ the attributes of a module include its imports.
            is_public = names or getattr(value, "__module__", None) == module_name
            if is_public and not name.startswith("_") and not inspect.ismodule(value):
                yield f"{module_name}.{name}", value


def _split_see_also(doc: str) -> tuple[str, str]:
    """Return the docstring without its signature and all "see also" parts, and the body of that section."""
    doc = _SIGNATURES.sub("", doc)
    headings = list(_HEADING.finditer(doc))
    kept, section, at = [], [], 0
    for i, heading in enumerate(headings):
        if heading[1].strip().lower() == "see also":
            end = headings[i + 1].start() if i + 1 < len(headings) else len(doc)
            kept.append(doc[at : heading.start()])
            section.append(doc[heading.end() : end])
            at = end
    kept.append(doc[at:])
    return _SEE_ALSO_PARAGRAPH.sub("\n", "".join(kept)).strip(), "\n".join(section)


def _link_names(section: str) -> Iterator[str]:
    """Yield the names before the colon of each entry; indented lines are descriptions."""
    for line in inspect.cleandoc(section).split("\n"):
        match = _NAMES.match(_ROLE.sub(r"\1", line))
        if match is not None:
            yield from re.findall(r"[A-Za-z_][\w.]*", match[0])


def _resolve(written: str, name: str, aliases: dict[str, str]) -> str | None:
    """Return the name of the object that the document `name` refers to as `written`."""
    written = re.sub(r"^np\.", "numpy.", written.rstrip("."))
    scopes = [""]
    while name := name.rpartition(".")[0]:
        scopes.append(f"{name}.")
    return next((aliases[scope + written] for scope in scopes if scope + written in aliases), None)
