"""The commands, run in this process as somebody would type them."""

import json
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner

from mooring.cli.app import app
from mooring.cli.execution import Output

CALM = {"COLUMNS": "200", "TERM": "dumb"}


def run(*words: Any, code: int | None = 0, what: str = "", place: Path | None = None, **environment: str) -> Any:
    """Run a command in a folder, which must end with this exit code (None: any), its error being about `what`."""
    failing = patch.object(Output, "fail", autospec=True, side_effect=Output.fail)
    with chdir(place or Path.cwd()), failing as fail:
        result = CliRunner().invoke(app, [str(word) for word in words], env=CALM | environment)
    assert code in (None, result.exit_code), (
        f"mooring {' '.join(map(str, words))}\n{result.output}\n{result.exception!r}"
    )
    assert "Traceback" not in result.output
    subjects = [getattr(call.args[1], "what", "") for call in fail.call_args_list]
    assert not what or what in subjects or f"mooring: {what}" in flat(result.stderr), result.stderr
    return result


def record_of(*words: Any, code: int = 0, **environment: str) -> dict[str, Any]:
    """What a command prints for programs."""
    return dict(json.loads(run(*words, "--format", "json", code=code, **environment).stdout))


def flat(text: str) -> str:
    """Text without the line breaks that the terminal's width put there."""
    return " ".join(text.split())
