"""What a participant's steps do: join, match, fit, check, share, predict."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mooring.protocol.workspace import Outcome, Workspace
from mooring.serialization import Rows, count_noun, drop_empty_columns
from mooring.typing import Progress, TableSource

if TYPE_CHECKING:
    from mooring.protocol.messages.card import Role
    from mooring.protocol.participant.role import Participant
    from mooring.tables import TableFit
    from mooring.tables.mapping import TableMapping

_MOST_SHOWN = 50
_PROBLEMS = ("column", "got", "what to do", "expected", "cells", "first rows")


def open_participant(workspace: Workspace) -> Participant:
    """Return the participant that has the study and the vault of a folder."""
    from mooring.protocol.participant.role import Participant

    return Participant(workspace.study, workspace.vault)


def join(
    workspace: Workspace,
    *,
    name: str,
    role: Role = "participant",
    passphrase: str | None = None,
    least_anchor_noise: float | None = None,
    least_data_noise: float | None = None,
    most_epsilon: float | None = None,
    most_pooled_epsilon: float | None = None,
    least_threshold: float | None = None,
    least_colluders: float | None = None,
    accept_no_noise: bool = False,
    revoke: bool = False,
    output: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Make or open a vault, and write a card; `revoke` destroys the combining keys of older cards that were not used."""
    from mooring.protocol.messages.card import card_fingerprint, require_name
    from mooring.protocol.participant.membership import issue_card, revoke_cards
    from mooring.protocol.storage.vault import Vault

    require_name("name", name)
    asked = {
        "anchor_noise": least_anchor_noise,
        "data_noise": least_data_noise,
        "most_epsilon": most_epsilon,
        "most_pooled_epsilon": most_pooled_epsilon,
        "threshold": least_threshold,
        "n_colluders": least_colluders,
    }
    floors: dict[str, float | bool] = {key: value for key, value in asked.items() if value is not None}
    floors |= {"without_noise": True} if accept_no_noise else {}
    workspace.opened, is_new = Vault.open_or_create(workspace.vault_folder, passphrase=passphrase, floors=floors)
    card = output or workspace.root / f"{name}.card.toml"
    n_revoked = revoke_cards(workspace.opened) if revoke else 0
    member = issue_card(workspace.opened, card, name=name, role=role)
    made = "Made a vault" if is_new else "The vault is there already"
    fingerprint = card_fingerprint(role, member)
    lines: tuple[str, ...] = (
        f"{made}, in the folder {workspace.show(workspace.vault_folder)}: keep it, back it up, show it to nobody.",
        f"The fingerprint of your card, to be compared by telephone: {fingerprint}",
    )
    if revoke:
        lines += (
            f"Revoked {count_noun(n_revoked, 'combining key')} of older cards. A study that has one of them, and in which "
            "you have not shared, needs the new card.",
        )
    record = {"name": name, "new_vault": is_new, "card": workspace.show(card), "revoked": n_revoked, **member.as_dict()}
    hand_off = f"Send the card {workspace.show(card)} to the designer of the study; it holds no secret."
    return Outcome(member, record | {"fingerprint": fingerprint}, lines, (hand_off,))


def match(
    workspace: Workspace,
    *,
    data: Path,
    rename: Collection[str] = (),
    word: Collection[str] = (),
    other: Collection[str] = (),
    missing_word: Collection[str] = (),
    ignore: Collection[str] = (),
    decimal: str = "",
    date_format: str = "",
    separator: str = "",
    encoding: str = "",
    show_values: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Write a mapping, which says how a site's own table is read; suggest rules where names and cells differ."""
    from mooring.atomic_io import write_atomically
    from mooring.protocol.participant.reading import count_unread, describe_unknown, suggest_reading
    from mooring.protocol.participant.role import check_table_fit
    from mooring.protocol.registry import exchange_of
    from mooring.tables.mapping import MappedTable, declare_mapping
    from mooring.tables.suggestion import render_mapping

    study, path = workspace.study, workspace.mapping_file
    marks = {"decimal": decimal, "date_format": date_format, "separator": separator, "encoding": encoding}

    def declare(known: TableMapping) -> TableMapping:
        return declare_mapping(
            known, rename=rename, words=word, other=other, missing_words=missing_word, ignore=ignore, marks=marks
        )

    suggested = suggest_reading(workspace, data, declare)
    table = MappedTable(data, suggested.mapping.fit_to(study.schema, exchange_of(study).person_column(study)))
    write_atomically(path, render_mapping(suggested).encode(), mode=0o600, what="the mapping")
    result, _ = check_table_fit(study, table, progress=progress)
    _note_fit(workspace, result)
    rules = suggested.mapping.describe()
    unknown = count_unread(suggested)
    verdict = "Every row now fits the study." if result.fits else "Some of the table does not fit the study yet."
    tables: list[tuple[str, Rows]] = [] if result.fits else [("What does not fit", _list_problems(result))]
    if rules:
        tables.append(("How the table is read", [("Column of the study", "Read from", "Rules"), *rules]))
    if show_values and suggested.unknown_words:
        words = [(name, ", ".join(shown[:_MOST_SHOWN])) for name, shown in suggested.unknown_words.items()]
        tables.append(("Words that the study does not know", [("Column", "Words"), *words]))
    return Outcome(
        suggested.mapping,
        {"mapping": workspace.show(path), "pairs": suggested.pairs, "unknown_words": unknown, "fits": result.fits},
        (
            f"Wrote {workspace.show(path)}. It holds words of your table: keep it here, and read it before you go on.",
            *([f"The file is read as {encoding}."] if (encoding := suggested.mapping.encoding) else []),
            verdict,
        ),
        notes=(
            *(f"Nothing in your table looks like {name!r}: --rename '{name}=…' names it." for name in suggested.absent),
            *(describe_unknown(study.schema, name, n, is_shown=show_values) for name, n in unknown.items()),
        ),
        tables=tuple(tables),
        standing="whole" if result.fits else "in part",
    )


def read_by_mapping(workspace: Workspace, data: Path) -> TableSource:
    """Return a table that is read by the folder's mapping, or the path itself if the folder has no mapping."""
    from mooring.protocol.registry import exchange_of
    from mooring.tables.mapping import MappedTable, read_mapping

    path = workspace.mapping_file
    if not path.exists():
        return data
    study = workspace.study
    return MappedTable(data, read_mapping(path).fit_to(study.schema, exchange_of(study).person_column(study)))


def state_mapping(workspace: Workspace) -> tuple[str, ...]:
    """Return a sentence on the mapping by which tables are read, which may not be this member's own; empty without one."""
    from mooring.tables.mapping import read_mapping

    path = workspace.mapping_file
    if not path.exists():
        return ()
    rules = read_mapping(path).describe()
    shown = [f"{name!r} from {source!r}" for name, source, _ in rules if name != source]
    named = f": {', '.join(shown[:_MOST_SHOWN])}" if shown else ""
    return (f"The table is read as {workspace.show(path)} says{named}. Make sure that this file is yours and correct.",)


def fit(
    workspace: Workspace,
    *,
    data: Path,
    ignore: Collection[str] = (),
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """List everything in a table that does not fit the study."""
    from mooring.protocol.participant.role import check_table_fit

    study = workspace.study
    table = read_by_mapping(workspace, data)
    result, warnings = check_table_fit(study, table, ignore=tuple(ignore), progress=progress)
    _note_fit(workspace, result)
    fits = f"{count_noun(result.n_rows, 'row fits', 'rows fit')} the study {study.name!r}."
    line = f"{fits} Nothing was kept, and nothing was sent."
    if not result.fits:
        line = f"The table does not fit the study {study.name!r}. Row 1 is the first beneath the header."
    stopped = (f"Not read to its end: {result.stopped}",) if result.stopped else ()
    cure = f"Correct the table, or let 'mooring match' describe in {workspace.show(workspace.mapping_file)} how to read it."
    return Outcome(
        result,
        {"study": study.name, "fits": result.fits, **result.as_dict(), "warnings": warnings},
        (line, *stopped),
        notes=(*([] if result.fits else [cure]), *warnings, *state_mapping(workspace)),
        tables=(("", _list_problems(result)),) if result.problems else (),
        standing="whole" if result.fits and not warnings else "in part",
    )


def _note_fit(workspace: Workspace, result: TableFit) -> None:
    """Note whether the table fits, and whether sharing would refuse the table, so that later steps wait."""
    from mooring.protocol.registry import exchange_of

    study = workspace.study
    workspace.fitted = study.schema if result.fits else None
    workspace.is_misfit = not (result.fits or (result.has_columns and exchange_of(study).adapts_rows(study)))


def _list_problems(fit: TableFit) -> Rows:
    """Return a table of what does not fit, headings first."""
    rows = [
        (
            problem.column,
            problem.got,
            problem.suggestion,
            problem.expected,
            str(problem.n_cells or ""),
            ", ".join(map(str, problem.first_rows)),
        )
        for problem in fit.problems
    ]
    return drop_empty_columns([_PROBLEMS, *rows])


def check(
    workspace: Workspace,
    *,
    data: Path,
    ignore: Collection[str] = (),
    seed: int = 0,
    anchor: Path | None = None,
    output: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Attack the rows of a table as others could, and write a page that advises whether to share them."""
    from mooring.atomic_io import require_writable
    from mooring.protocol.registry import exchange_of

    if output is not None:
        require_writable(output, what="the page", inputs=(data, workspace.study_file, anchor))
    person = open_participant(workspace)
    if anchor is not None:
        exchange_of(person.study).require_anchor(person.vault, person.study, anchor)
    result = person.check(
        read_by_mapping(workspace, data), ignore=ignore, seed=seed, command=command, progress=progress
    )
    page = output or person.vault.study_folder(person.study.folder_name) / "check.html"
    workspace.pages.write_check(person.study, result, page)
    fits = f"{count_noun(result.n_rows, 'row fits', 'rows fit')} the study {person.study.name!r}"
    standing: Literal["whole", "in part", "refused"] = "refused" if result.exceeded else "whole"
    decision, plain = result.decision, result.as_dict()
    assert decision is not None
    if standing == "whole" and decision.answer == "do not share":
        standing = "in part"
    del plain["rows_digest"]  # stays in the vault
    return Outcome(
        result,
        plain,
        (f"{fits}, fingerprint {person.study.fingerprint}.",),
        details=(result.verdict, *result.hazards, *result.warnings),
        notes=(
            *state_mapping(workspace),
            *(
                sentence
                for forecast in (result.forecast, result.own_forecast)
                if forecast
                for sentence in forecast.list_sentences()
            ),
        ),
        decision=decision.words,
        page=page,
        standing=standing,
    )


def share(
    workspace: Workspace,
    *,
    data: Path,
    ignore: Collection[str] = (),
    anchor: Path | None = None,
    labels: bool = False,
    override: str | None = None,
    output: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Write the bundle of a table, and an envelope of it unless its content is sealed or the analyst has no sealing key."""
    from mooring.protocol.messages.envelope import envelope_of, seal_file
    from mooring.protocol.registry import exchange_of

    person = open_participant(workspace)
    path = output or workspace.root / f"{person.member.name}.bundle"
    consent: dict[str, Any] = {"labels": labels, "override": override or "", "ignore": ignore, "command": command}
    usual = workspace.root / f"{person.study.name}.anchor"
    anchor = anchor or (usual if usual.is_file() else None)
    shared = person.share(read_by_mapping(workspace, data), output=path, anchor=anchor, **consent, progress=progress)
    exchange, analyst = exchange_of(person.study), person.study.analyst
    what, to_whom = exchange.describe_share(person.study, shared)
    if not exchange.seals_bundles and analyst is not None and analyst.holds_sealing_key:
        sealed, signer = envelope_of(path), person.vault.signing_key
        name = f"{person.member.name}.bundle"
        seal_file(path, sealed, study=person.study, recipient=analyst, signer=signer, name=name)
        to_whom = (
            f"Send {workspace.show(sealed)} to the analyst: it is sealed, so any carrier will do. {path.name} itself "
        )
        to_whom += "is for the analyst alone."
    again = " again, the same bytes as before" if shared.reissued else ""
    record = {**shared.as_dict(), "bundle": workspace.show(path), "fingerprint": person.study.fingerprint}
    del record["rows_digest"]  # stays in the vault
    checked = person.recall_check()
    if exchange.adapts_rows(person.study):  # nothing that is written here depends on the rows
        del record["n_rows"]
        checked = "'mooring check' shows what your own rows would disclose."
    return Outcome(
        shared,
        record | {"checked": checked},
        (
            f"Wrote {workspace.show(path)}{again}: {what}.",
            f"Its SHA-256 is {shared.bundle_digest}.",
            f"It is for the study with the fingerprint {person.study.fingerprint}.",
        ),
        (to_whom,),
        notes=(checked, *state_mapping(workspace)),
    )


def take_own_step(
    step: str, workspace: Workspace, output: Path, progress: Progress | None, **files: str | Path
) -> Outcome:
    """Take a step that only the study's mechanism has, and that writes one file."""
    from mooring.atomic_io import require_writable

    require_writable(output, what="the file", inputs=(workspace.study_file,))
    result = open_participant(workspace).take(step, output=output, progress=progress, **files)
    record = {"output": workspace.show(output), "digest": result.digest}
    standing: Literal["whole", "in part"] = "whole" if result.is_whole else "in part"
    return Outcome(result, record, result.lines, hand_off=(result.hand_off,), standing=standing)


def advise_sharing(workspace: Workspace) -> tuple[str, bool] | None:
    """Return what the last check decided, and whether that is a warning; None if no check is on record."""
    from mooring.protocol.participant.membership import read_check

    checked = read_check(workspace.vault, workspace.study)
    if checked is None:
        return None
    asked = checked.command or "from Python"
    return f"The last check, of the table as it was then ({asked}): {checked.advice}", checked.is_warning


def _open_result(person: Participant, result: str | Path) -> None:
    """Open the envelopes in the folder of a result; the files at a URL are not touched."""
    from mooring.protocol.messages.envelope import open_beside
    from mooring.protocol.registry import exchange_of
    from mooring.protocol.transport.addresses import is_url, local_path

    study = person.study
    for name in () if is_url(result) else exchange_of(study).result_files(study):
        path, senders = local_path(result) / name, {study.analysts_key}
        open_beside(path, study=study, reader=person.vault, senders=senders)


def predict(
    workspace: Workspace,
    *,
    data: Path,
    result: str | Path,
    beside: Path | None = None,
    importance: bool = False,
    force: bool = False,
    ignore: Collection[str] = (),
    threshold: float | None = None,
    calibrate: Path | None = None,
    output: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Predict new rows with what the analyst delivered."""
    from mooring.atomic_io import require_absent, require_writable
    from mooring.protocol.participant.prediction import Scoring

    path = output or workspace.root / "predictions.csv"
    require_writable(path, what="the predictions", inputs=(data, workspace.study_file, beside, calibrate))
    require_absent(path, force=force)
    person = open_participant(workspace)
    _open_result(person, result)
    own_rows, held_out = (None if table is None else read_by_mapping(workspace, table) for table in (beside, calibrate))
    predictions = person.predict(
        read_by_mapping(workspace, data),
        result=result,
        own_rows=own_rows,
        scoring=Scoring(threshold, importance, held_out),
        ignore=ignore,
        progress=progress,
    )
    predictions.write(path)
    person.keep_predictions(predictions, command=command)
    lines = [f"Wrote {count_noun(predictions.values.size, 'prediction')} to {workspace.show(path)}."]
    lines += [*predictions.state_findings(), "The report shows everything that was measured."]
    record = {**predictions.record.as_dict(), "predictions": workspace.show(path)}
    return Outcome(predictions, record, tuple(lines), notes=state_mapping(workspace))
