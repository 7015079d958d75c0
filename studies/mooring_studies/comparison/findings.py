"""The page of findings: what holds of the paper's claims, what does not, where joining helps, in plain words.

Every figure in it is computed from the results; only the words are written by hand. A study that has not been run is left
out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from mooring_studies.comparison.claims import FORMULA, NOT_RUN, Comparison
from mooring_studies.comparison.findings_images import on_digits, on_faces, on_participants
from mooring_studies.comparison.findings_reading import ANCHOR, DATA, Deployments, at_alone, percent
from mooring_studies.comparison.findings_tables import on_landscape, on_tables
from mooring_studies.comparison.results import Results

_AS_IS = ("|", "!", "#", "- ", "1.", "In short")
_WIDTH = 120


def findings(studies: Mapping[str, Results], comparisons: Sequence[Comparison] = ()) -> str:
    """The page, in Markdown, from the results of the studies that are there and the paper's numbers beside them."""
    parts = [_OPENING, _in_short(studies, comparisons)]
    if "mnist" in studies:
        parts.append(on_digits(Deployments(studies["mnist"])))
    if "celeba" in studies:
        parts.append(on_faces(Deployments(studies["celeba"]), luck=_luck(comparisons, "celeba")))
    if "participants" in studies:
        parts.append(on_participants(studies["participants"].where(deployment=0)))
    if "landscape" in studies:
        parts.append(on_landscape(studies["landscape"]))
    if "hospitals" in studies or "census" in studies:
        parts.append(on_tables(studies))
    parts.append(_CLOSING.format(by_luck=_by_luck(comparisons)))
    return "\n\n".join(_flowed(part) for part in parts) + "\n"


_OPENING = """
# What we found

This page says in plain words what came out when we ran the paper's experiments again and went on from there. Every number
on it is computed from the tables in `results/`; each number of the paper stands beside ours in
[paper-against-mooring.md](paper-against-mooring.md), and [reproducing.md](reproducing.md) says how to run any of it.
"""


def _in_short(studies: Mapping[str, Results], comparisons: Sequence[Comparison]) -> str:
    lines = [
        _how_much_holds(comparisons),
        "- **Its conclusion rests on its attacks.** Anchor noise leaves the uploaded rows as they are, turned. Whoever "
        "matches class means and covariances can undo the turn. The black lines in the figures show what is left of the "
        "protection.",
        "- **Training alone is the comparison that counts.** With thousands of rows each, there is little to gain by "
        "joining; with a few dozen, much.",
    ]
    for name, words in (("mnist", "digits"), ("celeba", "faces")):
        if name in studies:
            lines.append(_at_equal_accuracy(words, Deployments(studies[name])))
    return "In short:\n\n" + "\n".join(_filled(line, subsequent_indent="  ") for line in lines if line)


def _how_much_holds(comparisons: Sequence[Comparison]) -> str:
    """How many of the paper's results came out again; one that our curves never reach did not, and a formula is none."""
    results = [one for one in comparisons if one.number.kind == "result" and one.note != NOT_RUN]
    measured = [one for one in results if one.number.ours != FORMULA]
    if not measured:
        return ""

    def agreeing(some: Sequence[Comparison]) -> int:
        return sum(one.ours is not None and not one.large for one in some)

    by_study = [
        f"{agreeing(own)} of {len(own)} on {words}"
        for name, words in (("mnist", "digits"), ("celeba", "faces"), ("participants", "the number of participants"))
        if (own := [one for one in measured if one.number.study == name])
    ]
    return (
        f"- **{agreeing(measured)} of the paper's {len(measured)} measurements come out again,** within the margins that "
        f"the comparison states: {', '.join(by_study)}. For faces our face model is another one, and identities are others; "
        "how many of the solver's runs on faces stop agrees by our choice of noise levels, which the paper does not state. "
        "Several numbers lie close to a margin, and the auditor of digits is trained anew by every run: the count then "
        "moves by a few."
    )


def _at_equal_accuracy(words: str, study: Deployments) -> str:
    """Which noise leaks less where the joint model is worth as much as training alone."""
    linked, matched = (
        [study.percent(lambda one, m=m, k=k: at_alone(one, m, k)) for m in (ANCHOR, DATA)]  # type: ignore[misc]
        for k in ("linkage", "match")
    )
    return (
        f"- **At the accuracy of training alone, {words}:** the strongest attack links {linked[0]} under anchor noise and "
        f"{linked[1]} under noise on the rows with new rows scored at home; matched directly it is {matched[0]} and "
        f"{matched[1]}."
    )


_CLOSING = """
## What we take from it

1. Do not rely on anchor noise for protection. It protects the anchor; how well rows are hidden by it depends on how well
   their moments can be compared.
2. Ask first what training alone gives, on one's own new rows, with as many steps as the joint model.
3. If joining pays, put noise on the uploaded rows and score new ones at home. `mooring plan` looks for the least noise
   that reaches a stated target against every attack we know. Try I-GDP beside it, which uploads no anchor at all: with few
   rows and a learner that bends it may cost little, and its rows were the hardest to pick out on the hospitals.
4. Every leakage figure here is a lower bound. A better attack may exist; it would move every black line up.

## What is weak here

The strongest attacks were run on a share of the draws; in the studies of images those that use everybody's uploads
(`joint-moments`) were not run at all, since they take too long there. The face model is not the paper's. What the paper's
auditor of digits links through the paper's decoder depends much on luck with its training
([reproducing.md](reproducing.md)); through the learned decoder, and without an auditor, it does not. Sums on another
device or in another order round differently, and a network's accuracy may then move by a point or two, by more where test
rows are few. 'Local only' and 'pooled raw' are the best of three ways of scaling rows, chosen on validation rows: an
estimate of what could be had, not a bound; a joint model may come out above. Galleries and targets are one participant's.
Each table was made by the version of this code that its `facts.json` names, not always the last one; if a part is of
another, its notes say so, and the comparison tells them: how many deployments there are, and what was cut short. A
strongest attack is the best of several, chosen after the fact: where all of them guess, it still lies a little above the
10 % of guessing{by_luck}. How the paper spread its noise levels over the ranges on CelebA is not stated; ours are a
guess.
"""


def _luck(comparisons: Sequence[Comparison], study: str) -> float | None:
    """The share that the strongest attack on anchor noise would link by luck alone on average, if that is known."""
    found = [one.ours for one in comparisons if one.number.id == f"{study}.beside.luck.linkage"]
    return found[0] / 100 if found and found[0] is not None else None


def _by_luck(comparisons: Sequence[Comparison]) -> str:
    """How far above it lies on average: on digits and on faces."""
    told = [
        f"{percent(found)} on {words}"
        for name, words in (("mnist", "digits"), ("celeba", "faces"))
        if (found := _luck(comparisons, name)) is not None
    ]
    return f" (by luck alone, the best of as many attacks would link {' and '.join(told)} on average)" if told else ""


def _filled(text: str, *, subsequent_indent: str = "") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=subsequent_indent, break_on_hyphens=False)


def _flowed(text: str) -> str:
    """Paragraphs filled to one width, since numbers of any length stand in them; tables, lists and pictures as they are."""
    blocks = text.strip().split("\n\n")
    return "\n\n".join(block if block.startswith(_AS_IS) else _filled(block) for block in blocks)
