"""Runs the command `kafkalake` as `python -m kafkalake`."""

from kafkalake.cli.main import main

if __name__ == "__main__":
    main()
