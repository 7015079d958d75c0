"""Names, words and colours of methods, attacks and studies, the same in all figures.

Legend: v is the scale of anchor noise, σ that of private-data noise, p the number of participants.
"""

from __future__ import annotations

# A colour-blind-safe palette (Okabe and Ito), and greys for what is only there to compare with.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
WINE = "#882255"
GREY, PALE, INK = "#777777", "#bbbbbb", "#222222"
FAINT = "#999999"

DATA_NOISE, ALIGNED_DATA_NOISE = "c-gdp-data-noise", "aa-i-gdp-data-noise"
ANCHOR_NOISE, BOTH_NOISES = "aa-i-gdp-anchor-noise", "aa-i-gdp-both-noise"
COMMON, ALIGNED, INDEPENDENT = "c-gdp", "aa-i-gdp", "i-gdp"
LOCAL_ONLY, POOLED_RAW = "local-only", "pooled-raw"
SECURE_SUM, ALONE_ON_FEATURES = "secure-sum", "local-only-features"
LOCAL_OWN = "local-own"  # each participant's own model on its own new rows, not on everybody's

METHOD_WORDS = {
    COMMON: "C-GDP",
    ALIGNED: "AA-I-GDP",
    INDEPENDENT: "I-GDP",
    DATA_NOISE: "C-GDP, private-data noise",
    ALIGNED_DATA_NOISE: "AA-I-GDP, private-data noise",
    ANCHOR_NOISE: "anchor noise",
    BOTH_NOISES: "both noises",
    LOCAL_ONLY: "local only",
    POOLED_RAW: "pooled raw",
    SECURE_SUM: "secure sums",
}
NOISY = {  # words and marker of a noisy method's operating points
    DATA_NOISE: ("private-data noise", "o"),
    ANCHOR_NOISE: ("anchor noise", "s"),
    BOTH_NOISES: ("both noises", "^"),
}
METHOD_COLOURS = {
    DATA_NOISE: BLUE,
    ALIGNED_DATA_NOISE: SKY,
    ANCHOR_NOISE: VERMILION,
    BOTH_NOISES: GREEN,
    INDEPENDENT: PURPLE,
    COMMON: BLUE,
    ALIGNED: BLUE,
}


def name_sums(epsilon: float | None) -> str:
    """What a line or map of secure sums is called."""
    return "sums, no noise" if epsilon is None else f"sums, ε = {epsilon:g}"


SUMS = {name_sums(epsilon): epsilon for epsilon in (None, 1.0)}
"""Lines of secure sums in charts, and their ε."""

ATTACKS = {  # words, colour and marker of the paper's; of others, words are made from the name
    "known-secret": ("known secret", BLUE, "o"),
    "known-anchor": ("known anchor", SKY, "s"),
    "pseudoinverse": ("pseudoinverse (MP)", ORANGE, "s"),
    "procrustes": ("Procrustes (OP)", VERMILION, "o"),
    "alignment-map": ("alignment map (AM)", GREEN, "^"),
}
_ADDED_WORDS = {"learned": "learned decoder"}  # what follows a plus; others are words themselves, such as "denoised"

STRONGEST = "strongest attack we know"
DATA_AXIS, ANCHOR_AXIS = "scale of private-data noise, σ", "scale of anchor noise, v"
NOISES = (  # a method, the column of its noise, and the axis' words
    (DATA_NOISE, "data_noise_scale", DATA_AXIS),
    (ANCHOR_NOISE, "anchor_noise_scale", ANCHOR_AXIS),
)
UTILITY_AXIS = "balanced accuracy on test rows, %"
CLEAN_AXIS = "balanced accuracy as deployed, %"
AUC_AXIS = "area under the ROC curve, %"
MATCH_AXIS = "records matched to their source, ten-way, %"
GUESSING = "random guessing"
NAMED = (*SUMS, "pooled raw", "local only", GUESSING, "worse than training alone")
"""What a chart names beside its lines, and no legend again."""

_LINKAGE_AXIS = {"mnist": "exact-source linkage, %"}
_PAPER_CHANCE = {"mnist": 10.0, "landscape": 10.0}
TITLES = {
    "mnist": "MNIST",
    "celeba": "CelebA",
    "participants": "CelebA by participants",
    "hospitals": "Four hospitals",
    "census": "Census",
    "landscape": "MNIST landscape",
    "sums": "Secure sums",
    "alternatives": "Other ways",
}

LINKAGE_CHANCE = 10.0
"""In percent: every gallery has ten candidates."""


def linkage_axis(study: str) -> str:
    """What the paper's auditor measures in this study."""
    return _LINKAGE_AXIS.get(study, "identity linkage across images, %")


def guessing_level(study: str) -> float:
    """Balanced accuracy of a random guess, in percent: ten digits, or two classes."""
    return _PAPER_CHANCE.get(study, 50.0)


def attack_words(name: str) -> str:
    """An attack's name in words.

    Examples
    --------
    >>> attack_words("procrustes+denoised+learned")
    'Procrustes (OP), denoised, learned decoder'
    """
    base, *added = name.split("+")
    words = ATTACKS[base][0] if base in ATTACKS else base.replace("-", " ")
    return ", ".join([words, *(_ADDED_WORDS.get(word, word) for word in added)])
