"""`mooring demo`, as a newcomer would run it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mooring import METHODS, __version__
from mooring.apps.cli.app import app

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What one run printed, and the folder it wrote."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "report"
    result = RUNNER.invoke(app, ["demo", "--output", str(folder)])
    assert result.exit_code == 0, result.output
    return result.output, folder


def test_the_run_names_the_page_to_open_and_says_what_it_does_not_show(output: tuple[str, Path]) -> None:
    printed, folder = output
    words = " ".join(printed.split())
    assert "Open" in words
    assert "report.html" in "".join(printed.split())
    assert "not a privacy guarantee" in words
    assert (folder / "report.html").is_file()


def test_every_method_stands_beside_local_only_and_pooled_raw(output: tuple[str, Path]) -> None:
    printed, folder = output
    page = (folder / "report.html").read_text(encoding="utf-8")
    for method in METHODS.values():
        assert method.title in printed
        assert method.title in page
    for truth in ("local only", "pooled raw"):
        assert truth in printed
        assert truth in page


def test_the_page_needs_nothing_from_the_network(output: tuple[str, Path]) -> None:
    page = (output[1] / "report.html").read_text(encoding="utf-8")
    assert "src=" not in page.split("</script>")[-1]
    assert "<link" not in page
    assert "Plotly.newPlot" in page


def test_the_numbers_tell_the_story(output: tuple[str, Path]) -> None:
    """Exact alignment equals C-GDP, joining beats training alone at low noise, and does not at high noise."""
    story = json.loads((output[1] / "story.json").read_text(encoding="utf-8"))
    accuracy = {method["name"]: method["accuracy"] for method in story["methods"]}
    assert accuracy["aa-i-gdp"] == accuracy["c-gdp"]
    assert accuracy["aa-i-gdp-data-noise"] == accuracy["c-gdp-data-noise"]
    assert accuracy["aa-i-gdp-anchor-noise"] > story["local_only"] > accuracy["i-gdp"]
    assert story["noise"][0]["disagreement"] < 1e-6
    assert story["noise"][0]["certified"]
    assert not story["noise"][-1]["certified"]
    assert story["noise"][-1]["accuracy"] < story["local_only"]


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    result = RUNNER.invoke(app, ["demo", "--output", str(tmp_path / "taken")])
    assert result.exit_code == 2
    assert "cannot make the folder" in " ".join(result.output.split())
    assert (tmp_path / "taken").read_text() == "a file"


def test_help_shows_an_example() -> None:
    result = RUNNER.invoke(app, ["demo", "--help"])
    assert result.exit_code == 0
    assert "Example: mooring demo" in " ".join(result.output.split())


def test_version() -> None:
    assert RUNNER.invoke(app, ["version"]).output.strip() == __version__
