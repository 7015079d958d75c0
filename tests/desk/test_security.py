"""Who is refused at a desk, and that nothing outside its folder is read or written."""

from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_IMODE
from threading import Event
from typing import Any

import pytest

from mooring.desk.app import make_desk
from mooring.desk.files import find_page, receive
from mooring.errors import InputError, RefusedError
from mooring.protocol.step import BUNDLES
from mooring.protocol.workspace import Outcome, Workspace
from mooring.report.frame import render_page
from mooring.report.step_pages import StepPages
from tests import commands
from tests.desk.serving import Running, serving
from tests.raising import raising


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("desk")
    (place / "check.html").write_text("<p>page</p>")
    (place / "own.csv").write_text("age")
    (place.parent / "outside.csv").write_text("secret")
    return place


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Running]:
    with serving(folder) as desk:
        yield desk


REFUSED: dict[str, tuple[int, str, str, dict[str, str | None]]] = {
    "another host, by DNS rebinding": (421, "GET", "/", {"host": "evil.example:{port}"}),
    "the host at another port": (421, "GET", "/", {"host": "127.0.0.1:1"}),
    "no cookie": (403, "GET", "/", {"cookie": None}),
    "another cookie": (403, "GET", "/", {"cookie": "mooring-desk=x"}),
    "a link on another site": (403, "GET", "/", {"sec_fetch_site": "cross-site"}),
    "a page of another port": (403, "GET", "/page/check.html", {"sec_fetch_site": "same-site"}),
    "a form of another site": (403, "POST", "/step/join", {"origin": "https://evil.example"}),
    "a form of another port": (403, "POST", "/upload", {"origin": "http://127.0.0.1:1"}),
    "a form of a sandboxed page": (403, "POST", "/step/join", {"origin": "null"}),
    "a form without origin": (403, "POST", "/step/join", {"origin": None, "sec_fetch_site": None}),
    "a form without size": (411, "POST", "/upload", {"content_length": None, "transfer_encoding": "chunked"}),
    "a form that is too large": (413, "POST", "/step/join", {"content_length": str(2**16 + 1)}),
    "a file that is too large": (413, "POST", "/upload", {"content_length": str(2**30 + 1)}),
    "another method": (405, "DELETE", "/", {}),
    "a used or wrong address": (403, "GET", "/open?token=x", {}),
    "no address": (403, "GET", "/open", {"cookie": None}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_requests_that_are_not_the_desks_own_are_refused(case: str, running: Running) -> None:
    status, method, path, changed = REFUSED[case]
    port = running.application.session.port
    answer = running.ask(method, path, **{name: value and value.format(port=port) for name, value in changed.items()})
    assert answer.status == status
    assert "refused" in answer.text
    assert running.application.jobs.last is None


def test_an_address_opens_a_desk_once_and_the_cookie_keeps_to_it(folder: Path) -> None:
    announced: list[str] = []
    listener, application = make_desk(folder, announce=announced.append)
    listener.close()
    session = application.session
    first = session.token
    assert session.redeem(first)
    assert not session.redeem(first)
    assert announced == [session.address]
    assert first not in session.address
    assert session.cookie.endswith(f"Path={session.path}/; HttpOnly; SameSite=Strict")
    secrets = (session.key, session.token, session.form_token, session.path)
    assert not any(secret in repr(session) + repr(application) for secret in secrets)


def test_answers_carry_policies_and_no_secret_but_the_forms_token(running: Running) -> None:
    page = running.ask("GET", "/")
    assert page.status == 200
    assert page.headers["content-security-policy"].startswith(
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    )
    assert page.headers["cache-control"] == "no-store"
    session = running.application.session
    several = f'x="; mooring-desk={session.key}; mooring-desk=y'  # as other servers on the machine may have set them
    assert running.ask("GET", "/", cookie=several).status == 200
    assert session.key not in page.text
    assert session.token not in page.text
    made = running.ask("GET", "/page/check.html")
    assert made.text == "<p>page</p>"
    assert made.headers["content-security-policy"].startswith("sandbox; default-src 'none'; ")
    assert running.ask("GET", "/", root="").status == 404


@pytest.mark.parametrize("name", ["own.csv", "..%2foutside.csv", "../outside.csv", "vault", "report.html", "x.html"])
def test_nothing_but_the_pages_of_steps_is_served(name: str, running: Running) -> None:
    assert running.ask("GET", f"/page/{name}").status == 404


def test_forms_without_the_desks_token_do_nothing(running: Running, folder: Path) -> None:
    running.take("join", form_token="x", name="north", role="participant")
    assert "<dt>cure</dt>" in running.ask("GET", "/").text
    assert not (folder / "vault").exists()
    running.upload({"rows.csv": b"age\n"}, token="x")
    assert not (folder / "rows.csv").exists()


def test_a_step_takes_files_of_its_list_alone(running: Running, folder: Path) -> None:
    (folder / "study.toml").write_text("")  # of which the reader says what is wrong
    assert "study" in running.ask("GET", "/").text
    (folder / "study.toml").unlink()
    assert "<dt>cure</dt>" in running.take("fit", data="../outside.csv")
    problem = running.take("join", name="north", role="dealer")
    assert "<dt>expected</dt><dd>one of participant, helper, analyst</dd>" in problem
    assert "<dt>cure</dt>" in problem


def test_one_step_runs_at_a_time(running: Running) -> None:
    jobs, finish = running.application.jobs, Event()

    def wait(progress: object) -> Outcome:
        finish.wait(30)
        return Outcome(None, {}, ("Ended.",))

    job = jobs.start("A <b>long</b> step", wait)
    job.tell(1, 4, "halving")
    page = running.ask("GET", "/")
    assert page.headers["refresh"] == "1"
    assert "A &lt;b&gt;long&lt;/b&gt; step" in page.text
    assert '<progress value="0.25" ' in page.text
    with raising(RefusedError, "the step"):
        jobs.start("Another", wait)
    finish.set()
    assert job.thread is not None
    job.thread.join(30)
    assert "Ended." in running.ask("GET", "/").text


def test_a_page_that_says_a_step_runs_reloads_itself_though_the_step_ended_meanwhile(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = Event()

    def wait(progress: object) -> Outcome:
        finish.wait(30)
        return Outcome(None, {}, ("Ended.",))

    job = running.application.jobs.start("A step", wait)

    def render_then_end(*args: Any, **given: Any) -> str:
        page = render_page(*args, **given)
        finish.set()
        assert job.thread is not None
        job.thread.join(30)
        return page

    monkeypatch.setattr("mooring.desk.app.render_page", render_then_end)
    page = running.ask("GET", "/")
    assert 'id="running"' in page.text
    assert page.headers["refresh"] == "1"
    assert "Ended." in running.ask("GET", "/").text


NOT_TAKEN = [
    *("../x.csv", "a/b.csv", ".csv", ".hidden.csv", "page.html"),
    *("check.html", "x.py", "a\0.csv", "x" * 130 + ".csv"),
]


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_files_of_other_names_and_kinds_are_not_taken(name: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    source = tmp_path / "source"
    source.write_bytes(b"x")
    with source.open("rb") as file, pytest.raises(InputError):
        receive(Workspace.at(root, StepPages()), name, file, replace=True)
    assert list(tmp_path.rglob("*.*")) == []


@pytest.mark.posix
def test_files_go_where_steps_look_and_replace_nothing_unasked(running: Running, folder: Path) -> None:
    names = {
        "a (1).bundle": "inbox/a (1).bundle",
        "model.safetensors": "result/model.safetensors",
        "heart.anchor": "heart.anchor",
        "north.receipt": "inbox/north.receipt",
    }
    names |= {f"{k}.card{n}.toml": f"{k}.card.toml" for k, n in enumerate((" (1)", "(12)", "-2", ""))}
    shown = running.upload(dict.fromkeys(names, b"1"))
    assert all(f"Took {place}." in shown and (folder / place).read_bytes() == b"1" for place in names.values())
    assert "new, or the same" in running.upload({"heart.anchor": b"2"})
    running.upload({"heart.anchor": b"1"})
    assert (folder / "heart.anchor").read_bytes() == b"1"
    running.upload({"heart.anchor": b"2"}, replace=True)
    assert (folder / "heart.anchor").read_bytes() == b"2"
    assert (folder / "heart.anchor").stat().st_mode & 0o077 == 0


@pytest.mark.posix
def test_links_are_neither_listed_nor_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "vault").mkdir(parents=True)
    outside.mkdir()
    (outside / "rows.csv").write_text("secret")
    (root / "rows.csv").symlink_to(outside / "rows.csv")
    (root / "report.html").symlink_to(outside / "rows.csv")
    (root / "inbox").symlink_to(outside)
    workspace = Workspace.at(root, StepPages())
    assert workspace.list_files(("",)) == []
    assert workspace.list_files(("",), folder="inbox") == []
    (outside / "north.bundle").write_text("secret")
    assert not BUNDLES.is_there(workspace)
    (outside / "north.bundle").unlink()
    assert find_page(workspace, "report.html") is None
    for name in ("rows.csv", "north.bundle"):
        with (outside / "rows.csv").open("rb") as file, raising(RefusedError, "the file"):
            receive(workspace, name, file, replace=True)
    assert [path.name for path in outside.iterdir()] == ["rows.csv"]


def test_a_passphrase_is_asked_once_and_never_shown(
    running: Running, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlock(data: bytes, passphrase: str) -> bytes:
        if passphrase != "horse":
            raise RefusedError("the vault", reason="this passphrase does not open it", cure="Try again.")
        return data[::-1]

    monkeypatch.setattr("mooring.protocol.storage.vault.lock_with_passphrase", lambda data, passphrase: data[::-1])
    monkeypatch.setattr("mooring.protocol.storage.vault.unlock_with_passphrase", unlock)  # age's take a second each
    given = {"name": "north", "role": "participant"}
    for again in ("house", ""):
        running.take("join", **given, passphrase=["horse", again])
        assert not running.application.workspace.opened
    joined = running.take("join", **given, passphrase=["horse", "horse"])
    assert "mooring join --name north --role participant --passphrase" in joined
    assert "horse" not in joined
    running.application.workspace.opened = None  # as after a restart
    page = running.ask("GET", "/").text
    assert 'action="' + running.application.session.path + '/step/unlock"' in page
    assert "north</h1>" not in page
    assert "<dt>reason</dt><dd>this passphrase does not open it</dd>" in running.take("unlock", passphrase="donkey")
    running.take("unlock", passphrase="horse")
    page = running.ask("GET", "/").text
    assert "north</h1>" in page
    assert "horse" not in page + repr(running.application)


@pytest.mark.posix
def test_a_desk_makes_its_folder_for_this_account_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    for folder in (tmp_path / "new" / "st-mary", tmp_path / "there"):
        listener, _ = make_desk(folder, announce=lambda address: None)
        listener.close()
        assert S_IMODE(folder.stat().st_mode) == 0o700


def test_the_command_opens_the_browser_once_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def serve(folder: Path, *, port: int, place: str, announce: Callable[[str], None]) -> None:
        announce("http://first")
        announce("http://second")

    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("mooring.desk.app.serve_desk", serve)
    assert "For another browser: http://second" in commands.run("desk", tmp_path).output
    assert opened == ["http://first"]
    monkeypatch.setattr("mooring.cli.desk.find_spec", lambda name: None)
    commands.run("desk", tmp_path, code=2, what="The desk")
