"""Other package indexes describe mooring as its own metadata does."""

import re
import tomllib
from typing import Any

import pytest
import yaml

from mooring.version import __version__
from tests.installation.scripts import ROOT


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    metadata: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return metadata


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "installation" / "recipe.yaml").read_text(encoding="utf-8"))
    return loaded


def test_the_conda_recipe_needs_what_the_wheel_needs(project: dict[str, Any], recipe: dict[str, Any]) -> None:
    python, *packages = recipe["requirements"]["run"]
    assert [package.replace(" ", "") for package in packages] == project["dependencies"]
    least = recipe["context"]["python_min"]
    assert python.replace("${{ python_min }}", least).replace(" ", "") == "python" + project["requires-python"]
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["build"]["python"]["entry_points"] == [
        f"{name} = {target}" for name, target in project["scripts"].items()
    ]


def test_every_file_that_states_a_version_states_the_package_s(recipe: dict[str, Any]) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    description = (ROOT / "clients" / "r" / "DESCRIPTION").read_text(encoding="utf-8")
    stated = re.search(r"^Version: (.+)$", description, flags=re.M)
    assert stated is not None
    assert [recipe["context"]["version"], citation["version"], stated[1]] == [__version__] * 3


def test_every_version_of_python_that_is_named_is_tried_by_the_workflow(project: dict[str, Any]) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    named = [name.rsplit(" ", 1)[1] for name in project["classifiers"] if re.search(r"Python :: 3\.\d+$", name)]
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"
