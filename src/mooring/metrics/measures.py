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
    """A template for what an attack achieves. `state_figure` fills in {attack}, {figure}, {n} (a number of rows), {name} (of
    a column or value) and {others} (the number of non-members per false alarm)."""
    limit: str = ""
    """The measure's name in a limit; empty if no limit can bound it."""


_REBUILDS = "'{attack}' rebuilds "
_MEMBERS = "An attacker ('{attack}') who accepts 1 false alarm in {others} recognises {figure} of the "

MEASURES = {
    "membership_at_1_percent": Measure(
        "Membership",
        "members recognised (TPR @ 1 % FPR)",
        "share of members (rows that contributed) recognised at 1 % false positives; with n < 100 non-members, at 1/n",
        _MEMBERS + "members",
        "membership",
    ),
    "membership_at_0.1_percent": Measure(
        "Membership",
        "members recognised (TPR @ 0.1 % FPR)",
        "share of members (rows that contributed) recognised at 0.1 % false positives; with n < 1,000 non-members, at 1/n",
        _MEMBERS + "members",
    ),
    "outlying_membership_at_1_percent": Measure(
        "Membership",
        "outlying members recognised (TPR @ 1 % FPR)",
        "share recognised, at 1 % false positives, among the tenth of members farthest from the mean of their class",
        _MEMBERS + "most outlying tenth of the members",
        "outlying membership",
    ),
    "outlying_membership_at_0.1_percent": Measure(
        "Membership",
        "outlying members recognised (TPR @ 0.1 % FPR)",
        "share recognised, at 0.1 % false positives, among the tenth of members farthest from the mean of their class",
        _MEMBERS + "most outlying tenth of the members",
    ),
    "membership_auc": Measure(
        "Membership",
        "membership, AUC",
        "probability that a member scores above a non-member",
        "'{attack}' tells members from non-members with an AUC of {figure}",
    ),
    "empirical_epsilon": Measure(
        "Membership",
        "ε at least",
        "lower bound on ε at δ = 0.00001, from the attack's true and false positive rates",
        "'{attack}' shows that ε is at least {figure}",
    ),
    "register_class": Measure(
        "Singling out",
        "found in a register of the class",
        "share of rebuilt rows whose true record ranks first among all records of the class",
        "'{attack}' ranks the true record first, among all records of the class, for {figure} of the rows",
        "register",
    ),
    "register_1000": Measure(
        "Singling out",
        "found in a register of 1,000",
        "share of rebuilt rows whose true record ranks first among 1,000 records of the class",
        "'{attack}' ranks the true record first, among 1,000 records of the class, for {figure} of the rows",
    ),
    "claims": Measure(
        "Singling out",
        "record picked with confidence",
        "share of rows whose true record is picked with a posterior above 0.95; control: any pick for rows without record",
        "'{attack}' picks the true record, with a posterior above 0.95, for {figure} of the rows",
        "claims",
    ),
    "claims_right": Measure(
        "Singling out",
        "right among confident picks",
        "share of the records picked with a posterior above 0.95 that are the true ones",
        "{figure} of the records that '{attack}' picks with a posterior above 0.95 are the true ones",
    ),
    "exposed_value": Measure(
        "Singling out",
        "most exposed value",
        "share of the rows with this value that an attack finds when it picks equally many rows",
        "'{attack}' finds {figure} of the {n} {name}",
    ),
    "exposed_row": Measure(
        "Singling out",
        "most exposed row",
        "error of this row, relative to guessing it; chance: smallest error once the rebuilt rows are shuffled",
        _REBUILDS + "one row with {figure} of the error of guessing it",
    ),
    "linkage": Measure(
        "Linkability",
        "linkage",
        "share of rebuilt rows whose true row is picked out of ten look-alikes",
        "'{attack}' picks the true row out of ten look-alikes for {figure} of the rows",
        "linkage",
    ),
    "exact_source_linkage": Measure(
        "Linkability",
        "linkage by the auditor's model",
        "share of rebuilt images whose true image the auditor's model picks out of ten of the same class",
        "'{attack}' with the auditor's model picks the true image out of ten look-alikes for {figure} of the images",
        "exact source linkage",
    ),
    "identity_linkage": Measure(
        "Linkability",
        "identity linkage",
        "share of rebuilt rows whose person is picked out of ten, by another row of the person",
        "'{attack}' picks the right person out of ten, by another row of the person, for {figure} of the rows",
        "identity linkage",
    ),
    "holder": Measure(
        "Linkability",
        "holder identified",
        "share of records that are assigned to the right participant; control: records that no participant holds",
        "'{attack}' assigns {figure} of the records to the right participant",
        "holder",
    ),
    "roster": Measure(
        "Linkability",
        "assigned to a list",
        "share of rebuilt rows assigned to their true record, given a list of exactly the uploaded records",
        "'{attack}' assigns {figure} of the rows to their true record, given a list of exactly the uploaded records",
        "roster",
    ),
    "exposed_percent": Measure(
        "Inference",
        "most exposed 1 % of rows",
        "largest error among these rows, relative to guessing; lower leaks more",
        _REBUILDS + "one row in a hundred with at most {figure} of the error of guessing",
    ),
    "exposed_tenth": Measure(
        "Inference",
        "most exposed tenth of rows",
        "largest error among these rows, relative to guessing; lower leaks more",
        _REBUILDS + "one row in ten with at most {figure} of the error of guessing",
        "error",
    ),
    "exposed_half": Measure(
        "Inference",
        "most exposed half of rows",
        "largest error among these rows, relative to guessing; lower leaks more",
        _REBUILDS + "half of the rows with at most {figure} of the error of guessing",
    ),
    "exposed_share": Measure(
        "Inference",
        "rows rebuilt well",
        "share of rows rebuilt with less than 0.3 of the error of guessing",
        _REBUILDS + "{figure} of the rows with less than 0.3 of the error of guessing",
        "well rebuilt",
    ),
    "read_column": Measure(
        "Inference",
        "column read best",
        "share of values inferred correctly, in the column that is inferred most above guessing",
        "'{attack}' infers {figure} of the values of {name}",
    ),
    "column_accuracy": Measure(
        "Inference",
        "values read",
        "share of values inferred correctly, over all columns with few distinct values",
        "'{attack}' infers {figure} of the values in columns with few distinct values",
    ),
    "exposed_column": Measure(
        "Inference",
        "most exposed column",
        "error of this column, relative to the column's spread; lower leaks more",
        _REBUILDS + "{name} with an error of {figure} times the column's spread",
    ),
    "attribute": Measure(
        "Inference",
        "attribute inferred",
        "score of inferring the attribute from rebuilt rows: balanced accuracy, or R² of a number",
        "'{attack}' infers the attribute with a score of {figure}",
        "attribute",
    ),
    "centred_error": Measure(
        "Reconstruction",
        "error",
        "error of rebuilt rows, relative to the true rows' spread; lower leaks more",
        _REBUILDS + "the rows with an error of {figure} times their spread",
        "mean error",
    ),
    "relative_error": Measure(
        "Reconstruction",
        "error relative to the rows' size",
        "error of rebuilt rows, relative to the true rows' norm; lower leaks more",
        _REBUILDS + "the rows with an error of {figure} times their norm",
        "relative error",
    ),
    "decoded_error": Measure(
        "Reconstruction",
        "error before the projection",
        "error of the rebuilt original rows, relative to their spread; lower leaks more",
        _REBUILDS + "the original rows with an error of {figure} times their spread",
        "decoded error",
    ),
    "median_r2": Measure(
        "Reconstruction",
        "median R²",
        "share of a feature's variance that is explained, median over features",
        _REBUILDS + "the features with a median R² of {figure}",
    ),
    "psnr": Measure(
        "Reconstruction", "PSNR", "peak signal-to-noise ratio in dB", _REBUILDS + "images with a PSNR of {figure} dB"
    ),
    "ssim": Measure(
        "Reconstruction", "SSIM", "structural similarity", _REBUILDS + "images with a structural similarity of {figure}"
    ),
}
"""Every measure by the name of its figure."""


def state_figure(measure: str, attack: str, figure: Figure, written: str = "") -> str:
    """Return a clause that states the figure of an attack and its interval, or `written` in place of the two."""
    others = round(1 / max(0.001 if "0.1" in measure else 0.01, figure.chance or 0.0))
    written = written or figure.with_interval()
    words = {"attack": attack, "figure": written, "name": figure.name, "n": f"{figure.n:,}", "others": f"{others:,}"}
    return MEASURES[measure].clause.format(**words)
