"""`python -m ripml` is the shell command `ripml`."""

from ripml.cli import main

if __name__ == "__main__":
    main()
