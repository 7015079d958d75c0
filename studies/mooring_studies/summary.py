"""A finished study in a few figures: what joining gives, what training alone gives, what the strongest attack gets.

The same figures in cells and sentences too, so that the page and the terminal say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mooring.report.frame import render_sentence
from mooring.typing import Array
from mooring_studies.alternatives.table import ALTERNATIVE_COLUMNS, tabulate_alternatives
from mooring_studies.comparison.results import Kind, Results
from mooring_studies.comparison.sums_table import EPSILONS, tabulate_sums
from mooring_studies.figures.readings import accuracy_of, mean
from mooring_studies.figures.terms import LOCAL_ONLY, LOCAL_OWN, METHOD_WORDS, POOLED_RAW, attack_words

CONTROLS = ("c-gdp", "aa-i-gdp", "i-gdp")
NOISY = ("c-gdp-data-noise", "aa-i-gdp-data-noise", "aa-i-gdp-anchor-noise", "aa-i-gdp-both-noise")
_BY = ("n_participants", "identities_each", "rows_each")
_NOTHING, _NOT_MEASURED = "–", "not measured"


# How joining is compared with training alone: by which score, against the rows of which method.
_OWN_ROWS = ("auc_own_clean", LOCAL_OWN)
_ALL_ROWS = ("balanced_accuracy_clean", LOCAL_ONLY)


def summarised(results: Results) -> list[dict[str, Any]]:
    """One entry for each size of a study, in the first deployment; numbers are percent. None for a study of cases."""
    if "case" in results:
        return []
    return [
        key | {"deployments": len(results.where(**key).values("deployment"))} | _figures(part)
        for key, part in _sizes(results.where(deployment=0))
    ]


def joining_pays(results: Results) -> tuple[int, int]:
    """Return how many noisy draws, as deployed, beat training alone, and how many could be compared.

    Where a study scored each participant's own model on that participant's own new rows, that is the comparison, by the
    area under the curve: scores on everybody's rows flatter joining. `training_alone` of every size names the measure.
    """
    better = total = 0
    if "case" in results:
        return better, total
    for deployment in results.values("deployment"):
        for _, part in _sizes(results.where(deployment=deployment)):
            measure, alone = _training_alone(part)
            if measure is not None:
                joint = part.where(method=list(NOISY)).percent(measure[0])
                joint = joint[np.isfinite(joint)]
                better, total = better + int((joint > alone).sum()), total + len(joint)
    return better, total


def say(what: str, *values: Any) -> str:
    """A sentence of summary.txt.jinja, by the name of its macro; the page and the terminal say the same."""
    return render_sentence("summary.txt.jinja", what, *values, package=__package__)


def case_columns(study: str, results: Results) -> tuple[str, dict[str, list[str]]]:
    """A study of cases as a sentence and a table, a cell for each line."""
    if study == "sums":
        return say("sums"), sum_columns(tabulate_sums(results))
    lines = tabulate_alternatives(results)
    cells = zip(*(line["cells"] for line in lines), strict=True)
    return say("alternatives"), {name: list(column) for name, column in zip(ALTERNATIVE_COLUMNS, cells, strict=True)}


def sum_columns(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The study of secure sums, a cell for each line of its table."""
    named = [f"{line['case']}, {line['participants']} × {line['rows_each'] or 'their own'}" for line in lines]
    columns = {"": named, "alone, columns": [line["alone"]["columns"] for line in lines]}
    columns["alone, features"] = [line["alone"]["features"] for line in lines]
    columns["pooled raw"] = [line["pooled"] for line in lines]
    for k, epsilon in enumerate(EPSILONS):
        columns[f"ε = {epsilon:g}" if epsilon else "no noise"] = [line["scores"][k] for line in lines]
    if any(line["rival"][-1] != "–" for line in lines):
        columns["DP-EBM of pooled rows, ε = 1"] = [line["rival"][-1] for line in lines]
    return columns | {"recognised at ε = 1": [line["membership_tpr"][-1] for line in lines]}


def control_columns(sizes: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Accuracy without noise, a cell for each size; no column without a number."""
    columns = {METHOD_WORDS[name]: [percent(size["controls"].get(name)) for size in sizes] for name in CONTROLS}
    columns |= {
        "local only": [percent(size["local_only"]) for size in sizes],
        "pooled raw": [percent(size["pooled_raw"]) for size in sizes],
    }
    return _filled(columns)


def noisy_columns(noisy: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Accuracy and leakage with noise, a cell for each noise of each size; no column without an entry."""
    return _filled(
        {
            "noise": [line["words"] for line in noisy],
            "draws": [str(line["draws"]) for line in noisy],
            "accuracy": [percent(line["accuracy"]) for line in noisy],
            "as deployed": [percent(line["accuracy_clean"]) for line in noisy],
            "attacked fully": [str(line["attacked_fully"] or _NOTHING) for line in noisy],
            "strongest attack": [line["strongest_words"] or _NOT_MEASURED for line in noisy],
            "it links": [between(line["linked_least"], line["linked_most"]) for line in noisy],
            "matched directly": [between(line["matched_least"], line["matched_most"]) for line in noisy],
        }
    )


def say_size(size: Mapping[str, Any]) -> str:
    """A size of a study: its participants, and what each holds."""
    return say("size", {name: size.get(name) for name in _BY})


def percent(value: float | None) -> str:
    """A share in percent, or a dash."""
    return _NOTHING if value is None else f"{value:.1f} %"


def between(low: float | None, high: float | None) -> str:
    """The least to the most of some shares in percent; one of them where they are the same as printed.

    Examples
    --------
    >>> between(17.6, 100.0), between(99.6, 100.0), between(None, None)
    ('18 to 100 %', '100 %', '–')
    """
    if low is None or high is None:
        return _NOTHING
    first, last = f"{low:.0f}", f"{high:.0f}"
    return f"{last} %" if first == last else f"{first} to {last} %"


def _filled(columns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: cells for name, cells in columns.items() if not {*cells} <= {_NOTHING, _NOT_MEASURED}}


def _sizes(results: Results) -> list[tuple[dict[str, Any], Results]]:
    """The rows of each size of a study: participants, and what each of them holds."""
    groups: list[tuple[dict[str, Any], Results]] = [({}, results)]
    for name in _BY:
        apart = [
            (key | {name: int(value)}, part.only(part.numbers(name) == value))
            for key, part in groups
            for value in part.values(name)
        ]
        groups = apart or groups
    return groups


def _training_alone(part: Results) -> tuple[tuple[str, str] | None, float]:
    """How joining is judged on these rows, and what training alone reaches by that, in percent."""
    on_own_rows = mean(part.where(method=_OWN_ROWS[1]).percent(_OWN_ROWS[0]))
    if on_own_rows is not None:
        return _OWN_ROWS, on_own_rows
    everybody = accuracy_of(part, LOCAL_ONLY)
    return (None, 0.0) if everybody is None else (_ALL_ROWS, everybody)


def _figures(part: Results) -> dict[str, Any]:
    measure, alone = _training_alone(part)
    return {
        "controls": {method: accuracy_of(part, method) for method in CONTROLS if len(part.where(method=method))},
        "local_only": accuracy_of(part, LOCAL_ONLY),
        "pooled_raw": accuracy_of(part, POOLED_RAW),
        "training_alone": None if measure is None else {"reaches": alone, "score": measure[0], "method": measure[1]},
        "noisy": [_noisy(part.where(method=method), method) for method in NOISY if len(part.where(method=method))],
    }


def _noisy(part: Results, method: str) -> dict[str, Any]:
    kind: Kind = "linkage" if part.attacks("linkage") else "match"
    envelope = part.leakage(kind)
    known = np.isfinite(envelope)
    names = part.attacks(kind) if known.any() else []
    wins = {name: int((100 * part.numbers(f"{kind}:{name}")[known] >= envelope[known]).sum()) for name in names}
    best = max(wins, key=lambda name: wins[name]) if wins else None
    leaked, linked, matched = (_ends(values) for values in (envelope, part.leakage("linkage"), part.leakage("match")))
    return {
        "method": method,
        "words": METHOD_WORDS.get(method, method),
        "draws": len(part),
        "accuracy": mean(100 * part.numbers("balanced_accuracy")),
        "accuracy_clean": mean(100 * part.numbers("balanced_accuracy_clean")),
        "attacked_fully": int(known.sum()),
        "measure": kind if names else None,
        "strongest": best,
        "strongest_words": None if best is None else attack_words(best),
        "leaked": mean(envelope),
        "leaked_most": leaked[1],
        "leaked_least": leaked[0],
        "linked_least": linked[0],
        "linked_most": linked[1],
        "matched_least": matched[0],
        "matched_most": matched[1],
    }


def _ends(envelope: Array) -> tuple[float | None, float | None]:
    """The least and the most of what is finite."""
    good = envelope[np.isfinite(envelope)]
    return (float(good.min()), float(good.max())) if len(good) else (None, None)
