"""`python -m mooring` is the `mooring` command."""

from mooring.cli.app import app

if __name__ == "__main__":  # processes that a command starts load this module, too
    app()
