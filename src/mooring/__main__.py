"""`python -m mooring` is the `mooring` command."""

from mooring.cli.app import app

app()
