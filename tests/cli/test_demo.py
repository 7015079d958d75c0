"""`mooring demo`, as a newcomer would run it: the real commands, in folders and processes of their own."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

from mooring import AuditResult, __version__
from mooring.protocol.messages.study import Study
from tests.commands import flat, run

N_PARTICIPANTS = 3


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What one run printed, and the folder it wrote; fewer participants than a user has, to be quick."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "report"
    return flat(run("demo", "--output", folder, "--participants", N_PARTICIPANTS).output), folder


def test_the_run_tells_what_each_had_alone_what_all_have_together_and_what_is_recovered(
    output: tuple[str, Path],
) -> None:
    printed, _ = output
    alone, together = (
        float(re.search(rf"{words} [^0-9%]*([0-9.]+)%", printed)[1])  # type: ignore[index]
        for words in ("alone", "together")
    )
    assert 70 < alone < 95
    assert 0 < together <= 100  # of three participants the noise leaves nothing to learn from
    assert re.search(r"pooled raw [^0-9%]*(0\.9|1\.0)[0-9]*", printed)  # the AUC of all rows together
    assert re.search(
        rf"Joining (pays|does not pay|is not shown to pay): [+−][0-9.]+ points .* of {N_PARTICIPANTS} participants",
        printed,
    )
    assert all(name in printed for name in ("Sums, ε = 2", "Sums without noise", "AA-I-GDP"))  # what is compared
    assert "report.html" in printed


def test_a_second_study_of_four_hospitals_ends_in_a_table_and_a_regression_from_one_upload_each(
    output: tuple[str, Path],
) -> None:
    printed, folder = output
    assert re.search(r"bmi .*[0-9]", printed)
    assert "progression" in printed
    assert all((folder / f"{name}.html").is_file() for name in ("describe", "regress"))
    assert len(list((folder / "hospitals" / "analyst" / "inbox").glob("*.bundle"))) == 4


def test_everybody_has_a_folder_and_the_analyst_has_nobodys_rows_or_keys(output: tuple[str, Path]) -> None:
    _, folder = output
    clinics = sorted(folder.glob("clinic-*"))
    assert len(clinics) == N_PARTICIPANTS
    secrets = []
    for clinic in clinics:
        identity = json.loads((clinic / "vault" / "identity.json").read_text(encoding="utf-8"))
        secrets += [identity[name].encode() for name in ("signing", "sealing", "master", "ledger")]
        secrets += (clinic / "rows.csv").read_bytes().splitlines()[1:]
    travelled = [path for part in ("analyst", "post") for path in (folder / part).rglob("*") if path.is_file()]
    assert len(travelled) > 4 * N_PARTICIPANTS
    for path in travelled:
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret in content], path.name


def test_the_page_is_about_this_study(output: tuple[str, Path]) -> None:
    _, folder = output
    study = Study.read(folder / "post" / "study.toml")
    page = unescape((folder / "report.html").read_text(encoding="utf-8"))
    assert study.fingerprint in page
    for member in study.participants:
        assert member.name in page
    audit = AuditResult.from_json((folder / "auditor" / "audit-report" / "audit.json").read_bytes())
    assert [point.point.promise for point in audit.totals] == [(2.0, 1e-5), None]
    assert all(f"{point.deployed}" in page for point in audit.totals)
    assert audit.row_points[0].title in page
    assert "(2, 1e-05)-differential privacy" in page


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("a file")
    for taken in (tmp_path, tmp_path / "mine.txt"):
        run("demo", "--output", taken, code=2, what="output")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert (tmp_path / "mine.txt").read_text() == "a file"


def test_version() -> None:
    assert run("version").output.strip() == __version__
