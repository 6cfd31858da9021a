"""`python -m kafkalake` is the command `kafkalake`."""

from kafkalake.cli.main import main

if __name__ == "__main__":
    main()
