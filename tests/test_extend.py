"""The page 'Extend mooring': every snippet runs as it stands, and is short; the contract suites notice what is broken."""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

import mooring
from mooring.attacks import ATTACKS, Attack, DoesNotApply, MembershipScores, SumView, reconstruct_rows, register_attack
from mooring.errors import InputError
from mooring.testing import check_attack, check_method
from tests.raising import raising

PAGE = Path(__file__).parents[1] / "docs" / "extend.md"
SNIPPETS = re.findall(r"^## (.+?)$.*?^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
FIRST = re.search(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)


def test_snippets_have_at_most_fifteen_lines() -> None:
    assert max(len([line for line in code.splitlines() if line.strip()]) for _, code in SNIPPETS) <= 15


@pytest.mark.parametrize(("title", "code"), SNIPPETS, ids=[title for title, _ in SNIPPETS])
def test_a_snippet_runs_as_it_stands(title: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert FIRST is not None
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(FIRST[1], "extend.md", "exec"), names)
    exec(compile(code, title, "exec"), names)
    assert capsys.readouterr().out.strip()


def test_the_built_page_shows_the_snippets_that_run(tmp_path: Path) -> None:
    """The page alone is built, as `make site` builds it, and its code is read back from the HTML."""
    override = {"nav": [PAGE.name], "plugins": [], "hooks": [], "exclude_docs": f"*\n!{PAGE.name}", "strict": False}
    logging.getLogger("mkdocs").setLevel(logging.CRITICAL)  # links to pages that are not built
    build(
        load_config(str(PAGE.parents[1] / "mkdocs.yml"), site_dir=str(tmp_path), use_directory_urls=False, **override)
    )
    page = PAGE.with_suffix(".html").name
    blocks = re.findall(r"<pre><span></span><code>(.*?)</code>", (tmp_path / page).read_text(encoding="utf-8"), re.S)
    shown = [unescape(re.sub(r"<[^>]+>", "", block)) for block in blocks]
    assert FIRST is not None
    assert shown == [FIRST[1], *(code for _, code in SNIPPETS)]


def test_a_new_mechanism_is_attacked_measured_and_written(tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "snippet"}
    assert FIRST is not None
    exec(FIRST[1], names)
    exec(dict(SNIPPETS)["Put a new mechanism into an audit"], names)
    settings = mooring.AuditSettings(learner="linear", folder=tmp_path)
    result = mooring.run_audit(names["rows"], names["labels"], points=[names["Laplace"](0.5)], settings=settings)
    (point,) = result.points
    _, error = point.worst() or ("", None)
    spread = np.std(np.concatenate(names["rows"]))
    assert error is not None
    assert (
        0.3 < error.value < 2 * 0.5 * 2**0.5 / spread
    )  # noise of variance 2b² at the most, less what denoisers take off
    assert point.deployed is not None
    assert mooring.AuditResult.from_json(result.to_json()).points[0].point == names["Laplace"](0.5)
    from mooring.report.audit_page import render_audit

    assert "laplace" in render_audit(result, command="")


def test_every_attack_of_mooring_keeps_the_public_contract(name: str) -> None:
    if name not in (
        "lattice",
        "column-space",
        "class-of-one",
    ):  # which need columns on a grid, many features, rare labels
        check_attack(name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", ATTACKS)


@pytest.mark.parametrize("method", mooring.METHODS)
def test_every_method_of_mooring_keeps_the_public_contract(method: str) -> None:
    check_method(method)


def zeros(view: Any, *, rng: np.random.Generator) -> Any:
    """zeros"""
    return reconstruct_rows(view, np.zeros_like(view.target_upload.representation))


def changes_its_view(view: Any, *, rng: np.random.Generator) -> Any:
    """x"""
    view.target_upload.representation[0, 0] += 1
    return zeros(view, rng=rng)


def depends_on_the_time(view: Any, *, rng: np.random.Generator, seen: list[int] = []) -> Any:  # noqa: B006
    """x"""
    seen.append(1)
    return reconstruct_rows(view, np.full_like(view.target_upload.representation, len(seen)))


def loses_a_row(view: Any, *, rng: np.random.Generator) -> Any:
    """x"""
    is_near = zeros(view, rng=rng)
    return replace(is_near, rows=is_near.rows[1:])


def is_not_finite(view: Any, *, rng: np.random.Generator) -> Any:
    """x"""
    is_near = zeros(view, rng=rng)
    return replace(is_near, rows=is_near.rows + np.nan)


def never_applies(view: Any, *, rng: np.random.Generator) -> Any:
    """x"""
    raise DoesNotApply("It never does.")


def gives_no_sentence(view: Any, *, rng: np.random.Generator) -> Any:
    """x"""
    raise DoesNotApply("no")


def returns_an_array(view: Any, *, rng: np.random.Generator) -> Any:
    """x"""
    return view.target_upload.representation


@pytest.mark.parametrize(
    "attack",
    [
        changes_its_view,
        depends_on_the_time,
        loses_a_row,
        is_not_finite,
        never_applies,
        gives_no_sentence,
        returns_an_array,
        Attack("few", "x", lambda view, *, rng: MembershipScores(np.zeros(3)), view=SumView),
    ],
)
def test_a_broken_attack_is_noticed(attack: Callable[..., Any]) -> None:
    with pytest.raises(AssertionError):
        check_attack(attack)


def test_a_wrong_scale_sign_or_transposed_map_in_the_kernel_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = "mooring.mechanisms.rotation.kernel"
    add, apply = mooring.mechanisms.rotation.kernel.add_noise, mooring.mechanisms.rotation.kernel.map_rows  # type: ignore[attr-defined]
    broken: dict[str, tuple[str, Callable[..., Any]]] = {
        "noise off by the square root of two": (
            "add_noise",
            lambda array, scale, *given, **options: add(array, scale * 2**0.5, *given, **options),
        ),
        "wrong sign of the rows, not of the anchor": (
            "map_rows",
            lambda *given, **options: apply(*given, **options) * (-1 if "precision" in options else 1),
        ),
    }
    for name, change in broken.values():
        with monkeypatch.context() as patch:
            patch.setattr(f"{kernel}.{name}", change)
            with pytest.raises(AssertionError):
                check_method("aa-i-gdp-both-noise")


def test_the_registry_is_open_and_a_name_is_taken_once(request: pytest.FixtureRequest) -> None:
    attack = register_attack(Attack("zeros", "zeros", zeros))
    request.addfinalizer(lambda: mooring.attacks.ATTACKS.pop("zeros"))
    with raising(InputError, "attack", got="'zeros'"):
        register_attack(attack)
    assert mooring.attacks.resolve_attack("zeros") is attack
    with raising(InputError, "attack", got="int"):
        mooring.attacks.resolve_attack(3)  # type: ignore[arg-type]
