"""``python -m gemmule`` is the gemmule command; ``python -m gemmule --help`` says what it can do."""

import signal
import sys

from . import _native


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the command, which does not come back to Python before
    return int(_native.command(["gemmule", *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
