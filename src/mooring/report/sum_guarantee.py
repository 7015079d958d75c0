"""The guarantee of a study of secure sums in sentences that a privacy officer can sign, each true of every such study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooring.mechanisms.secure_sum.guarantee import state_odds

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study


def describe_guarantee(study: Study) -> dict[str, str]:
    """Return sentences by what they are about: who is protected, against whom, how much, on what assumptions.

    Parameters
    ----------
    study : Study
        Of secure sums, with its roster.
    """
    scheme, settings = study.sum_scheme, study.sum_scheme.settings
    k, t, c = len(scheme.combiners), scheme.threshold.threshold, settings.n_colluders
    sealed = (
        f"Each contribution is split among {k} combiner{'' if k == 1 else 's'}. Any {t} who follow the protocol open the "
        f"total of one list, of at least {scheme.quorum} contributions; {t} who together break it can open every single "
        f"contribution; fewer than {t} learn nothing of any."
    )
    if settings.epsilon is None:
        return {
            "guarantee": "There is no guarantee: the sums carry no noise. The total, and the model, may tell whether a "
            "given row is in it.",
            "sealing": sealed,
            "assumptions": _assumptions(study),
        }
    unit = "row"
    if settings.person:
        rows = "any number of" if settings.rows_per_person == "mean" else f"at most {settings.rows_per_person}"
        unit = f"person, with {rows} rows at one participant"
    whom = "the analyst alone" if c == 0 else f"the analyst and up to {_count(c)} who help it"
    return {
        "protected": f"Every {unit}, of every participant that follows the protocol.",
        "against": f"{whom[0].upper()}{whom[1:]}, with all that they hold and whatever they do, and everybody who has the "
        "model, with any further knowledge.",
        "guarantee": f"({settings.epsilon:g}, {settings.delta:g})-differential privacy for adding or removing one "
        f"{settings.unit}. {state_odds(settings.epsilon, settings.delta, settings.unit)}",
        "sealing": sealed,
        "assumptions": _assumptions(study),
        "limits": "What the same rows spend in several such studies adds up; the vault counts it. A "
        + ("person with rows at several participants counts once at each. A " if settings.person else "")
        + "participant that shares invented rows can falsify the model, and is not noticed.",
    }


def _count(n: int) -> str:
    return f"{n} participant{'' if n == 1 else 's'}"


def _assumptions(study: Study) -> str:
    scheme = study.sum_scheme
    settings, t = scheme.settings, scheme.threshold.threshold
    noise = "" if settings.epsilon is None else "their noise is drawn from secrets that stay in their vaults, "
    return (
        f"At most {_count(settings.n_colluders)} help the analyst; the others follow the protocol, {noise}and the "
        f"combining keys of {t} combiners do not leak, then or later. The ciphers hold (X25519, ChaCha20, Ed25519, SHA-256)."
    )
