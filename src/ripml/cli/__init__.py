"""The shell: parse → one library call → print.

Exit code 0, or 2 with one sentence on standard error; a traceback only with --debug. Nothing heavy is imported before a
command needs it, so that `ripml --help` is quick.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from typing import Any, NoReturn

from ripml.base.errors import RipmlError
from ripml.cli.output import Stopped, printable
from ripml.cli.wording import in_shell_words

__all__ = ["main"]

_INTERRUPTED = 130  # what shells expect after Ctrl-C


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command line and exit."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in arguments
    sys.exit(_run([word for word in arguments if word != "--debug"], debug))


def _run(arguments: list[str], debug: bool) -> int:
    from ripml.cli.app import app

    if arguments in ([], ["datasets"], ["keys"], ["labels"]):
        arguments = [*arguments, "--help"]
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a letter gets its number
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code: Any = app(args=arguments, prog_name="ripml", standalone_mode=False)
        sys.stdout.flush()
        if code == _INTERRUPTED:
            return _complain("stopped.", code)
        return code if isinstance(code, int) else 0
    except (BrokenPipeError, SystemExit) as stop:
        # The reader of our output went away, as `head` does; typer makes an exit of what happens within a command.
        if not isinstance(stop, BrokenPipeError) and not isinstance(stop.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:  # before typer took over, or after
        return _complain("stopped.", _INTERRUPTED)
    except Exception as error:
        if debug:
            traceback.print_exc()
        if hasattr(error, "format_message"):  # a mistake on the command line
            return _complain(f"{error.format_message()} (ripml --help)")
        if isinstance(error, Stopped):
            return _complain(str(error), _INTERRUPTED)
        if isinstance(error, RipmlError):
            return _complain(in_shell_words(str(error)))
        if isinstance(error, OSError) and error.strerror:
            return _complain(f"{error.filename or 'input or output'}: {error.strerror}.")
        message = str(error).strip().split("\n")[0] or "no message"
        hint = "" if debug else "; run again with --debug to see where"
        return _complain(f"{type(error).__name__}: {message}{hint}")


def _complain(sentence: str, code: int = 2) -> int:
    print(f"ripml: {printable(' '.join(sentence.split()))}", file=sys.stderr)
    return code
