"""`mooring desk`: the same steps as a page in the browser."""

from __future__ import annotations

import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from mooring.cli.execution import end_on_sigterm, run_command
from mooring.errors import MissingExtraError


def desk(
    folder: Annotated[Path, typer.Argument(help="Your folder: tables, vault, what others sent you.")] = Path("."),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 for any that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
) -> None:
    """Take part, or analyse, on a page in your browser instead of with commands: the same steps, in a folder of yours.

    The page is served on 127.0.0.1, to the browser that opens the printed address; each address works once. It sends
    nothing anywhere, and reads and writes in the folder alone, except that files which you put in by the page pass through
    the system's temporary folder. A folder that is not there is made. Ctrl-C ends it. Needs mooring's extra 'desk'.

    Example: mooring desk st-mary
    """
    with run_command("text") as console, end_on_sigterm():
        if any(find_spec(name) is None for name in ("starlette", "uvicorn", "python_multipart")):
            raise MissingExtraError(needed_for="The desk", package="starlette", extra="desk")
        from mooring.desk.app import serve_desk

        announced: list[str] = []

        def announce(address: str) -> None:
            told = "Opened. For another browser" if announced else "Open"
            console.print(f"{told}: {address}", markup=False, highlight=False, soft_wrap=True)
            if browser and not announced:
                webbrowser.open(address)
            announced.append(address)

        serve_desk(folder, port=port, announce=announce)
