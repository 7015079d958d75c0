"""A vault's place in a study: its owner, the floors that protect it, the anchor that it deals or opens, and its secrets.

A participant's map, its anchor noise, its private-data noise and the order of its rows follow from the vault's secret and
from what they are for. The map and the anchor's noise do not depend on the rows, so nothing about rows can make a second,
different anchor representation; the rows' noise and order depend on the rows, in whatever order the file has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.atomic_io import hash_file, open_plain_file, write_atomically
from mooring.errors import InputError, RefusedError
from mooring.mechanisms.rotation.anchors import anchor_from_gaussian
from mooring.mechanisms.rotation.kernel import represent_anchor
from mooring.mechanisms.sums.sums import PersonCounts
from mooring.protocol.crypto.derivation import SecretMap, Stream, derive
from mooring.protocol.crypto.keys import SealingKey, Secret
from mooring.protocol.messages.anchor import Anchor, read_anchor, write_anchor
from mooring.protocol.messages.card import Member, combining_text, require_name, write_card
from mooring.protocol.messages.study import Study
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Floors, Vault
from mooring.serialization import count_noun

_KEPT = "dealt.anchor"


def make_member(name: str, vault: Vault, *, combines: bool = False) -> Member:
    """A participant, by the public halves of its vault's keys.

    Parameters
    ----------
    combines : bool, default False
        Whether to draw a combining key, for one study of secure sums.
    """
    combining = vault.draw_combining_key() if combines else ""
    proof = vault.signing_key.sign(combining_text(combining)).hex() if combines else ""
    return Member(name, vault.signing_key.public, SealingKey.of(vault.signing_key).public, combining, proof)


def issue_card(vault: Vault, path: Path, *, name: str, is_analyst: bool = False) -> Member:
    """Write the card of a vault's owner, as a participant or as the analyst; returns what it says.

    Parameters
    ----------
    vault : Vault
    path : Path
        Of the card.
    name : str
        In the study.
    is_analyst : bool, default False
    """
    require_name("name", name)
    member = Member(name, vault.signing_key.public) if is_analyst else make_member(name, vault, combines=True)
    write_card(path, role="analyst" if is_analyst else "participant", member=member, signer=vault.signing_key)
    return member


def find_membership(vault: Vault, study: Study) -> Member:
    """The entry of a vault's owner in the study's roster."""
    study.require_roster()
    member = study.member_with_key(vault.signing_key.public)
    if member is None or _find_sealing_key(vault, member) is None:
        reason = "the keys of this vault are not in its roster"
        cure = "Have your card enrolled, or open the vault that you joined with."
        if study.analyst is not None and study.analyst.signing_key == vault.signing_key.public:
            reason = "this vault is the analyst's, and this step is a participant's"
            cure = "Run it where a participant's vault is, or give that with --vault."
        raise RefusedError("the study", reason=reason, cure=cure)
    return member


def _find_sealing_key(vault: Vault, member: Member) -> SealingKey | None:
    """The key that a roster names; vaults of 0.2.0 hold one that is not their signing key's, for the studies of then."""
    keys = (SealingKey.of(vault.signing_key), vault.sealing_key)
    return next((key for key in keys if key.public == member.sealing_key), None)


def require_floors(study: Study, floors: Floors) -> None:
    """Refuse a study whose noise is below a participant's floors."""
    if study.sums is not None:
        _require_epsilon(study.sums.epsilon, floors)
        return
    method = study.method_described
    cure = "Ask the study's designer why; your own floors are set when you join."
    if not (method.data_noise or method.anchor_noise) and not floors.without_noise:
        raise RefusedError("the study", reason=f"its method, {study.method}, adds no noise at all", cure=cure)
    for used, scale, floor, name in (
        (method.anchor_noise, study.anchor_noise_scale, floors.anchor_noise, "anchor noise"),
        (method.data_noise, study.data_noise_scale, floors.data_noise, "private-data noise"),
    ):
        if used and scale < floor:
            reason = f"its {name} of {scale:g} is below your floor of {floor:g}"
            raise RefusedError("the study", reason=reason, cure=cure)


def list_refusals(
    study: Study, n_rows: int, class_counts: Mapping[str, int] | None, persons: PersonCounts | None = None
) -> list[InputError | RefusedError]:
    """Why `share` takes no such rows, whatever attackers make of them; empty where it does.

    Parameters
    ----------
    n_rows, class_counts, persons
        Of the whole table.
    """
    settings, found = study.sums, list[InputError | RefusedError]()
    is_noisy = settings is not None and settings.epsilon is not None  # beside noise, a class may be small
    why = (
        "labels are visible to the analyst: such rows stand out"
        if settings is None
        else "such rows can be read in sums"
    )
    small = [] if is_noisy else [k for k, n in (class_counts or {}).items() if 0 < n < study.smallest_class]
    for name in small:
        reason = f"fewer than {study.smallest_class} rows have the label {name!r}, and {why}"
        cure = "Leave those rows out, or gather more of them; the study's smallest_class says how many."
        found.append(RefusedError("the upload", reason=reason, cure=cure))
    if settings is None:
        return found
    if not is_noisy and n_rows < settings.least_rows:
        expected, cure = f"{settings.least_rows} or more, as the study says", "Gather more, or stay out of this study."
        found.append(InputError("rows", expected=expected, got=str(n_rows), cure=cure))
    if persons is None or not settings.person:
        return found
    most = settings.rows_per_person
    if most == "mean" and persons.has_nameless:
        expected, cure = "a person's name in each", "Leave those rows out, or give each of these persons a name."
        found.append(InputError("rows of a person", expected=expected, got="rows without one", cure=cure))
    elif most != "mean" and persons.most > most:
        above = count_noun(persons.count_above(most), "person has", "persons have")
        got = f"up to {persons.most} ({above} more than {most})"
        cure = (
            "Keep the study's number of rows of each person, chosen without looking at the label (rows without a person "
            "count as one person's); or ask for rows_per_person = 'mean', which adds each person's mean."
        )
        found.append(InputError("rows of a person", expected=f"{most} at most, as the study says", got=got, cure=cure))
    return found


def _require_epsilon(epsilon: float | None, floors: Floors) -> None:
    cure = "Ask the study's designer why; your own limits are set when you join."
    if epsilon is None and not floors.without_noise:
        raise RefusedError("the study", reason="its sums carry no noise, and it gives no guarantee", cure=cure)
    if epsilon is not None and epsilon > floors.most_epsilon:
        reason = f"its epsilon of {epsilon:g} is above your limit of {floors.most_epsilon:g}"
        raise RefusedError("the study", reason=reason, cure=cure)


def read_check(vault: Vault, study: Study) -> dict[str, Any]:
    """What the last check kept in this study; empty where nothing was, or what was kept is damaged."""
    try:
        found = json.loads((vault.study_path(study.folder_name) / "check.json").read_bytes())
        by_rows, texts = (
            found.get("exceeded_by_rows", {}),
            [found[name] for name in ("rows_digest", "verdict", "command")],
        )
        lists = [found["exceeded"], *by_rows.values()]
        texts += [found.get("decision", ""), *(one for limits in lists for one in limits)]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}  # the report tells what is damaged
    is_whole = all(isinstance(one, str) for one in texts) and all(isinstance(limits, list) for limits in lists)
    return dict(found) if is_whole else {}


def require_limits(vault: Vault, study: Study, rows_digest: str, override: str) -> tuple[str, tuple[str, ...]]:
    """Refuse a first upload of rows that the last check does not show to keep to the study's limits, unless overridden.

    Returns the override and the limits that it is for, both empty where limits are kept. The ledger keeps those of the first
    time for a bundle that is issued again.

    Parameters
    ----------
    vault, study, override
        As for `Participant.share`.
    rows_digest : str
        Of the rows to be shared.
    """
    entry, checked = Ledger(vault.folder).entry(study.digest), read_check(vault, study)
    exceeded = tuple(checked["exceeded"]) if checked.get("rows_digest") == rows_digest else None
    if exceeded and override:
        return override, exceeded
    is_issued = entry is not None and entry.bundle is not None
    if is_issued or not study.upload_limits or exceeded == ():
        return "", ()
    reason, cure = "these rows were not checked", "Run 'mooring check' on this very table first."
    if exceeded:
        reason = "the check does not show that these rows keep to it"
        cure = (
            "Stay out, ask for more noise, or give 'mooring share' --override 'NAME: REASON', which your report shows."
        )
    asks = f"the study asks for {' and '.join(map(repr, study.upload_limits))}"
    raise RefusedError("the upload", reason=f"{asks}, and {reason}", cure=cure)


def deal_anchor(vault: Vault, study: Study, path: Path) -> str:
    """Make the study's anchor and write it, sealed and signed. Returns the file's SHA-256.

    The anchor follows from the dealer's secret and the study, and the sealed file is kept: dealing again gives the same.

    Parameters
    ----------
    vault : Vault
        The dealer's.
    """
    study.require_rows()
    member = find_membership(vault, study)
    if member != study.dealing_member:
        expected, got = f"{study.dealing_member.name!r}, as the study says", repr(member.name)
        raise InputError("dealer", expected=expected, got=got, cure="Let that participant deal the anchor.")
    with vault.lock():
        kept = vault.study_folder(study.folder_name) / _KEPT
        if not kept.exists():
            shape = (study.n_anchor_rows, study.n_components)
            known = {"study": study.digest, "shape": list(shape)}
            key = derive(vault.master, "anchor", known, version=study.format)
            matrix = anchor_from_gaussian(Stream(key, study.format).normals(0, shape[0] * shape[1]).reshape(shape))
            write_anchor(kept, study, matrix, vault.signing_key)
        with open_plain_file(kept, what="the anchor file") as file:
            write_atomically(path, file.read(), mode=0o600, what="the anchor file")
    return hash_file(path, what="the anchor file")


def open_anchor(vault: Vault, study: Study, path: Path) -> Anchor:
    """Open a dealt anchor, or refuse it with a reason.

    Parameters
    ----------
    vault : Vault
        A participant's.
    """
    study.require_rows()
    key = _find_sealing_key(vault, find_membership(vault, study))
    assert key is not None
    return read_anchor(path, study, key)


@dataclass(frozen=True, eq=False)
class Perturbation:
    """What a participant does to its rows and to the anchor in one study."""

    study: Study
    anchor: Anchor
    vault: Vault = field(repr=False)

    @property
    def map(self) -> SecretMap:
        """(O_i, Ψ_i)."""
        key = self._key("transform", {"components": self.study.n_components})
        return SecretMap.derive(key, n_components=self.study.n_components, version=self.study.format)

    @property
    def anchor_noise(self) -> Stream:
        """W' of the anchor's representation."""
        scale, shape = self.study.anchor_noise_scale, self.anchor.matrix.shape
        return self._noise("anchor noise", scale, shape, self.anchor.digest)

    def data_noise(self, n_rows: int, rows_digest: str) -> Stream:
        """W of the rows' representation, row after row of the bundle."""
        shape = (n_rows, self.study.n_components)
        return self._noise("data noise", self.study.data_noise_scale, shape, rows_digest)

    def anchor_representation(self) -> npt.NDArray[np.float32]:
        """B_i, as it is uploaded."""
        scale = self.study.anchor_noise_scale
        return np.asarray(represent_anchor(self.anchor.matrix, self.map, scale, self.anchor_noise, precision="float32"))

    def order(self, n_rows: int, rows_digest: str) -> npt.NDArray[np.int64]:
        """A secret, uniformly random order of the rows."""
        return Stream(self._key("order", {"rows": n_rows, "added_to": rows_digest})).permutation(n_rows)

    def _noise(self, purpose: str, scale: float, shape: tuple[int, ...], added_to: str) -> Stream:
        circumstances = {"scale": float(scale).hex(), "shape": list(shape), "added_to": added_to}
        return Stream(self._key(purpose, circumstances), self.study.format)

    def _key(self, purpose: str, circumstances: Mapping[str, object]) -> Secret:
        known: dict[str, object] = {"study": self.study.digest, "anchor": self.anchor.digest}
        return derive(self.vault.master, purpose, {**known, **circumstances}, version=self.study.format)
