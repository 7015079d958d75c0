"""The owner of a vault as a member of a study: its card, its entry in the roster, and what it may share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from mooring.atomic_io import clear_partial_copies, copy_atomically, write_atomically
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.messages.card import Member, Purpose, Role, proof_text, require_name, write_card
from mooring.protocol.messages.study import Study
from mooring.protocol.results import CheckSummary, ShareResult
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from mooring.serialization import read_record

CHECK_FILE, SUMMARY_FILE, SHARE_FILE = "check.json", "checked.json", "share.json"
N_STUDIES = 20
"""Number of combining keys on a card. Each study of secure sums uses one of them, if the card's owner combines there."""


def make_member(name: str, vault: Vault, *, combines: bool = False) -> Member:
    """Return a participant or analyst with the vault's public keys; `combines` draws a combining key for one study."""
    combining = _draw_combining_key(vault) if combines else ("", "")
    sealing = _prove(vault, "sealing", vault.sealing_key.public)
    return Member(name, vault.signing_key.public, *sealing, *combining)


def _draw_combining_key(vault: Vault) -> tuple[str, str]:
    """Draw a combining key; returns its public half, and the signature of the vault's owner for it."""
    return _prove(vault, "combining", vault.draw_combining_key())


def _prove(vault: Vault, purpose: Purpose, key: str) -> tuple[str, str]:
    """Return a public key, and the signature of the vault's owner for it."""
    return key, vault.signing_key.sign(proof_text(purpose, key)).hex()


def issue_card(vault: Vault, path: Path, *, name: str, role: Role = "participant") -> Member:
    """Write the card of a vault's owner, and return the member that it describes.

    Parameters
    ----------
    vault : Vault
    path : Path
        File for the card.
    name : str
        Name in the study.
    role : "participant", "helper" or "analyst"
        A helper combines in studies of secure sums and contributes no rows.
    """
    require_name("name", name)
    if role == "analyst":
        member = make_member(name, vault)
        write_card(path, role=role, member=member, signer=vault.signing_key)
        return member
    member = make_member(name, vault, combines=True)
    if role == "helper":
        member = replace(member, sealing_key="", sealing_proof="")
    further = [_draw_combining_key(vault) for _ in range(N_STUDIES - 1)]
    write_card(path, role=role, member=member, signer=vault.signing_key, further_keys=further)
    return member


def revoke_cards(vault: Vault) -> int:
    """Destroy the combining keys of all cards written so far, except those of studies in which the vault shared.

    Returns the number of destroyed keys. This vault refuses a study whose roster has one of them.
    """
    return vault.revoke_combining_keys(used=Ledger(vault.folder).list_combining_keys())


def find_member(vault: Vault, study: Study) -> Member:
    """Return the roster's entry of a vault's owner, who must be a participant or a helper."""
    return study.helper_with_key(vault.signing_key.public) or find_membership(vault, study)


def find_membership(vault: Vault, study: Study) -> Member:
    """Return the roster's entry of a vault's owner, who must be a participant."""
    study.require_roster()
    member = study.member_with_key(vault.signing_key.public)
    if member is None:
        reason = "the keys of this vault are not in its roster"
        cure = "Have your card enrolled, or open the vault that you joined with."
        owners = {study.analysts_key: "the analyst's"} | {helper.signing_key: "a helper's" for helper in study.helpers}
        if vault.signing_key.public in owners:
            reason = f"this vault is {owners[vault.signing_key.public]}, and this step is a participant's"
            cure = "Run it in the folder of a participant's vault, or name that vault with --vault."
        raise RefusedError("the study", reason=reason, cure=cure)
    return member


def refuse_small_classes(
    study: Study, class_counts: Mapping[str, int] | None, why: str
) -> Iterator[InputError | RefusedError]:
    """Yield an error for each class that has some rows, but fewer than the study allows; `why` says why that is bad."""
    for name, count in (class_counts or {}).items():
        if 0 < count < study.smallest_class:
            reason = f"fewer than {study.smallest_class} rows have the label {name!r}, and {why}"
            cure = "Leave those rows out, or gather more of them; the study's smallest_class says how many."
            yield RefusedError("the upload", reason=reason, cure=cure)


def read_check(vault: Vault, study: Study) -> CheckSummary | None:
    """Return what sharing needs to know of the last check in this study; None without a record that can be read."""
    path = vault.study_path(study.folder_name) / SUMMARY_FILE
    try:
        return read_record(CheckSummary, path, what="the record of the check", cure="Run 'mooring check' again.")
    except (InputError, StorageError):
        return None  # the report says what is damaged


def recall_exceeded(vault: Vault, study: Study, rows_digest: str) -> tuple[str, ...] | None:
    """Return the limits that checks of these rows did not show to be kept; None unless the last check was of these rows."""
    checked = read_check(vault, study)
    return checked.exceeded if checked is not None and checked.rows_digest == rows_digest else None


def require_limits(
    vault: Vault, study: Study, exceeded: tuple[str, ...] | None, override: str
) -> tuple[str, tuple[str, ...]]:
    """Refuse a first upload whose rows were not checked (`exceeded` is None), or that exceeds limits without an override.

    A study without limits refuses nothing. Returns the override and the limits that it overrides. Both are empty if no
    limit is exceeded, and for a bundle that is issued again without an override: the ledger has those of the first time.
    """
    if not study.upload_limits:
        return "", ()
    if exceeded and override:
        return override, exceeded
    entry = Ledger(vault.folder).entry(study.digest)
    is_issued = entry is not None and entry.bundle is not None
    if is_issued or exceeded == ():
        return "", ()
    reason, cure = "these rows were not checked", "Run 'mooring check' on this very table first."
    if exceeded:
        reason = "the upload was not shown to keep to this"
        cure = (
            "Do not share, ask for more noise, or add --override 'NAME: REASON' to 'mooring share', which your report will "
            "show."
        )
    asks = f"the study asks for {' and '.join(map(repr, study.upload_limits))}"
    raise RefusedError("the upload", reason=f"{asks}, and {reason}", cure=cure)


def hand_out(shared: ShareResult, kept: Path, output: Path, command: str) -> ShareResult:
    """Copy a bundle out of the vault, from `kept` to `output`.

    Before that, a record is written beside `kept`. It says what was shared, and by whose override.
    """
    shared = replace(shared, command=command)
    write_atomically(kept.with_name(SHARE_FILE), shared.to_json().encode(), mode=0o600, what="the vault")
    clear_partial_copies(output)
    copy_atomically(kept, output, mode=0o600, what="the bundle")
    return shared
