"""`python -m dittomq.cli`."""

from dittomq.cli.app import main

main()
