"""`Estimator`: scikit-learn's rules for parameters and clones, without importing scikit-learn.

To import scikit-learn takes a second or two and 130 MB, since it imports `scipy.stats`, and pandas where that is
installed; a saved model answers without any of it. Scikit-learn's tools ask for methods, not for a base class: `clone`,
pipelines, searches over parameters and `check_estimator` accept these estimators.
"""

from __future__ import annotations

import copy
import inspect
import reprlib
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["Estimator", "check_fitted"]

Self = TypeVar("Self", bound="Estimator")

_brief = reprlib.Repr()
_brief.maxlist = _brief.maxtuple = _brief.maxset = _brief.maxfrozenset = _brief.maxdict = 30
_brief.maxstring = _brief.maxother = 200


class Estimator:
    """An object whose parameters are the arguments of its constructor, each kept under its name.

    >>> class Shrinkage(Estimator):
    ...     def __init__(self, amount: float = 0.5, inner: Any = None) -> None:
    ...         self.amount, self.inner = amount, inner
    >>> nested = Shrinkage(inner=Shrinkage(0.1))
    >>> nested.set_params(inner__amount=0.2)
    Shrinkage(inner=Shrinkage(amount=0.2))
    >>> nested.get_params()["inner__amount"]
    0.2
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """What a fit adds."""

        def __setattr__(self, name: str, value: Any) -> None: ...

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """The names of the parameters, sorted."""
        return sorted(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; `deep`, also those of parameters that are estimators, as "name__parameter"."""
        found: dict[str, Any] = {}
        for name in self._get_param_names():
            value = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                found |= {f"{name}__{inner}": of_inner for inner, of_inner in value.get_params().items()}
            found[name] = value
        return found

    def set_params(self: Self, **parameters: Any) -> Self:
        """Set parameters, named as `get_params` names them, and return the estimator."""
        known, nested = self._get_param_names(), dict[str, dict[str, Any]]()
        for key, value in parameters.items():
            name, is_nested, inner = key.partition("__")
            if name not in known:
                raise ValueError(f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {known}.")
            if is_nested:
                nested.setdefault(name, {})[inner] = value
            else:
                setattr(self, name, value)
        for name, of_inner in nested.items():
            inner = getattr(self, name)
            if not hasattr(inner, "set_params"):
                raise ValueError(
                    f"Invalid parameter '{name}__{next(iter(of_inner))}' for estimator {self}: `{name}` is {inner!r}, "
                    "which has no parameters; give an estimator."
                )
            inner.set_params(**of_inner)
        return self

    def cloned(self: Self) -> Self:
        """Another estimator with copies of the parameters, as `sklearn.base.clone` makes it."""
        return type(self)(**{name: _copied(value) for name, value in self.get_params(deep=False).items()})

    def __sklearn_clone__(self: Self) -> Self:
        return self.cloned()

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator().__sklearn_tags__()

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))

    def __setstate__(self, pickled: dict[str, Any]) -> None:
        for name, value in pickled.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        """The parameters that differ from the defaults."""
        defaults = {name: known.default for name, known in inspect.signature(type(self)).parameters.items()}
        given = self.get_params(deep=False).items()
        changed = (f"{name}={_brief.repr(value)}" for name, value in given if repr(value) != repr(defaults[name]))
        return f"{type(self).__name__}({', '.join(changed)})"

    def _repr_html_(self) -> str:
        """As notebooks show it."""
        from sklearn.utils import estimator_html_repr

        return str(estimator_html_repr(self))


def _copied(value: Any) -> Any:
    if isinstance(value, Estimator):
        return value.cloned()
    if hasattr(value, "get_params") and not isinstance(value, type):  # an estimator of another library
        from sklearn.base import clone

        return clone(value)
    return copy.deepcopy(value)


def check_fitted(estimator: Any, attribute: str) -> None:
    """Raise scikit-learn's `NotFittedError` if an estimator does not have an attribute that its fit gives it."""
    if hasattr(estimator, attribute):
        return
    from sklearn.exceptions import NotFittedError

    name = type(estimator).__name__
    raise NotFittedError(f"This {name} instance is not fitted yet. Call 'fit' before using this estimator.")
