"""What Python says, in the words of the shell: options in place of parameters, commands in place of methods."""

from __future__ import annotations

import re

__all__ = ["in_shell_words", "option_of"]

_OPTIONS = {
    "allowed_labels", "clusters", "decoder", "dims", "documents", "ensemble", "features", "folds", "format", "gamma",
    "index", "jobs", "kernel", "learners", "memory", "metric", "min_count", "neighbors", "probe", "rate", "relevance",
    "ridge", "seed", "solver", "stop_labels", "tail", "targets", "test", "threshold", "trials",
}  # fmt: skip
_OTHERWISE = {"random_state": "--seed", "text": "--text-column", "labels": "--labels-column"}
_QUOTED = re.compile(r"`([a-z_]+)`")
_GIVEN = re.compile(r"\b([a-z_]+)=(?:'([\w-]+)'|…)")
_COMMANDS = {"Store.create makes one": "ripml train DATA FOLDER --store makes one"}


def option_of(parameter: str) -> str | None:
    """The option that a parameter of Python's has in the shell, if it has one.

    >>> option_of("n_dims"), option_of("random_state"), option_of("storage")
    ('--dims', '--seed', None)
    """
    word = parameter.removeprefix("n_")
    return _OTHERWISE.get(parameter) or (f"--{word.replace('_', '-')}" if word in _OPTIONS else None)


def in_shell_words(sentence: str) -> str:
    """A sentence of the library's, as the shell says it.

    >>> in_shell_words("`n_dims` must be 'auto' or an integer ≥ 1; got 0.")
    "--dims must be 'auto' or an integer ≥ 1; got 0."
    >>> in_shell_words("say decoder='votes', or say which it is with format=….")
    'say --decoder votes, or say which it is with --format.'
    """
    for python, shell in _COMMANDS.items():
        sentence = sentence.replace(python, shell)
    sentence = _QUOTED.sub(lambda found: option_of(found[1]) or found[0], sentence)
    return _GIVEN.sub(_option, sentence)


def _option(found: re.Match[str]) -> str:
    option = option_of(found[1])
    return found[0] if option is None else option + (f" {found[2]}" if found[2] else "")
