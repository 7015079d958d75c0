"""`python -m mooring` is the `mooring` command."""

from mooring.apps.cli.app import app

app()
