"""Studies of secure sums for tests: vaults, tables, bundles, answers."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from mooring.mechanisms.sums.prime_field import Elements, decode_signed
from mooring.mechanisms.sums.secret_sharing import recombine
from mooring.mechanisms.sums.settings import SumSettings
from mooring.protocol.analyst.intake import collect
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import make_member
from mooring.protocol.results import Consent
from mooring.protocol.storage.vault import Floors, Vault
from mooring.protocol.sums.analyst.total import Closing, close_list
from mooring.protocol.sums.bundle import open_box, read_box
from mooring.protocol.sums.combiner.combination import check_boxes, combine_shares
from mooring.protocol.sums.participant.contribution import share_sums
from mooring.protocol.sums.scheme import sum_scheme
from mooring.tables.schema import Column, Label

LABELS = {"classes": Label("y", "classes", ("a", "b", "c")), "number": Label("y", "number", low=-3.0, high=5.0)}


@dataclass(frozen=True, eq=False)
class SumStudy:
    """A study in a folder; names are p0, p1, …; all participants combine."""

    folder: Path
    study: Study
    vaults: tuple[Vault, ...]
    analyst: Vault
    kind: str = "classes"
    inbox: Path = field(init=False)
    work: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inbox", self.folder / "inbox")
        object.__setattr__(self, "work", self.folder / "analysis")
        self.inbox.mkdir(exist_ok=True)

    def rows(self, i: int, n: int = 30) -> tuple[np.ndarray, np.ndarray]:
        """Rows of participant i, encoded between −1 and 1, and labels that can be learnt."""
        rng = np.random.default_rng(i)
        rows = rng.uniform(-1, 1, size=(n, 2)).round(3)
        if self.kind == "number":
            return rows, (1 + 2 * rows[:, 0] - rows[:, 1]).round(3)
        return rows, np.digitize(rows.sum(axis=1), [-0.4, 0.4])

    def table(self, i: int, n: int = 30, persons: Sequence[Any] = ()) -> Path:
        """The table of participant i."""
        path = self.folder / f"table-{i}-{n}.csv"
        rows, labels = self.rows(i, n)
        words = [LABELS["classes"].classes[k] for k in labels] if self.kind == "classes" else labels.tolist()
        if self.study.mechanism.person and not persons:
            persons = [f"id {k}" for k in range(n)]
        named = [[word] for word in persons] or [[] for _ in words]
        lines = [
            ",".join(map(str, [*(100 * row), word, *who])) for row, word, who in zip(rows, words, named, strict=True)
        ]
        path.write_text("\n".join(["x0,x1,y" + (",who" if persons else ""), *lines]) + "\n")
        return path

    def share(self, i: int, **rest: Any) -> Path:
        """Write the bundle of participant i to the inbox."""
        path = self.inbox / f"p{i}.bundle"
        consent = Consent(override=rest.pop("override", ""))
        data = rest.pop("data", None) or self.table(i)
        share_sums(self.vaults[i], self.study, data, output=path, consent=consent, **rest)
        return path

    def open_share(self, path: Path, combiner: int) -> Elements:
        """The share in a bundle of a combiner, who are counted from 1, opened and tested."""
        vault, member = self.vaults[combiner - 1], self.study.participants[combiner - 1]
        key = vault.combining_key(member.combining_key)
        assert key is not None
        with path.open("rb") as file:
            return open_box(read_box(file, self.study, combiner), self.study, key)

    def open_vector(self, i: int) -> np.ndarray:
        """The noisy sums in the bundle of participant i, opened with the combiners' keys."""
        scheme, path = sum_scheme(self.study), self.inbox / f"p{i}.bundle"
        shares = {point: self.open_share(path, point) for point in range(1, len(scheme.combiners) + 1)}
        return decode_signed(recombine(shares, scheme.threshold))

    def check_boxes(self, i: int) -> Path:
        """Write the receipt of combiner i."""
        check_boxes(self.vaults[i], self.study, self.inbox, output=(path := self.inbox / f"p{i}.receipt"))
        return path

    def close(self, **rest: Any) -> Closing:
        """Close the list of what is in the inbox."""
        intake = collect(self.study, self.inbox, self.work)
        return close_list(self.study, cast(Any, intake.bundles), self.work, self.analyst.signing_key, **rest)

    def combine(self, i: int, *, vault: Vault | None = None, closing: Path | None = None, name: str = "") -> Path:
        """Write the share of combiner i."""
        path = self.inbox / f"{name or f'p{i}'}.share"
        given = closing or self.work / "closing.list"
        combine_shares(vault or self.vaults[i], self.study, self.inbox, given, output=path)
        return path

    def copy_vault(self, i: int) -> Vault:
        """A copy of a vault as it is now, as a backup would be."""
        folder = self.folder / f"copy-{i}"
        shutil.copytree(self.vaults[i].folder, folder)
        return replace(self.vaults[i], folder=folder)


def make_sum_study(
    folder: Path,
    p: int = 6,
    *,
    kind: str = "classes",
    floors: Floors | None = None,
    names: Sequence[str] = (),
    model_limit: str = "",
    upload_limits: tuple[str, ...] = (),
    **settings: Any,
) -> SumStudy:
    """A study of p participants, with names of their own if given; settings are those of `SumSettings`."""
    vaults = tuple(Vault.create(folder / f"v{i}", floors=floors or Floors(without_noise=True)) for i in range(p))
    analyst = Vault.create(folder / "va")
    study = Study(
        name="sums",
        nonce="0123456789abcdef" * 2,
        columns=(Column("x0", "number", -100, 100), Column("x1", "number", -100, 100)),
        label=LABELS[kind],
        mechanism=SumSettings(**({"n_hats": 0, "least_rows": 5} | settings)),
        model_limit=model_limit,
        upload_limits=upload_limits,
    ).with_members(
        [
            make_member(name, vault, combines=True)
            for name, vault in zip(names or [f"p{i}" for i in range(p)], vaults, strict=True)
        ],
        Member("lab", analyst.signing_key.public),
    )
    return SumStudy(folder, study, vaults, analyst, kind)


def with_sealing_analyst(given: SumStudy) -> SumStudy:
    """The same study with an analyst to whom files can be sealed, as every analyst's card allows."""
    return replace(given, study=replace(given.study, analyst=make_member("lab", given.analyst)))


def with_helpers(given: SumStudy, n_helpers: int = 2, **settings: Any) -> tuple[SumStudy, list[Vault]]:
    """The same study with helpers h0, h1, … in its roster."""
    vaults = [Vault.create(given.folder / f"h{i}") for i in range(n_helpers)]
    made = [
        replace(make_member(f"h{i}", vault, combines=True), sealing_key="", sealing_proof="")
        for i, vault in enumerate(vaults)
    ]
    study = replace(given.study, helpers=tuple(made), mechanism=replace(given.study.mechanism, **settings))
    return replace(given, study=study), vaults
