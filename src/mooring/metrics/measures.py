"""The measures of leakage: how tables, sentences and limits name each of them."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.metrics.intervals import Figure

RISKS = {
    "Membership": "Can an attacker tell that I am in the data?",
    "Singling out": "Can an attacker find my row?",
    "Linkability": "Can an attacker link my row with other data?",
    "Inference": "What does an attacker learn about me?",
    "Reconstruction": "How close do rebuilt rows come to the true ones?",
}
"""The question that a person asks about each risk. Regulators name singling out, linkability and inference (opinion 05/2014
on anonymisation techniques)."""


@dataclass(frozen=True)
class Measure:
    """One measure of leakage in words."""

    risk: str
    """A name in `RISKS`."""
    title: str
    """The measure's name in a table."""
    explanation: str
    """What the measure counts, in a few words for a table."""
    clause: str
    """What an attack achieves by this measure, with places for {attack}, {figure}, {n} (rows), {name} (of a column or value)
    and {others} (the number of non-members per false alarm)."""
    limit: str = ""
    """The measure's name in a limit; empty if no limit can bound it."""


_REBUILDS = "'{attack}' rebuilds "
_MEMBERS = "An attacker ('{attack}') who accepts 1 false alarm in {others} recognises {figure} of the "

MEASURES = {
    "membership_at_1_percent": Measure(
        "Membership",
        "members recognised (TPR @ 1 % FPR)",
        "share of uploaded rows recognised as uploaded, at 1 % false positives or at the lowest rate that can be shown",
        _MEMBERS + "members",
        "membership",
    ),
    "membership_at_0.1_percent": Measure(
        "Membership",
        "members recognised (TPR @ 0.1 % FPR)",
        "share of uploaded rows recognised as uploaded, at 0.1 % false positives or at the lowest rate that can be shown",
        _MEMBERS + "members",
    ),
    "outlying_membership_at_1_percent": Measure(
        "Membership",
        "outlying members recognised (TPR @ 1 % FPR)",
        "share of the tenth of uploaded rows farthest from their class that is recognised, at 1 % false positives",
        _MEMBERS + "most outlying tenth of the members",
        "outlying membership",
    ),
    "outlying_membership_at_0.1_percent": Measure(
        "Membership",
        "outlying members recognised (TPR @ 0.1 % FPR)",
        "share of the tenth of uploaded rows farthest from their class that is recognised, at 0.1 % false positives",
        _MEMBERS + "most outlying tenth of the members",
    ),
    "membership_auc": Measure(
        "Membership",
        "membership, AUC",
        "how often a member scores above a non-member",
        "'{attack}' tells members from non-members with an AUC of {figure}",
    ),
    "empirical_epsilon": Measure(
        "Membership",
        "ε at least",
        "lower bound on the ε of any guarantee with δ = 0.00001, from these rates",
        "'{attack}' shows that ε is at least {figure}",
    ),
    "register_class": Measure(
        "Singling out",
        "found in a register of the class",
        "share of rows whose record ranks first among all records of its class",
        "'{attack}' ranks the record of {figure} of the rows first in a register of their class",
        "register",
    ),
    "register_1000": Measure(
        "Singling out",
        "found in a register of 1,000",
        "share of rows whose record ranks first among 1,000 of its class",
        "'{attack}' ranks the record of {figure} of the rows first among 1,000 of their class",
    ),
    "claims": Measure(
        "Singling out",
        "named correctly",
        "share of rows named correctly with a posterior above 0.95; control: rows missing from the register, named wrongly",
        "'{attack}' names {figure} of the rows correctly with a posterior above 0.95",
        "claims",
    ),
    "claims_right": Measure(
        "Singling out",
        "right among those named",
        "share of names that are right",
        "{figure} of the rows that '{attack}' names are named correctly",
    ),
    "exposed_value": Measure(
        "Singling out",
        "most exposed value",
        "share of the rows with this value among equally many rows that rank first",
        "'{attack}' finds {figure} of the {n} {name}",
    ),
    "exposed_row": Measure(
        "Singling out",
        "most exposed row",
        "its error relative to guessing it; chance: the smallest error of shuffled rows",
        _REBUILDS + "one row with {figure} of the error of guessing it",
    ),
    "linkage": Measure(
        "Linkability",
        "linkage",
        "share of rows picked out of ten look-alikes",
        "'{attack}' picks {figure} of the rows out of ten look-alikes",
        "linkage",
    ),
    "exact_source_linkage": Measure(
        "Linkability",
        "linkage by the auditor's model",
        "share of images picked out of ten of the same class",
        "'{attack}' picks {figure} of the images out of ten look-alikes by the auditor's model",
        "exact source linkage",
    ),
    "identity_linkage": Measure(
        "Linkability",
        "identity linkage",
        "share of persons recognised by another row of theirs",
        "'{attack}' recognises {figure} of the persons by another row of theirs",
        "identity linkage",
    ),
    "holder": Measure(
        "Linkability",
        "holder named",
        "share of records whose participant is named; control: records that no participant holds",
        "'{attack}' names the participant who holds {figure} of the records",
        "holder",
    ),
    "roster": Measure(
        "Linkability",
        "assigned to a list",
        "share of rows assigned to their record in a list of exactly these records",
        "'{attack}' assigns {figure} of the rows to their record in a list of exactly these",
        "roster",
    ),
    "exposed_percent": Measure(
        "Inference",
        "most exposed 1 % of rows",
        "their error stays below this, relative to guessing; lower leaks more",
        _REBUILDS + "one row in a hundred with at most {figure} of the error of guessing",
    ),
    "exposed_tenth": Measure(
        "Inference",
        "most exposed tenth of rows",
        "their error stays below this, relative to guessing; lower leaks more",
        _REBUILDS + "one row in ten with at most {figure} of the error of guessing",
        "error",
    ),
    "exposed_half": Measure(
        "Inference",
        "most exposed half of rows",
        "their error stays below this, relative to guessing; lower leaks more",
        _REBUILDS + "half of the rows with at most {figure} of the error of guessing",
    ),
    "exposed_share": Measure(
        "Inference",
        "rows rebuilt well",
        "share of rows with less than 0.3 of the error of guessing",
        _REBUILDS + "{figure} of the rows with less than 0.3 of the error of guessing",
        "well rebuilt",
    ),
    "read_column": Measure(
        "Inference",
        "column read best",
        "share of its values that are inferred, compared with the best guess",
        "'{attack}' infers {figure} of the values of {name}",
    ),
    "column_accuracy": Measure(
        "Inference",
        "values read",
        "share of the values of all columns with few values that are inferred",
        "'{attack}' infers {figure} of the values of columns with few values",
    ),
    "exposed_column": Measure(
        "Inference",
        "most exposed column",
        "its error relative to its spread; lower leaks more",
        _REBUILDS + "{name} with an error of {figure} of its spread",
    ),
    "attribute": Measure(
        "Inference",
        "attribute inferred",
        "score of inferring it from rebuilt rows",
        "'{attack}' infers the attribute with a score of {figure}",
        "attribute",
    ),
    "centred_error": Measure(
        "Reconstruction",
        "error",
        "relative to the rows' spread; lower leaks more",
        _REBUILDS + "the rows with an error of {figure} of their spread",
        "mean error",
    ),
    "relative_error": Measure(
        "Reconstruction",
        "error relative to the rows' size",
        "relative to ‖X‖; lower leaks more",
        _REBUILDS + "the rows with an error of {figure} of their size",
        "relative error",
    ),
    "decoded_error": Measure(
        "Reconstruction",
        "error before the projection",
        "relative to the spread of the original rows; lower leaks more",
        _REBUILDS + "the original rows with an error of {figure} of their spread",
        "decoded error",
    ),
    "median_r2": Measure(
        "Reconstruction",
        "median R²",
        "share of a feature's variance that is explained, median over features",
        _REBUILDS + "the features with a median R² of {figure}",
    ),
    "psnr": Measure("Reconstruction", "PSNR", "peak signal-to-noise ratio in dB", _REBUILDS + "images at {figure} dB"),
    "ssim": Measure(
        "Reconstruction", "SSIM", "structural similarity", _REBUILDS + "images with a similarity of {figure}"
    ),
}
"""Every measure by the name of its figure."""


def state_figure(measure: str, attack: str, figure: Figure, written: str = "") -> str:
    """Return a clause on what an attack achieves by a measure, with figure and interval unless `written` is given."""
    others = round(1 / max(0.001 if "0.1" in measure else 0.01, figure.chance or 0.0))
    written = written or figure.with_interval()
    words = {"attack": attack, "figure": written, "name": figure.name, "n": f"{figure.n:,}", "others": f"{others:,}"}
    return MEASURES[measure].clause.format(**words)
