"""The built-in data set `numpydoc`: the docstrings of NumPy, SciPy and scikit-learn, labelled with what they point to.

A document is the docstring of a public function or class, without its signature and without its "See Also" section; its
labels are the functions and classes which that section names. Nothing is downloaded or cached: the docstrings are those
of the installed packages, so sizes differ a little from version to version.

What was decided:

- An object that is public in several places has one name, that of the first place in `_MODULES`.
- A link is looked up as written, then in the object's own module and its parents. Links that lead to nothing public
  here (methods, prose, other packages) and links to the object itself are left out; so are objects without links.
- Every label that any document has is a column. One that occurs only in test documents cannot be predicted.
- A fifth of the documents, chosen by a hash of their names, is the test part; tf-idf is fitted on the others alone.
- The object's own name, also in separate words, begins its text: who documents a function knows what it is called.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any, Final

from ripml.datasets.dataset import Dataset, SparseRows
from ripml.text import TfIdf

__all__ = ["build_numpydoc"]

_MODULES: Final = (
    *("numpy", "numpy.linalg", "numpy.fft", "numpy.random", "numpy.polynomial", "numpy.polynomial.polynomial"),
    *("numpy.polynomial.chebyshev", "numpy.polynomial.hermite", "numpy.polynomial.hermite_e"),
    *("numpy.polynomial.laguerre", "numpy.polynomial.legendre", "numpy.polynomial.polyutils", "numpy.strings"),
    *("numpy.char", "numpy.lib.stride_tricks", "numpy.lib.scimath", "numpy.ma", "numpy.testing"),
    *("scipy.cluster.vq", "scipy.cluster.hierarchy", "scipy.constants", "scipy.datasets", "scipy.differentiate"),
    *("scipy.fft", "scipy.integrate", "scipy.interpolate", "scipy.io", "scipy.linalg", "scipy.ndimage"),
    *("scipy.optimize", "scipy.signal", "scipy.signal.windows", "scipy.sparse", "scipy.sparse.linalg"),
    *("scipy.sparse.csgraph", "scipy.spatial", "scipy.spatial.distance", "scipy.spatial.transform", "scipy.special"),
    *("scipy.stats", "scipy.stats.contingency", "scipy.stats.mstats", "scipy.stats.qmc", "scipy.stats.sampling"),
    *("sklearn", "sklearn.base", "sklearn.calibration", "sklearn.cluster", "sklearn.compose", "sklearn.covariance"),
    *("sklearn.cross_decomposition", "sklearn.datasets", "sklearn.decomposition", "sklearn.discriminant_analysis"),
    *("sklearn.dummy", "sklearn.ensemble", "sklearn.feature_extraction", "sklearn.feature_extraction.image"),
    *("sklearn.feature_extraction.text", "sklearn.feature_selection", "sklearn.gaussian_process"),
    *("sklearn.gaussian_process.kernels", "sklearn.impute", "sklearn.inspection", "sklearn.isotonic"),
    *("sklearn.kernel_approximation", "sklearn.kernel_ridge", "sklearn.linear_model", "sklearn.manifold"),
    *("sklearn.metrics", "sklearn.metrics.cluster", "sklearn.metrics.pairwise", "sklearn.mixture"),
    *("sklearn.model_selection", "sklearn.multiclass", "sklearn.multioutput", "sklearn.naive_bayes"),
    *("sklearn.neighbors", "sklearn.neural_network", "sklearn.pipeline", "sklearn.preprocessing"),
    *("sklearn.random_projection", "sklearn.semi_supervised", "sklearn.svm", "sklearn.tree", "sklearn.utils"),
)

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
    """Return the training and the test part; takes some seconds, most of them to import SciPy and scikit-learn."""
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
    column = {label: j for j, label in enumerate(label_names)}

    names = {"train": [n for n in sorted(links) if not _in_test(n)], "test": [n for n in sorted(links) if _in_test(n)]}
    tfidf = TfIdf().fit([texts[name] for name in names["train"]])
    feature_names = tfidf.feature_names
    train, test = (
        Dataset(
            X=tfidf.transform([texts[name] for name in rows]),
            Y=_indicator([[column[label] for label in links[name]] for name in rows], len(label_names)),
            label_names=label_names,
            feature_names=feature_names,
            texts=[texts[name] for name in rows],
            ids=rows,
            name=f"numpydoc {split}",
        )
        for split, rows in names.items()
    )
    return train, test


def _in_test(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % 5 == 0


def _indicator(rows: list[list[int]], n_columns: int) -> Any:
    built = SparseRows()
    for row in rows:
        built.add(dict.fromkeys(row, 1.0))
    return built.csr(n_columns)


def _documents() -> tuple[dict[str, str], dict[str, str]]:
    """Return {name: docstring} of the public objects, and {every public path: name}."""
    docs: dict[str, str] = {}
    aliases: dict[str, str] = {}
    name_of: dict[int, str] = {}  # by id(): the objects live in their modules, so no id is used twice
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some attributes warn that they are deprecated
        for path, thing in _public_objects():
            doc = getattr(thing, "__doc__", None)
            if not isinstance(doc, str) or not callable(thing):
                continue
            name = name_of.setdefault(id(thing), path)
            aliases[path] = name
            if name == path:
                docs[name] = _reproducible(inspect.cleandoc(doc))
    return docs, aliases


def _reproducible(doc: str) -> str:
    """Return the docstring the same in every process: some have a set or an address of this process printed in them."""
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
                thing = getattr(module, name)
            except (AttributeError, ImportError):  # declared, but absent or to be enabled first
                continue
            # Without __all__ a module also shows what it imported.
            own = names or getattr(thing, "__module__", None) == module_name
            if own and not name.startswith("_") and not inspect.ismodule(thing):
                yield f"{module_name}.{name}", thing


def _split_see_also(doc: str) -> tuple[str, str]:
    """Return the docstring without signature and without whatever says "see also", and the body of that section."""
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
    """Yield the names before the colon of each entry; what is indented describes the entry above it."""
    for line in inspect.cleandoc(section).split("\n"):
        match = _NAMES.match(_ROLE.sub(r"\1", line))
        if match is not None:
            yield from re.findall(r"[A-Za-z_][\w.]*", match[0])


def _resolve(written: str, name: str, aliases: dict[str, str]) -> str | None:
    """Return the one name of what a document called `name` means by `written`."""
    written = re.sub(r"^np\.", "numpy.", written.rstrip("."))
    scopes = [""]
    while name := name.rpartition(".")[0]:
        scopes.append(f"{name}.")
    return next((aliases[scope + written] for scope in scopes if scope + written in aliases), None)
