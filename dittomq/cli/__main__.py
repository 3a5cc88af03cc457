"""The command `dittomq`, also as `python -m dittomq.cli`."""

import sys

from dittomq.cli.interrupted import INTERRUPTED


def main() -> None:
    """Run the command line of this process and exit; Ctrl-C ends it without a word, also while it is still being loaded."""
    try:
        from dittomq.cli.app import main as run_and_exit

        run_and_exit()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
