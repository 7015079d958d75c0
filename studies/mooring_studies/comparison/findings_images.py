"""What the image studies found, in plain words."""

from __future__ import annotations

import itertools

import numpy as np

from mooring_studies.comparison.findings_reading import (
    ANCHOR,
    DATA,
    Deployments,
    Reader,
    about_i_gdp,
    at_alone,
    below_alone,
    in_powers_of_ten,
    largest_of,
    mean_of,
    percent,
    place_among,
    read_at,
    share_at,
    stated,
)
from mooring_studies.comparison.results import Results

_MUCH = 0.6  # of the most anchor noise: beyond it the curves lie flat


def on_digits(deployments: Deployments) -> str:
    """MNIST, in its first deployment, and how others differ."""
    study = deployments.first
    procrustes = study.curve(ANCHOR, "linkage:procrustes")
    v, sigma = read_at("mnist.linkage.anchor.0.20.procrustes"), read_at("mnist.utility.private.50.c-gdp")
    gap = largest_of(study.rows.where(method="aa-i-gdp-data-noise")["discrepancy"])
    utility_on_rows = study.curve(DATA, "balanced_accuracy")
    anchored = study.rows.where(method=ANCHOR)
    converged = np.where(anchored["converged"] == 1, anchored["anchor_noise_scale"], np.nan)
    moments = np.isfinite(anchored["linkage:moments"])
    by_moments = float(anchored["linkage:moments"][np.argmax(np.where(moments, anchored["anchor_noise_scale"], -1.0))])
    theirs = stated("mnist.utility.control.i-gdp")
    spread = deployments.read(lambda one: one.mean("i-gdp"))
    much = _MUCH * float(anchored["anchor_noise_scale"].max())
    above = [100 * one for one in deployments.read(lambda one: _with_much_noise(one, much) - one.mean("i-gdp"))]
    return f"""
## Digits: ten participants with thousands of rows each

**What holds.** C-GDP and AA-I-GDP with coupled private-data noise give the analyst the same matrix, to
{in_powers_of_ten(gap)} of its norm. Of the paper's three attacks, Procrustes is the strongest. With anchor noise,
accuracy falls from {percent(study.mean("aa-i-gdp"))} to {percent(_with_much_noise(study, much))}
(mean of the draws above v = {much:.2g}; I-GDP: {percent(study.mean("i-gdp"))}), not to chance;
with private-data noise scored as in the paper it falls to
{percent(float(utility_on_rows.at(sigma)))}. The largest v at which the solver converged is
{largest_of(converged):.3f}; the paper says {stated("mnist.solver.largest-converged"):.3f}.

![What an attacker links as noise grows](figures/mnist/linkage.svg)

**What the paper does not show.** At v = {v:g} the paper's strongest attack links {percent(float(procrustes.at(v)))} of the
rows, close to the 10 % of guessing. Two things are wrong with this as a measure of protection. The attack is not the
strongest: shown what the moments give, the auditor links {percent(by_moments)} at the most noise, and
{percent(study.mean("c-gdp", "linkage:known-secret"))} of the exact rows with no noise at all. And the picture that it is
shown is not the best: the projection's pseudoinverse makes clouds of digits. What the projection left out can be told from
what it kept, and the colluder's own images say how: decoded by that rule, the same rows without noise are linked in
{percent(study.mean("c-gdp", "linkage:known-secret+learned"))} of all cases, and at v = {v:g} the strongest attack links
{deployments.percent(lambda one: share_at(one.strongest(ANCHOR, "linkage"), v))}. An attacker who compares a rebuilt row
with its candidates directly, without a network between, picks the right one of ten in
{deployments.percent(lambda one: one.matched_at_worst(ANCHOR))} of all cases even at the v where it does worst.
{about_i_gdp(deployments)}

![The strongest attack, by two ways of matching](figures/mnist/linkage-strongest.svg)

**Training alone.** A participant who trains on its own rows reaches
{deployments.percent(lambda one: one.mean("local-only"))}; pooling everything without protection
{deployments.percent(lambda one: one.mean("pooled-raw"))}. With anchor noise the joint model
{below_alone("v", deployments, ANCHOR)} (there the strongest attack still picks out
{deployments.percent(lambda one: at_alone(one, ANCHOR, "match"))} of the rows). With
private-data noise, and new rows scored at home without it, the joint model {below_alone("σ", deployments, DATA)};
there the strongest attack picks out {deployments.percent(lambda one: at_alone(one, DATA, "match"))} of the rows.

![What joining costs and gives, as deployed](figures/mnist/tradeoff-as-deployed.svg)

**One deployment says little about I-GDP.** Over {len(spread)} deployments (other splits, transforms, anchors) its accuracy
goes from {percent(min(spread))} to {percent(max(spread))}; the paper's {percent(theirs)}
{place_among(theirs, spread)}. With anchor noise above v = {much:.2g}, mean accuracy is between {_apart(min(above))} and
{_apart(max(above))} I-GDP's.

![Other deployments, other noise](figures/mnist/deployments.svg)
"""


def _with_much_noise(study: Reader, much: float) -> float:
    """The mean accuracy over draws with much anchor noise."""
    rows = study.rows.where(method=ANCHOR)
    return mean_of(np.where(rows["anchor_noise_scale"] > much, rows["balanced_accuracy"], np.nan))


def _apart(points: float) -> str:
    return f"{abs(points):.1f} points {'below' if points < 0 else 'above'}"


def on_faces(deployments: Deployments, *, luck: float | None = None) -> str:
    """CelebA with ten participants; `luck` is the share that the best of the attacks would link by luck alone."""
    by_luck = (
        "" if luck is None else f" (by luck alone, the best of as many attacks would link {percent(luck)} on average)"
    )
    study = deployments.first
    procrustes, strongest = study.curve(ANCHOR, "linkage:procrustes"), study.strongest(ANCHOR, "linkage")
    known_secret = study.curve(DATA, "linkage:known-secret")
    v_chance = stated("celeba.linkage.anchor.crossing.procrustes")
    v_most, sigma_most = strongest.high, read_at("celeba.linkage.private.3")
    return f"""
## Faces: ten participants

**What holds.** Linkage by the paper's attacks falls steeply with either noise, to {percent(float(procrustes.at(v_most)))} at
v = {v_most:.3f} and {percent(float(known_secret.at(sigma_most)))} at σ = {sigma_most:g} (guessing: 10 %; our face
model is another one). Private-data noise costs accuracy steadily, and anchor noise drops it to I-GDP's level and no further.

**What the paper does not show.** At v = {v_chance:g}, where the paper's strongest attack reaches chance, ours by the same
attack links {percent(float(procrustes.at(v_chance)))} of the identities, and the strongest attack we know
{deployments.percent(lambda one: share_at(one.strongest(ANCHOR, "linkage"), v_chance))}.
Here the noise does weaken even that attack, since 400 components and a thousand
rows leave covariances uncertain: at v = {v_most:.3f}, the most that it was run on, it links
{percent(share_at(strongest, v_most))} by the fitted curve{by_luck}. Which image it was, rather than who is on it, is
given away in {deployments.percent(lambda one: one.matched_at_worst(ANCHOR))} of all cases even at the v where that
attack does worst. Fewer matches are no promise there: the attack searches among many minima and may end in a wrong one
([limitations.md](limitations.md)). {about_i_gdp(deployments)}

![What an attacker links as noise grows](figures/celeba/linkage.svg)

**Training alone** reaches {deployments.percent(lambda one: one.mean("local-only"))}, pooling everything
{deployments.percent(lambda one: one.mean("pooled-raw"))}, the joint model without noise by C-GDP
{deployments.percent(lambda one: one.mean("c-gdp"))} and by AA-I-GDP, aligned by the solver,
{deployments.percent(lambda one: one.mean("aa-i-gdp"))}. With anchor noise the joint model
{below_alone("v", deployments, ANCHOR)};
there the strongest attack links {deployments.percent(lambda one: at_alone(one, ANCHOR, "linkage"))} of the identities.
With private-data noise and clean scoring it {below_alone("σ", deployments, DATA)};
there the strongest attack links {deployments.percent(lambda one: at_alone(one, DATA, "linkage"))}.

![Utility against leakage](figures/celeba/tradeoff.svg)
"""


def on_participants(rows: Results) -> str:
    """CelebA from two participants to fifty: one series for each number of identities that all of them have."""
    little, half = read_at("participants.utility.0.01.p2"), stated("participants.setting.anchor-noise") / 2
    lines, orders = [], []
    for each in rows.values("identities_each"):
        with_little = []
        for p in rows.where(identities_each=each).values("n_participants"):
            study = Reader(rows.where(n_participants=p, identities_each=each))
            utility, strongest = study.curve(ANCHOR, "balanced_accuracy"), study.strongest(ANCHOR, "linkage")
            with_little.append(float(utility.at(little)))
            without = (study.mean("local-only"), study.mean("pooled-raw"))
            shares = (*without, with_little[-1], utility.at(half), study.mean("i-gdp"), share_at(strongest, half))
            lines.append(
                " | ".join(["", f"{each:g}", str(p), *(percent(float(share)) for share in shares), ""]).strip()
            )
        orders.append(_order(each, with_little))
    table = "\n".join(lines)
    heading = (
        f"| identities each | participants | training alone | pooled raw | v = {little:g} | v = {half:g} | I-GDP | "
        f"linked at v = {half:g}, strongest attack |"
    )
    return f"""
## From two participants to fifty

The paper gives everybody 100 identities and finds that with little noise more participants help, in the order of p. The
data at hand give 98 to each of ten participants, or 19 to each of fifty: {" and ".join(orders)}.
The attacks behind the last column look at the target's and the colluder's uploads, whoever else takes part: that it
hardly changes with p is how they are made. Attacks that use everybody's uploads, which pay with many small participants,
were run on tables and on the landscape only. With few participants there are few test rows, and accuracies are good to
several points only; there is one deployment.

{heading}
|---|---|---|---|---|---|---|---|
{table}

![Participants: utility against leakage](figures/participants/tradeoff.svg)
"""


def _order(identities_each: float, with_little: list[float]) -> str:
    """Whether accuracy grows with the number of participants."""
    grows = all(one < other for one, other in itertools.pairwise(with_little))
    return f"with {identities_each:g} this {'holds' if grows else 'does not hold throughout'}"
