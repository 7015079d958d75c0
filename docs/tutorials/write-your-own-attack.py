# %% [markdown]
# # Write your own attack
#
# An attack on noisy anchors and one on secure sums are written here, tested against mooring's contract, and put into
# an audit beside mooring's own. An attack is a function of what an attacker sees.
#
# Five participants have scikit-learn's digits, projected to 20 numbers. The analyst colludes with the first one, and
# the second one is the target.

# %%
import numpy as np
from sklearn.datasets import load_digits

import mooring
from mooring.audit import SimulationSettings

pixels, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(digits))
pixels, digits = pixels[order] / 16, digits[order]
rows = [pixels[k:1000:5] for k in range(5)]
labels = [digits[k:1000:5] for k in range(5)]

projection = mooring.gaussian_projection(64, 20, rng=np.random.default_rng(0))
settings = SimulationSettings(projection=projection)
streams = mooring.Streams.for_experiment(seed=0)


def simulate(scale):
    """One deployment with noise of this scale on the anchor."""
    return mooring.simulate(
        rows,
        labels,
        method="aa-i-gdp-anchor-noise",
        anchor_noise_scale=scale,
        rng=streams,
        settings=settings,
    )


view = simulate(0.3).view(colluders=[0], target=1)
view.target_upload.representation.shape, view.anchor.shape

# %% [markdown]
# ## What the attacker sees
#
# A `CollusionView` holds the uploads, everybody's labels, the public projection, the anchor, and the colluder's rows
# and secret map. The target's rows and map cannot be reached from it.
#
# The paper's strongest attack, `procrustes`, looks for the rotation that takes the anchor to the target's noisy
# picture of it. But the colluder has digits, too: the mean of its sevens must be near the mean of the target's
# sevens. Class means are therefore more pairs of points that the same rotation takes to each other, and noise on the
# anchor does not touch them. The attack below uses both, each with its precision.

# %%
from mooring.attacks import DoesNotApply, reconstruct


def anchor_and_means(view, *, rng):
    """the noisy anchor and the class means of the colluder's rows"""
    known, upload = view.reference_rows, view.target_upload
    if known is None or view.anchor is None:
        raise DoesNotApply("The attack needs an anchor and a colluder.")
    own, theirs = view.reference_codes(), view.codes_of([view.target])
    classes = np.intersect1d(own, theirs)
    means = np.stack([known[own == k].mean(0) for k in classes])
    uploaded = np.stack(
        [upload.representation[theirs == k].mean(0) for k in classes]
    )
    centre, image = means.mean(0), uploaded.mean(0)
    spread = known.std(0).mean() / np.sqrt(len(known) / len(classes))
    anchor = view.anchor - view.anchor.mean(0)
    seen = upload.anchor_representation
    noise = max(view.anchor_noise_scale, 1e-6)
    products = anchor.T @ (seen - seen.mean(0)) / noise**2
    products += (means - centre).T @ (uploaded - image) / spread**2
    left, _, right = np.linalg.svd(products)
    return reconstruct(
        view, mooring.RigidMap.from_centre(left @ right, centre, image)
    )


def error(rebuilt):
    """The error of the rebuilt rows: 0 is exact, 1 is no better than the mean."""
    truth = projection.encode(rows[1])
    spread = np.linalg.norm(truth - truth.mean(0))
    return np.linalg.norm(rebuilt.rows - truth) / spread


rng = np.random.default_rng(0)
for name in ("procrustes", anchor_and_means, "moments"):
    rebuilt = mooring.attacks.run(name, view, rng=rng)
    print(f"{getattr(name, '__name__', name):20} {error(rebuilt):.2f}")

# %% [markdown]
# mooring's `moments` uses class covariances as well. At which noise does each help?

# %% alt="Error of three attacks against the noise on the anchor. The error of procrustes grows with the noise; class means slow that, and moments stop it."
from matplotlib import pyplot as plt

SCALES = (0.05, 0.15, 0.3, 0.5)
errors = {}
for scale in SCALES:
    view = simulate(scale).view(colluders=[0], target=1)
    for attack in ("procrustes", anchor_and_means, "moments"):
        name = getattr(attack, "__name__", attack)
        rebuilt = mooring.attacks.run(attack, view, rng=rng)
        errors.setdefault(name, []).append(error(rebuilt))
for name, values in errors.items():
    plt.plot(SCALES, values, "o-", label=name)
plt.xlabel("noise v on the anchor")
plt.ylabel("error of the rebuilt rows")
plt.ylim(0)
plt.legend()

# %% [markdown]
# ## Does it keep the contract?
#
# `check_attack` runs what most of mooring's own attacks pass: the same seed gives the same result, a view is not
# changed, rows have the right shape and are finite, and an attack that does not apply says why.

# %%
from mooring.testing import check_attack

check_attack(anchor_and_means)


def forgetful(view, *, rng):
    """numbers of its own"""
    return np.zeros((3, 20))


try:
    check_attack(forgetful)
except AssertionError as broken:
    print(broken)

# %% [markdown]
# ## In an audit
#
# Where an audit takes the name of an attack, it takes yours.

# %%
points = mooring.PointGrid(
    ["aa-i-gdp-anchor-noise"],
    n_components=20,
    anchor_noise_scales=[0.1, 0.3],
)
audit = mooring.run_audit(
    rows,
    labels,
    points=points,
    settings=mooring.AuditSettings(
        attacks=["procrustes", anchor_and_means],
        projection="gaussian",
        learner="linear",
    ),
)
audit

# %% [markdown]
# ## Against secure sums
#
# Of secure sums an attacker sees one total, and asks of each of some candidates whether it is in the data. The attack
# returns a score for each candidate; the larger, the more likely. This one asks how well a candidate fits the total,
# since rows that were summed fit better. Sums over few rows disclose most, so each participant has forty digits here.

# %%
from mooring.attacks import Attack, MembershipScores, SumView


def fit_to_total(view, *, rng):
    """Score by how typical a candidate is of the total's products."""
    candidates = view.joint_features(view.candidates)
    products = view.joint_products()
    noise = max(view.honest.noise_scales) * np.sqrt(len(products))
    ridge = (noise + 1e-9 * np.abs(products).max()) * np.eye(len(products))
    solved = np.linalg.solve(products + ridge, candidates.T).T
    return MembershipScores(-(candidates * solved).sum(axis=1))


fits = Attack(
    "fit-to-total",
    "how well a candidate fits the total",
    fit_to_total,
    view=SumView,
)
check_attack(fits)
sums = mooring.run_audit(
    [part[:40] for part in rows],
    [part[:40] for part in labels],
    points=mooring.PointGrid([], epsilons=[None, 2.0]),
    settings=mooring.AuditSettings(attacks=[fits], learner="linear"),
)
sums

# %% [markdown]
# Without noise it recognises members, and at ε = 2 the guarantee holds against this attack as against any other. With
# so few rows, that noise also costs more accuracy than joining brings.
# [Extend mooring](../extend.md) has new mechanisms and learners.
