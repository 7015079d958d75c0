"""A participant's steps, and those that every role has: join, unlock, enrol, report."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mooring.atomic_io import require_writable, write_atomically
from mooring.desk.jobs import Outcome
from mooring.desk.steps import Desk, Field, Step, Values, spell_command, split_columns
from mooring.desk.workspace import ANCHOR_FILES, CARD_FILES, TABLE_FILES
from mooring.errors import InputError
from mooring.protocol.designer.revision import enrol_cards
from mooring.protocol.exchange import exchange_of, required_result_file
from mooring.protocol.messages.model import MODEL_FILE
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import issue_card, read_check
from mooring.protocol.participant.role import Participant, check_table_fit
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.answers import LIST_FILE
from mooring.serialization import count_noun, drop_empty_columns
from mooring.typing import Progress

_FLOORS = {
    "anchor_noise": "Refuse studies with less anchor noise than",
    "data_noise": "Refuse studies with less private-data noise than",
    "most_epsilon": "Refuse secure sums beyond this epsilon",
}
_IGNORE = Field("ignore", "Columns to leave out", is_optional=True, hint="names between commas")
_PROBLEMS = ("column", "got", "what to do", "expected", "cells", "first rows")


def joining(desk: Desk) -> Step:
    """Make a vault and a card."""
    numbers = [Field(name, label, "number", is_optional=True, is_rare=True) for name, label in _FLOORS.items()]
    fields = (
        Field("name", "Your name in the study", hint="lower-case letters, digits, hyphens: st-mary"),
        Field("role", "You are", "choice", ("participant", "analyst")),
        Field("passphrase", "Passphrase of the vault", "password", is_optional=True, hint="none: it is not encrypted"),
        Field("again", "The passphrase again", "password", is_optional=True),
        *numbers,
        Field("without_noise", "Accept methods without any noise", "tick", is_optional=True, is_rare=True),
    )
    told = "Makes keys and secrets in the folder's vault, which stays with you, and a public card for the roster."
    return Step("join", "Join", told, partial(_join, desk), fields)


def _join(desk: Desk, values: Values, progress: Progress) -> Outcome:
    if values["passphrase"] != values["again"]:
        raise InputError("passphrase", expected="the same twice", got="two", cure="Type it again.")
    floors: dict[str, float | bool] = {name: float(values[name]) for name in _FLOORS if values[name]}
    floors |= {"without_noise": True} if values["without_noise"] else {}
    name, is_analyst = values["name"], values["role"] == "analyst"
    vault, _ = Vault.open_or_create(desk.workspace.vault, passphrase=values["passphrase"] or None, floors=floors)
    desk.opened = vault
    card = desk.workspace.root / f"{name}.card.toml"
    issue_card(vault, card, name=name, is_analyst=is_analyst)
    lines = (
        "The vault is in the folder 'vault': keep it, back it up, show it to nobody.",
        f"Send the card {card.name} to whoever keeps the study's file; it holds no secret.",
    )
    return Outcome(lines, command=spell_command("join", "--name", name, *(["--analyst"] if is_analyst else [])))


def unlocking(desk: Desk) -> Step:
    """Open a vault that has a passphrase."""
    fields = (Field("passphrase", "Passphrase of the vault", "password"),)
    return Step("unlock", "Unlock the vault", "It is encrypted.", partial(_unlock, desk), fields)


def _unlock(desk: Desk, values: Values, progress: Progress) -> Outcome:
    desk.opened = Vault.open(desk.workspace.vault, passphrase=values["passphrase"])
    return Outcome(("The vault is open for as long as the desk runs.",))


def enrolling(desk: Desk) -> Step:
    """Enter cards in a draft's roster."""
    cards = tuple(desk.workspace.list_files(CARD_FILES))
    told = "For whoever keeps the study's file: enters members' cards in the roster. The fingerprint changes with each."
    fields = (Field("cards", "Cards", "many", cards),)
    return Step("enrol", "Enrol members", told, partial(_enrol, desk), fields)


def _enrol(desk: Desk, values: Values, progress: Progress) -> Outcome:
    names = values["cards"].split("\n")
    study = enrol_cards(desk.workspace.study, [desk.workspace.root / name for name in names])
    told = f"Send study.toml to everybody, and compare this by telephone: {study.fingerprint}"
    if not study.is_complete:
        told = "Not complete yet: a study has two participants or more and an analyst."
    else:
        told = ". ".join([told, *exchange_of(study).list_warnings(study)])
    return Outcome((told,), command=spell_command("study", "enrol", *names))


def reporting(desk: Desk, study: Study, records: Path) -> Step:
    """Turn the records of a role into a page.

    Parameters
    ----------
    desk, study
        Whose page.
    records : Path
        Folder of the role's records.
    """
    explanation = "One page to read, print and sign: who took part, what joining gives, what it gives away."
    run, page = partial(_report, desk, study, records), desk.workspace.root / "report.html"
    return Step("report", "Make the report", explanation, run, _ask_overwriting(page), is_done=page.exists())


def _report(desk: Desk, study: Study, folder: Path, values: Values, progress: Progress) -> Outcome:
    from mooring.report import collect_records, render_report, summarise

    _require_absent(output := desk.workspace.root / "report.html", values)
    records = collect_records(folder)
    if not records:
        raise InputError("records", expected="at least one", got="none", cure="Take another step first.")
    summary = summarise(study, records)
    page = render_report(summary).encode()
    write_atomically(output, page, mode=0o600, what="the page")
    command = spell_command("report", folder.relative_to(desk.workspace.root).parts[0], *_forced(values))
    return Outcome((summary["decision"]["words"],), page=output.name, command=command)


def list_participant_steps(desk: Desk, study: Study, name: str) -> list[Step]:
    """The steps of somebody in a complete roster, in the order in which a study takes them.

    Parameters
    ----------
    desk, study
    name : str
        The participant's in the roster.
    """
    person = Participant(study, desk.vault)
    records = desk.vault.study_path(study.folder_name)
    done = {one: (records / f"{one}.json").exists() for one in ("check", "share", "predict")}
    tables = tuple(desk.workspace.list_files(TABLE_FILES))
    table = Field("data", "Your table", "choice", tables)
    is_rotated = study.sums is None
    fit = fitting(desk, study)
    steps = [replace(fit, is_done=fit.is_done or done["check"] or done["share"])]
    if is_rotated and study.dealing_member.name == name:
        steps.append(_dealing(desk, person))
    look = "Your own rows attack each other at the study's noise, with every attack that mooring knows. Nothing leaves."
    if not is_rotated:
        look = "What attackers would get of your sums, with the study's noise and without any. Nothing leaves."
    check, fields = partial(_check, desk, person), (table, _IGNORE)
    steps.append(Step("check", "See what would be given away", look, check, fields, is_done=done["check"]))
    steps.append(_sharing(desk, person, table, is_done=done["share"]))
    if not is_rotated and name in study.sum_scheme.combiners:
        steps += _combining(desk, person)
    predicts = Step(
        "predict",
        "Predict",
        "Scores new rows with the joint model, on this machine; with labels, it measures how well.",
        partial(_predict, desk, person),
        (
            Field("new", "New rows", "choice", tables),
            Field("beside", "Rows that you shared", "choice", tables, is_optional=True, hint="to compare"),
            Field("importance", "Measure what the model looks at", "tick", is_optional=True, is_rare=True),
            *_ask_overwriting(desk.workspace.root / "predictions.csv"),
            _IGNORE,
        ),
        _wait_for(desk.workspace.result / required_result_file(study), "your result", MODEL_FILE),
        done["predict"],
    )
    steps += [] if study.label.kind == "none" else [predicts]
    return [*steps, reporting(desk, study, records)]


def fitting(desk: Desk, study: Study) -> Step:
    """See whether a table fits; needs neither a vault nor a roster."""
    tables = tuple(desk.workspace.list_files(TABLE_FILES))
    told = "Reads your table and lists everything that does not fit the study. Nothing is kept, and nothing leaves."
    fields = (Field("data", "Your table", "choice", tables), _IGNORE)
    return Step("fit", "Fit your table", told, partial(_fit, desk, study), fields, is_done=desk.fitted == study.schema)


def _fit(desk: Desk, study: Study, values: Values, progress: Progress) -> Outcome:
    name, ignore = values["data"], split_columns(values["ignore"])
    fit, warnings = check_table_fit(study, desk.workspace.root / name, ignore=ignore, progress=progress)
    desk.fitted = study.schema if fit.fits else None
    told = f"{count_noun(fit.n_rows, 'row fits', 'rows fit')} the study {study.name!r}."
    if not fit.fits:
        told = f"The table does not fit the study {study.name!r}. Row 1 is the first beneath the header."
    stopped = (f"Not read to its end: {fit.stopped}",) if fit.stopped else ()
    rows = tuple(
        (one.column, one.got, one.suggestion, one.expected, one.n_cells or "", ", ".join(map(str, one.first_rows)))
        for one in fit.problems
    )
    head, *rest = drop_empty_columns([_PROBLEMS, *rows]) if rows else [()]
    command = spell_command("check", name, "--fit-only", *_ignored(ignore))
    return Outcome((told, *stopped, *warnings), head, tuple(rest), command=command, is_whole=fit.fits and not warnings)


def _dealing(desk: Desk, person: Participant) -> Step:
    path = desk.workspace.root / f"{person.study.name}.anchor"

    def run(values: Values, progress: Progress) -> Outcome:
        return Outcome(person.take("deal", output=path).lines, command=spell_command("deal"))

    told = "You are the dealer: make the secret anchor, sealed to every participant. Dealing again gives the same."
    return Step("deal", "Deal the anchor", told, run, is_done=path.exists())


def _check(desk: Desk, person: Participant, values: Values, progress: Progress) -> Outcome:
    from mooring.report import render_check

    name, ignore = values["data"], split_columns(values["ignore"])
    page, command = desk.workspace.root / "check.html", spell_command("check", name, *_ignored(ignore))
    require_writable(page, what="the page")
    found = person.check(desk.workspace.root / name, ignore=ignore, progress=progress)
    record = person.keep_record("check", found.as_dict(), command=command)
    write_atomically(page, render_check(person.study, record).encode(), mode=0o600, what="the page")
    is_whole = not found.exceeded and found.decision["answer"] != "do not share"
    return Outcome((found.decision["words"], "Why is on the page."), page=page.name, command=command, is_whole=is_whole)


def _sharing(desk: Desk, person: Participant, table: Field, *, is_done: bool) -> Step:
    study, fields = person.study, [table, _IGNORE]
    if study.sums is None:
        fields.append(Field("anchor", "Anchor", "choice", tuple(desk.workspace.list_files(ANCHOR_FILES))))
        if study.label.kind != "none":
            consent = f"Yes, the analyst may see the column {study.label.column!r} of every row as it is"
            fields.append(Field("labels", consent, "tick", is_optional=True))
    if study.upload_limits:
        despite, hint = "Share although the check does not show that limits are kept", "who decides, why: NAME: REASON"
        fields.append(Field("override", despite, is_optional=True, is_rare=True, hint=hint))

    def run(values: Values, progress: Progress) -> Outcome:
        data, path = desk.workspace.root / values["data"], desk.workspace.root / f"{person.member.name}.bundle"
        ignore, override = split_columns(values["ignore"]), values.get("override", "")
        anchor, labels = values.get("anchor"), bool(values.get("labels"))
        words = ["share", values["data"], *_ignored(ignore), *(["--anchor", anchor] if anchor else [])]
        words += [*(["--labels"] if labels else []), *(["--override", override] if override else [])]
        dealt, command = desk.workspace.root / anchor if anchor else None, spell_command(*words)
        consent: dict[str, Any] = {"labels": labels, "override": override, "ignore": ignore, "command": command}
        shared = person.share(data, output=path, anchor=dealt, **consent, progress=progress)
        what, to_whom = exchange_of(study).describe_share(study, shared)
        again = " again, the same bytes as before" if shared.reissued else ""
        lines = (f"Wrote {path.name}{again}: {what}. {to_whom}", f"Its SHA-256 is {shared.bundle_digest}.")
        is_checked = read_check(person.vault, study).get("rows_digest") == shared.rows_digest
        return Outcome((*lines, person.recall_check()), command=command, is_whole=is_checked)

    explanation = "Writes the one bundle that you upload; the same rows give the same bytes again. Nothing is sent."
    advice = ""
    if (checked := read_check(person.vault, study)).get("decision"):
        asked = checked["command"] or "from Python"
        advice = f"The last check, of the table as it was then ({asked}): {checked['decision']}"
    return Step("share", "Share", explanation, run, tuple(fields), is_done=is_done, advice=advice)


def _combining(desk: Desk, person: Participant) -> list[Step]:
    place, name = desk.workspace, person.member.name
    listed, confirmation, share = (place.root / one for one in (LIST_FILE, f"{name}.confirmation", f"{name}.share"))

    def confirm(values: Values, progress: Progress) -> Outcome:
        found = person.take("confirm", output=confirmation, bundles=place.inbox)
        return Outcome(found.lines, command=spell_command("combine", "--bundles", "inbox"), is_whole=found.is_whole)

    def combine(values: Values, progress: Progress) -> Outcome:
        found = person.take("combine", output=share, progress=progress, bundles=place.inbox, list=listed)
        return Outcome(found.lines, command=spell_command("combine", "--bundles", "inbox", "--list", LIST_FILE))

    bundles = "" if place.list_files((".bundle",), folder=place.inbox) else "Waits for everybody's bundles, in 'inbox'."
    first = "You are a combiner: tells the analyst whether everybody's shares fit, before the study is closed."
    then = "Your share of the total, for one list, once. Your combining key is destroyed then."
    waits = bundles or _wait_for(listed, "the analyst's list of contributions")
    return [
        Step("confirm", "Confirm bundles", first, confirm, (), bundles, confirmation.exists()),
        Step("combine", "Combine", then, combine, (), waits, share.exists()),
    ]


def _predict(desk: Desk, person: Participant, values: Values, progress: Progress) -> Outcome:
    from mooring.protocol.participant.prediction import Scoring

    root, ignore, output = desk.workspace.root, split_columns(values["ignore"]), desk.workspace.root / "predictions.csv"
    beside = root / values["beside"] if values["beside"] else None
    data, scoring = root / values["new"], Scoring(importance=bool(values["importance"]))
    require_writable(output, what="the predictions", inputs=(data, beside))
    _require_absent(output, values)
    found = person.predict(
        data, result=desk.workspace.result, own_rows=beside, scoring=scoring, ignore=ignore, progress=progress
    )
    found.write(output)
    words = ["predict", data.name, "--result", "result", *(["--beside", beside.name] if beside else [])]
    words += [*(["--importance"] if scoring.importance else []), *_forced(values), *_ignored(ignore)]
    person.keep_record("predict", found.as_dict(), command=spell_command(*words))
    lines = [f"Wrote {count_noun(found.values.size, 'prediction')} to {output.name}.", *found.state_findings()]
    return Outcome((*lines, "All that was measured is on the report."), command=spell_command(*words))


def _wait_for(path: Path, what: str, *beside: str) -> str:
    return "" if path.is_file() else f"Waits for {what}: put {' and '.join((path.name, *beside))} in below."


def _ask_overwriting(path: Path) -> tuple[Field, ...]:
    return (Field("force", f"Overwrite {path.name}", "tick", is_optional=True),) if path.exists() else ()


def _require_absent(path: Path, values: Values) -> None:
    """Refuse to overwrite a file, as the commands do, unless that is ticked."""
    if path.exists() and not values.get("force"):
        cure = f"Tick 'Overwrite {path.name}', or keep the one that is there: pages open under 'Files'."
        raise InputError(path.name, expected="not there yet", got="one that is", cure=cure)


def _forced(values: Values) -> list[str]:
    return ["--force"] if values.get("force") else []


def _ignored(columns: tuple[str, ...]) -> list[str]:
    return [word for name in columns for word in ("--ignore", name)]
