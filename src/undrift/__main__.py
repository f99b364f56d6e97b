"""`python -m undrift` is `undrift`."""

import sys


def main() -> None:
    """The command line; an interrupt ends it quietly, also while it is still being imported."""
    try:
        from undrift.cli import app

        app(prog_name="undrift")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
