# %% [markdown]
# # The paper in one page
#
# Figures 2 to 4 of *Geometric Data Perturbation with Noisy-Anchor Alignment for Privacy-Preserving Collaborative
# Learning* in small, with stronger attacks beside the paper's.
#
# The paper's question is what noise on rows, or on the shared anchor, costs and protects when the analyst colludes
# with one of ten participants. Here the digits are scikit-learn's (8 × 8 pixels, projected to 20 numbers) instead of
# MNIST's (28 × 28, to 100), models are linear, and rebuilt digits are compared with candidates pixel by pixel instead
# of by a network. [Reproduce the paper](../reproducing.md) has the studies in full, and [the paper against
# mooring](../paper-against-mooring.md) their figures.

# %%
import numpy as np
from sklearn.datasets import load_digits

import mooring
from mooring.audit import SimulationSettings

pixels, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(digits))
pixels, digits = pixels[order] / 16, digits[order]
rows = [pixels[k:1500:10] for k in range(10)]
labels = [digits[k:1500:10] for k in range(10)]
new_rows, new_labels = pixels[1500:], digits[1500:]

projection = mooring.gaussian_projection(64, 20, rng=np.random.default_rng(0))
settings = SimulationSettings(projection=projection)
streams = mooring.Streams.for_experiment(seed=0)
SIGMAS = np.linspace(0, 1.5, 6)  # noise on the rows
SCALES = np.linspace(0, 0.5, 6)  # noise on the anchor

# %% [markdown]
# ## How much is linked
#
# An attack rebuilds the target's rows in the projected space, and a decoder turns them into pixels. The auditor then
# picks, of ten digits of the same class, the one that looks most like the rebuilt digit. Picking the source is called
# a link, and guessing links one in ten.
#
# The paper decodes by the pseudoinverse of the public projection and compares pictures. An attacker can do better in
# two ways: it projects the candidates, too, and matches rows directly, so that nothing is lost in decoding; and for
# pictures it learns a decoder from the colluder's own digits.

# %%
from mooring.attacks import learn_decoder
from mooring.metrics import build_galleries, link

galleries = build_galleries(labels[1], n_candidates=10, seed=0)
learned = learn_decoder(projection, rows[0])
rng = np.random.default_rng(1)


def attack(simulation, name):
    """The target's rows in the projected space, as the attack rebuilds them."""
    view = simulation.view(colluders=[0], target=1)
    return mooring.attacks.run(name, view, rng=rng).rows


def link_pictures(rebuilt):
    """The share linked by comparing pictures, as the paper does."""
    pictures = projection.decode(rebuilt)
    return link(pictures, rows[1], galleries, metric="cosine").value


def link_projected(rebuilt):
    """The share linked by comparing with the candidates' projections."""
    return link(rebuilt, projection.encode(rows[1]), galleries).value


def score(simulation):
    """The accuracy of the joint model on new digits, on which is no noise."""
    predicted = simulation.train("linear").predict([new_rows] * 10)
    return np.mean(predicted[: len(new_rows)] == new_labels)


# %% [markdown]
# ## Noise on the rows
#
# With the same noise, one common secret map (C-GDP) and separate maps that are aligned by an anchor (AA-I-GDP) fall
# alike to the attacks below, as the paper proves.

# %%
ATTACKS = {"c-gdp": "known-secret", "aa-i-gdp": "known-anchor"}
data_noise = {"C-GDP": [], "AA-I-GDP": [], "matched directly": []}
data_scores = {"C-GDP": [], "AA-I-GDP": []}
for sigma in SIGMAS:
    for method, name in ATTACKS.items():
        simulation = mooring.simulate(
            rows,
            labels,
            method=f"{method}-data-noise" if sigma else method,
            data_noise_scale=sigma,
            rng=streams,
            settings=settings,
        )
        rebuilt = attack(simulation, name)
        data_noise[method.upper()].append(link_pictures(rebuilt))
        data_scores[method.upper()].append(score(simulation))
    data_noise["matched directly"].append(link_projected(rebuilt))

# %% [markdown]
# ## Noise on the anchor
#
# The paper's attacks invert the noisy anchor by the pseudoinverse (MP) or the nearest orthogonal map (OP), or use the
# analyst's own maps (AM). `moments` is not in the paper: it also uses that the target's digits have about the same
# class means and covariances as the colluder's, which noise on the anchor does not touch.

# %%
NAMES = {
    "MP": "pseudoinverse",
    "OP": "procrustes",
    "AM": "alignment-map",
    "moments": "moments",
}
anchor_noise = {name: [] for name in [*NAMES, "moments, matched directly"]}
anchor_scores, pictures = [], {"OP": [], "moments": []}
for scale in SCALES:
    simulation = mooring.simulate(
        rows,
        labels,
        method="aa-i-gdp-anchor-noise" if scale else "aa-i-gdp",
        anchor_noise_scale=scale,
        rng=streams,
        settings=settings,
    )
    rebuilt = {short: attack(simulation, NAMES[short]) for short in NAMES}
    for short, found in rebuilt.items():
        anchor_noise[short].append(link_pictures(found))
    best = link_projected(rebuilt["moments"])
    anchor_noise["moments, matched directly"].append(best)
    anchor_scores.append(score(simulation))
    pictures["OP"].append(projection.decode(rebuilt["OP"]))
    pictures["moments"].append(learned.decode(rebuilt["moments"]))

# %% [markdown]
# ### Figure 2: exact-source linkage

# %% alt="Two charts of the share of digits linked. On the left all curves fall as noise on the rows grows. On the right those of the paper's attacks fall as noise on the anchor grows, and those of moments hardly do."
from matplotlib import pyplot as plt


def draw(panel, x, curves, label):
    """One panel: curves over the noise."""
    for name, values in curves.items():
        ours = name.startswith(("moments", "matched"))
        panel.plot(x, values, "--" if ours else "-", label=name)
    panel.set_xlabel(label)
    panel.set_ylim(0, 1.02)
    panel.legend(loc="best", fontsize=8)


figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True)
draw(left, SIGMAS, data_noise, "noise σ on the rows")
draw(right, SCALES, anchor_noise, "noise v on the anchor")
for panel in (left, right):
    panel.axhline(0.1, color="#777777", ls=":")
left.set_ylabel("digits linked, of ten look-alikes")

# %% [markdown]
# As in the paper, C-GDP and AA-I-GDP coincide, and much noise on the anchor brings the paper's three attacks towards
# chance (dotted). But it does not stop `moments`, and an attacker who matches directly mostly links far more.
#
# ### Figure 3: rebuilt digits

# %% alt="Digits 0 to 5 in columns. Below the true digits and their projections are digits rebuilt by the paper's attack OP, which blur as noise grows from left to right, and digits rebuilt by moments, which stay readable."
shown = [np.flatnonzero(labels[1] == digit)[0] for digit in range(6)]
exact = projection.decode(projection.encode(rows[1]))
lines = {"true": [rows[1]] * 6, "projected": [exact] * 6, **pictures}
figure, panels = plt.subplots(len(lines), 6, figsize=(6, 4.2))
for line, (name, drawn) in zip(panels, lines.items(), strict=True):
    for panel, k, found in zip(line, shown, drawn, strict=True):
        panel.imshow(found[k].reshape(8, 8).clip(0, 1), cmap="gray")
        panel.set(xticks=[], yticks=[])
    line[0].set_ylabel(name, fontsize=8)
for panel, scale in zip(panels[-1], SCALES, strict=True):
    panel.set_xlabel(f"v = {scale:.2f}", fontsize=7)

# %% [markdown]
# Anchor noise grows to the right. `projected` is the most that the paper's decoder can
# show; the learned decoder of `moments` shows more than that.
#
# ### Figure 4: what the noise costs
#
# The paper has no line for training alone, which is what a participant can do without any of this. Here it is better
# than every joint model: the projection to 20 numbers already costs more than the digits of the other nine bring.

# %% alt="Two charts of the accuracy on new digits. Both fall as noise on the rows or on the anchor grows, below the accuracy of training alone."
from sklearn.linear_model import LogisticRegression

alone = np.mean(
    [
        LogisticRegression(max_iter=1000)
        .fit(part, own)
        .score(new_rows, new_labels)
        for part, own in zip(rows, labels, strict=True)
    ]
)
separate = mooring.simulate(
    rows, labels, method="i-gdp", rng=streams, settings=settings
)
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True)
draw(left, SIGMAS, data_scores, "noise σ on the rows")
draw(right, SCALES, {"AA-I-GDP": anchor_scores}, "noise v on the anchor")
for panel in (left, right):
    panel.axhline(alone, color="#777777", ls="--")
    panel.axhline(score(separate), color="#777777", ls=":")
left.set_ylabel("accuracy on new digits")

# %% [markdown]
# Dashed is training alone on plain pixels, the mean of the participants, and dotted is I-GDP, where maps differ and
# nothing aligns them.
