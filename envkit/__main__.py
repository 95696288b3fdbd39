"""`python -m envkit`: the commands, where `envkit` is not on the path."""

import sys

from envkit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
