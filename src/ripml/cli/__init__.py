"""The command line: a command parses its arguments, calls the library and prints the answer.

The exit code is 0, 2 after an error (one sentence on standard error, with a traceback only if --debug is given) or 130
after Ctrl+C. Heavy packages are imported by the command that needs them, so that `ripml --help` is quick.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from typing import Any, NoReturn

from ripml.base.errors import RipmlError
from ripml.cli.output import Interrupted, printable

__all__ = ["main"]

_FAILED = 2
_INTERRUPTED = 130  # 128 + SIGINT, which shells expect after Ctrl+C


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command line and exit."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in arguments
    sys.exit(_run([word for word in arguments if word != "--debug"], debug))


def _run(arguments: list[str], debug: bool) -> int:
    from ripml.cli.app import app  # now, so that stages registered until now are options

    if arguments in ([], ["datasets"], ["keys"], ["labels"]):
        arguments = [*arguments, "--help"]
    for stream in (sys.stdout, sys.stderr):  # a character that the terminal cannot show is printed as its code point
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code: Any = app(args=arguments, prog_name="ripml", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        # The reader closed the pipe, as `head` does. Typer turns a BrokenPipeError inside a command into SystemExit.
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:  # outside of typer, which returns the exit code for those that it catches
        code = _INTERRUPTED
    except Exception as error:
        if debug:
            traceback.print_exc()
        _print_error(_message(error, debug))
        return _INTERRUPTED if isinstance(error, Interrupted) else _FAILED
    if code == _INTERRUPTED:
        _print_error("stopped.")
    return code if isinstance(code, int) else 0


def _message(error: Exception, debug: bool) -> str:
    if hasattr(error, "format_message"):  # typer's: the command line cannot be parsed
        return f"{error.format_message()} (ripml --help)"
    if isinstance(error, Interrupted):
        return str(error)
    if isinstance(error, RipmlError):
        from ripml.cli.options import use_option_names

        return use_option_names(str(error))
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'input or output'}: {error.strerror}."
    message = str(error).strip().split("\n")[0] or "no message"
    return f"{type(error).__name__}: {message}{'' if debug else '; run again with --debug for the traceback'}"


def _print_error(sentence: str) -> None:
    print(f"ripml: {printable(' '.join(sentence.split()))}", file=sys.stderr)
