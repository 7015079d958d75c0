"""A study's settings, read from a TOML file: what is drawn, trained and attacked, and how often.

Legend: p participants, h components, r anchor rows, v scale of anchor noise, σ scale of private-data noise.

Noise levels are uniform draws, not a grid. Each range of a file has a stream of its own, so that fewer draws of a range are
the first ones of more.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import mooring
from mooring import InputError, Streams
from mooring.serialization import Record
from mooring.typing import Matrix
from mooring_studies.settings.sections import (
    IMAGE_KINDS,
    AtLeastOne,
    AttackSettings,
    AuditorSettings,
    DataSettings,
    NetworkSettings,
    NoiseKind,
    NoiseSettings,
    SolverSettings,
    SumLine,
    convert,
    draw_levels,
    share_out,
    suggest_name,
)

STUDIES = ("mnist", "celeba", "participants", "uneven", "hospitals", "census", "landscape", "sums", "alternatives")
_PRESENTATION = ("cli", "demo.py", "report")
_PRESENTATION_OF_STUDIES = (
    *("cli", "comparison", "figures", "storage"),
    *("markdown.py", "page.py", "redraw.py", "rerun.py", "summary.py"),
)
# Descriptions for readers, which no result depends on:
_DESCRIPTIONS = ("title", "paper_section", "needs", "takes", "takes_quick")


@dataclass(frozen=True)
class Spec(Record):
    """All settings of one study; `extra_draws` are those of each noise in deployments after the first."""

    name: str
    title: str
    kind: Literal["digits", "faces", "faces-by-participants", "tables", "landscape", "sums", "alternatives"]
    seed: int = 0
    deployments: AtLeastOne = 1
    paper_section: str = ""
    needs: str = ""
    takes: str = ""
    takes_quick: str = ""
    quick: bool = False
    data: DataSettings = field(default_factory=DataSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    auditor: AuditorSettings = field(default_factory=AuditorSettings)
    noise: NoiseSettings = field(default_factory=NoiseSettings)
    attacks: AttackSettings = field(default_factory=AttackSettings)
    solver: SolverSettings = field(default_factory=SolverSettings)
    sums: SumLine = field(default_factory=SumLine)
    extra_draws: AtLeastOne = 50
    options: Mapping[str, Any] = field(default_factory=dict)

    def with_draws(self, n: int) -> Spec:
        """Return the study with n draws of each noise, divided among its ranges in the same proportions."""
        if n < 1:
            raise InputError("draws", expected="at least 1", got=str(n), cure="One draw of each noise is the least.")
        if self.kind not in IMAGE_KINDS:
            raise InputError(
                "draws",
                expected="left out for this study, whose noise levels are a grid in its file",
                got=str(n),
                cure="--quick makes it smaller.",
            )
        noise = NoiseSettings(
            share_out(self.noise.data, n), share_out(self.noise.anchor, n), share_out(self.noise.both, n)
        )
        return replace(self, noise=noise, extra_draws=min(self.extra_draws, n))

    def with_deployments(self, n: int) -> Spec:
        """Return the study with n deployments, each with its own split, secrets, anchors and noise."""
        if n < 1:
            raise InputError("deployments", expected="at least 1", got=str(n), cure="The paper has one.")
        return replace(self, deployments=n)

    def in_deployment(self, deployment: int) -> Spec:
        """Return the settings of one deployment; after the first, there are fewer draws, and none of both noises."""
        if deployment == 0:
            return self
        fewer = self.with_draws(self.extra_draws)
        return replace(fewer, noise=replace(fewer.noise, both=()))


def read_spec(
    study: str | Path, *, quick: bool = False, draws: int | None = None, deployments: int | None = None
) -> Spec:
    """Return the settings of a study, or of a file; `draws` and `deployments` replace those of the file.

    Examples
    --------
    >>> spec = read_spec("mnist")
    >>> spec.data.n_components, spec.data.n_anchor_rows, sum(levels.count for levels in spec.noise.anchor)
    (100, 400, 200)
    """
    path = study if isinstance(study, Path) else _shipped(study)
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        reason = problem.strerror or "an error"
        raise InputError(
            "the study's file", expected="one that can be read", got=reason, cure="Check its path."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InputError("the study's file", expected="TOML", got=str(problem), cure="Correct it there.") from None
    spec = spec_from(plain, quick=quick)
    spec = spec if draws is None else spec.with_draws(draws)
    return spec if deployments is None else spec.with_deployments(deployments)


def spec_from(plain: Mapping[str, Any], *, quick: bool = False) -> Spec:
    """Return the settings in the tables of a TOML file; with `quick`, its [quick] tables override the others."""
    base = {key: value for key, value in plain.items() if key != "quick"}
    small = _convert_spec(_override(base, plain.get("quick", {})), quick=True)  # checked also where it is not used
    return small if quick else _convert_spec(base, quick=False)


def noise_draws(spec: Spec, kind: NoiseKind, streams: Streams, rms: float) -> tuple[Matrix, Matrix]:
    """Return v and σ of every draw of a study, absolute, in the order of its file."""
    return draw_levels(getattr(spec.noise, kind), kind, streams, rms)


def digest(spec: Spec, code_digest: str) -> str:
    """Return a key of everything that results depend on, except data files and the machine."""
    plain = {name: value for name, value in spec.as_dict().items() if name not in _DESCRIPTIONS}
    text = json.dumps(plain, sort_keys=True) + code_digest
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def code_digest() -> str:
    """Return a digest of all code that results depend on, without commands, pages, figures and comparisons."""
    sha = hashlib.sha256()
    for root, left_out in (
        (Path(mooring.__file__).parent, _PRESENTATION),
        (Path(__file__).parents[1], _PRESENTATION_OF_STUDIES),
    ):
        for path in sorted(root.rglob("*.py")):
            if path.relative_to(root).parts[0] not in left_out:
                sha.update(f"{root.name}/{path.relative_to(root).as_posix()}\n".encode())
                sha.update(path.read_bytes())
    return sha.hexdigest()


def _shipped(name: str) -> Path:
    if name not in STUDIES:
        raise InputError(
            "study",
            expected=f"one of {', '.join(STUDIES)}",
            got=repr(name),
            cure=suggest_name(name, STUDIES) or "'mooring reproduce' alone lists them.",
        )
    return Path(__file__).parent / "specs" / f"{name}.toml"


def _convert_spec(plain: Mapping[str, Any], *, quick: bool) -> Spec:
    """Return checked settings; [study] holds a spec's own values, every other table is one of its sections."""
    study, data = plain.get("study", {}), dict(plain.get("data", {}))
    if not isinstance(study, Mapping):
        raise InputError("study", expected="a table", got=repr(study), cure="Write [study] and keys below it.")
    if isinstance(data.get("n_participants"), int):
        data["n_participants"] = [data["n_participants"]]
    if isinstance(data.get("identities_each"), int):
        data["identities_each"] = [[max(data["n_participants"]), data["identities_each"]]]
    sections = {key: value for key, value in plain.items() if key not in ("study", "data")}
    extra = sections.pop("extra_deployments", {})
    values = {**study, **sections, "data": data, "quick": quick, **{f"extra_{key}": n for key, n in extra.items()}}
    spec = convert(values, Spec)
    required = [f"data.{key}" for key in ("n_participants", "n_components", "n_anchor_rows") if key not in data]
    if spec.kind in ("faces", "faces-by-participants") and not spec.data.identities_each:
        required.append("data.identities_each")
    if not spec.noise.data and spec.kind != "faces-by-participants":
        required.append("noise.data")
    if not spec.noise.anchor:
        required.append("noise.anchor")
    if spec.kind in IMAGE_KINDS and required:
        raise InputError(required[0], expected="given", got="nothing", cure="An image study needs it.")
    return spec


def _override(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `override` over it: tables are merged, everything else, lists too, is replaced."""
    merged = dict(base)
    for key, value in override.items():
        below = merged.get(key)
        nested = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = _override(below, value) if nested else value  # type: ignore[arg-type]
    return merged
