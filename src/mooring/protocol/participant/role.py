"""A participant, step by step: join, deal or receive the anchor, check, share, combine, predict."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mooring.atomic_io import write_atomically
from mooring.errors import InputError
from mooring.mechanisms.sums.sums import PersonCounts
from mooring.protocol.messages.anchor import Anchor
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.result import require_reasoned
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import (
    deal_anchor,
    find_membership,
    list_refusals,
    open_anchor,
    read_check,
    require_floors,
)
from mooring.protocol.participant.secure_sums import CombineResult, combine_shares, confirm_bundles, share_sums
from mooring.protocol.participant.upload import Consent, ShareResult, share_rows
from mooring.protocol.storage.fingerprints import RowCollector
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Floors, Vault
from mooring.serialization import count_noun
from mooring.tables import TableFit, check_fit
from mooring.tables.sampling import sample_rows
from mooring.typing import Progress, TableSource

if TYPE_CHECKING:  # attacks and learners take a second to load, which sharing need not wait for
    from mooring.protocol.participant.inspection import Inspection
    from mooring.protocol.participant.prediction import Predictions, Scoring


@dataclass(frozen=True)
class Participant:
    """One organisation in one study; every step is a command's as well.

    Examples
    --------
    >>> import tempfile
    >>> from mooring.protocol.participant.membership import make_member
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     vault = Participant.join(Path(folder) / "vault")
    >>> make_member("st-mary", vault).name
    'st-mary'
    """

    study: Study
    vault: Vault = field(repr=False)

    @classmethod
    def join(cls, folder: Path, *, passphrase: str | None = None, floors: Floors | None = None) -> Vault:
        """Make keys and secrets in a new vault.

        Parameters
        ----------
        folder : Path
            The new vault's.
        passphrase : str, optional
            Encrypts the keys; None leaves that to the disk.
        floors : Floors, optional
            Least noise and most ε that this vault accepts.
        """
        return Vault.create(folder, passphrase=passphrase, floors=floors)

    @property
    def member(self) -> Member:
        """Who this is in the roster."""
        return find_membership(self.vault, self.study)

    def deal(self, path: Path) -> str:
        """Deal the anchor, sealed to every participant; the dealer only. Returns the file's SHA-256."""
        return deal_anchor(self.vault, self.study, path)

    def open_anchor(self, path: Path) -> Anchor:
        """Open and check a dealt anchor."""
        return open_anchor(self.vault, self.study, path)

    def check(
        self, data: TableSource, *, ignore: Collection[str] = (), seed: int = 0, progress: Progress | None = None
    ) -> Inspection:
        """Look at the rows before anything leaves: do they fit, what makes them easy to break, what would be recovered.

        What is found is kept in the vault: `share` refuses rows that are not shown to keep to the study's limits. A limit
        that any check of these rows found exceeded stays so: another seed does not undo it.

        Parameters
        ----------
        data : path or data frame
            The rows to be shared.
        seed : int
            Of the sample and the self-attack.
        """
        from mooring.protocol.participant.inspection import conclude, inspect
        from mooring.protocol.participant.sum_inspection import inspect_sums

        require_floors(self.study, self.vault.floors)
        person = self.study.sums.person if self.study.sums else ""
        collector = RowCollector(self.vault.ledger_key, self.study.schema)
        sample = sample_rows(self.study.schema, data, ignore=ignore, person=person, seed=seed, each=collector.add)
        look: Callable[..., Inspection] = inspect if self.study.sums is None else inspect_sums
        counts: dict[str, Any] = {"n_rows": sample.n_rows, "class_counts": sample.class_counts}
        found = look(self.study, sample.encoded, **counts, seed=seed, progress=progress)
        refusals = list_refusals(self.study, **counts, persons=collector.persons)
        found = replace(
            found,
            rows_digest=collector.finish()[0].digest,
            hazards=(*map(str, refusals), *found.hazards),
            refused=tuple(str(one).removesuffix(f". {one.cure}") for one in refusals),
        )
        earlier = read_check(self.vault, self.study).get("exceeded_by_rows", {}).get(found.rows_digest, ())
        exceeded = tuple(dict.fromkeys([*earlier, *found.exceeded]))
        found = conclude(self.study, replace(found, exceeded=exceeded))
        self.keep_record("check", found.as_dict(), command="")
        return found

    def keep_record(
        self, step: Literal["check", "predict"], found: Mapping[str, Any], *, command: str
    ) -> dict[str, Any]:
        """Keep what a step found in the vault, for the report; returns what is kept.

        Parameters
        ----------
        step : {"check", "predict"}
            `share` keeps a record of its own, before a bundle can leave.
        found : mapping
            The result's `as_dict()`. Predictions without labels do not replace a score that was kept before; limits that
            an earlier check of the same rows found exceeded are added.
        command : str
            How the step was asked for.
        """
        record = {"command": command, **found}
        with self.vault.lock():
            path = self.vault.study_folder(self.study.folder_name) / f"{step}.json"
            if step == "predict" and found["score"] is None and path.exists():
                record = json.loads(path.read_bytes()) | {name: found[name] for name in ("risk", "override")}
            if step == "check":
                by_rows = read_check(self.vault, self.study).get("exceeded_by_rows", {})
                earlier = by_rows.get(found["rows_digest"], ())
                record["exceeded"] = list(dict.fromkeys([*earlier, *found["exceeded"]]))
                record["exceeded_by_rows"] = by_rows | {found["rows_digest"]: record["exceeded"]}
            write_atomically(path, json.dumps(record).encode(), mode=0o600, what="the vault")
        return record

    def confirm(self, bundles: str | Path, *, output: Path) -> CombineResult:
        """Write a combiner's confirmation, before the list is closed; see `confirm_bundles`."""
        return confirm_bundles(self.vault, self.study, bundles, output=output)

    def combine(
        self, bundles: str | Path, closing_list: Path, *, output: Path, progress: Progress | None = None
    ) -> CombineResult:
        """Write a combiner's share of the total.

        Parameters
        ----------
        bundles, closing_list, output, progress
            As for `combine_shares`.
        """
        return combine_shares(self.vault, self.study, bundles, closing_list, output=output, progress=progress)

    def share(
        self,
        data: TableSource,
        *,
        output: Path,
        anchor: Path | None = None,
        labels: bool = False,
        override: str = "",
        ignore: Collection[str] = (),
        command: str = "",
        progress: Progress | None = None,
    ) -> ShareResult:
        """Write the one bundle that the study asks for, of rows or of secure sums, or the same bytes again.

        Parameters
        ----------
        data, output, ignore, progress
            The table, the bundle, columns that the study does not have, and who is told how far it is.
        labels : bool, default False
            Consent: the analyst may see the label of every row, without which rows are refused; in sums labels stay at home.
        anchor : Path, optional
            The study's anchor file; secure sums have none.
        override : str
            'NAME: REASON': who shares, and why, although the check does not show that the study's limits are kept. It is
            kept with the record of what was shared; where limits are kept, it is not needed and not kept.
        command : str
            How the step was asked for, for that record.
        """
        require_reasoned(override)
        way: dict[str, Any] = {"output": output, "ignore": ignore, "progress": progress}
        if self.study.sums is not None:
            return share_sums(self.vault, self.study, data, override=override, command=command, **way)
        if anchor is None:
            cure = "Give the file that the dealer sent."
            raise InputError("anchor", expected="given, to share rows", got="none", cure=cure)
        consent = Consent(labels, override, command)
        return share_rows(self.vault, self.study, data, anchor=anchor, consent=consent, **way)

    def recall_check(self) -> str:
        """What the last check said of the rows that were shared."""
        entry = Ledger(self.vault.folder).entry(self.study.digest)
        checked = read_check(self.vault, self.study)
        if entry is None or checked.get("rows_digest") != entry.rows_digest:
            return "These rows were not checked: 'mooring check' tells what they give away."
        return f"The check of these rows: {checked.get('decision') or checked['verdict']}"

    def predict(
        self,
        data: TableSource,
        *,
        result: str | Path,
        own_rows: TableSource | None = None,
        scoring: Scoring | None = None,
        ignore: Collection[str] = (),
        progress: Progress | None = None,
    ) -> Predictions:
        """Score new rows with the joint model, on this machine.

        Parameters
        ----------
        data, own_rows, scoring, ignore, progress
            As for `predict_rows`.
        result : str or Path
            The folder that the analyst delivered, or its URL.
        """
        from mooring.protocol.participant.prediction import DEFAULT_SCORING, fetch_result, predict_rows

        with fetch_result(result, self.study) as folder:
            return predict_rows(
                self.vault,
                self.study,
                data,
                result=folder,
                own_rows=own_rows,
                scoring=scoring or DEFAULT_SCORING,
                ignore=ignore,
                progress=progress,
            )


def check_table_fit(
    study: Study, data: TableSource, *, ignore: Sequence[str] = (), progress: Progress | None = None
) -> tuple[TableFit, list[str]]:
    """Everything of a table that does not fit a study, which needs no roster; and why `share` refuses one that fits.

    Parameters
    ----------
    study, data, ignore, progress
        As for `Participant.check`.
    """
    person, persons = study.sums.person if study.sums else "", PersonCounts()
    way: dict[str, Any] = {"ignore": ignore, "person": person, "progress": progress}
    fit = check_fit(study.schema, data, each=lambda block: persons.add(block.persons), **way)
    refusals = list_refusals(study, fit.n_rows, fit.class_counts, persons) if fit.fits else []
    return fit, [f"'mooring share' refuses such a table: {one}" for one in refusals]


def describe_share(study: Study, shared: ShareResult) -> tuple[str, str]:
    """What a bundle holds, in words, and whom to send it to."""
    if study.sums is None:
        to_whom = "Send it to the analyst, and to nobody else: other participants know the anchor."
        return f"{count_noun(shared.n_rows, 'row')}, shuffled", to_whom
    settings, in_all = study.sum_scheme.settings, shared.epsilon_in_all or 0.0
    sums = f"sums over {count_noun(shared.n_rows, 'row')}, sealed to {len(study.sum_scheme.combiners)} combiners, "
    if settings.epsilon is None:
        return sums + "without noise and without a guarantee", "Send it to the analyst."
    spent = (
        ""
        if in_all <= settings.epsilon
        else f"; with earlier studies these rows have spent epsilon = {in_all:g} in all"
    )
    noise = f"with noise for epsilon = {settings.epsilon:g}, delta = {settings.delta:g} a {settings.unit}{spent}"
    return sums + noise, "Send it to the analyst."
