# %% [markdown]
# # Statistics from one total
#
# A Table 1, a regression and survival curves by treatment of patients in four hospitals are read off one total, for
# which each hospital uploads sealed sums once. All answers together cost one ε, however many are asked.
#
# The patients are those of a breast-cancer trial (GBSG2), which comes with lifelines (`pip install lifelines`),
# divided among four invented hospitals at random. Noise is drawn afresh, so your figures differ from this page's.

# %%
import numpy as np
from lifelines.datasets import load_gbsg2

trial = load_gbsg2()
table = trial[["age"]].assign(
    size=trial["tsize"],
    nodes=trial["pnodes"],
    hormone=trial["horTh"].astype(str),
    menopause=trial["menostat"].astype(str),
    months=(trial["time"] / 30.44).clip(upper=84).round(2),
    recurrence=np.where(trial["cens"] == 1, "yes", "no"),
)
order = np.random.default_rng(0).permutation(len(table))
HOSPITALS = ["north", "east", "south", "west"]
rows = {
    name: table.iloc[part]
    for name, part in zip(HOSPITALS, np.array_split(order, 4), strict=True)
}
rows["north"].head(3)

# %% [markdown]
# ## The study says what will be asked
#
# The study declares the range of every number, the words of every category, and what survival is measured by: the
# time, the event, and the ends of the intervals. More columns make answers noisier.

# %%
import tempfile
from pathlib import Path

from mooring import DeclaredColumns, DraftSettings, SumSettings, draft_study

known = DeclaredColumns(
    ranges={
        "age": (18, 90),
        "size": (0, 120),
        "nodes": (0, 60),
        "months": (0, 84),
    },
    categories={
        "hormone": ["no", "yes"],
        "menopause": ["Pre", "Post"],
        "recurrence": ["no", "yes"],
    },
)
asked = SumSettings(
    epsilon=8.0,
    questions=("tables", "regression", "survival"),
    survival_time="months",
    survival_event="recurrence",
    survival_occurred="yes",
    survival_edges=(0, 6, 12, 18, 24, 30, 36, 48, 60, 72),
    expected_rows=686,
)
place = Path(tempfile.mkdtemp())
text = draft_study(
    rows["north"],
    name="trial",
    known=known,
    settings=DraftSettings(mechanism=asked),
)
_ = (place / "trial.toml").write_text(text, encoding="utf-8")
# %% [markdown]
# Everybody joins, as in [the tutorial on one model](four-hospitals.md).

# %%
from mooring import Analyst, Participant, enrol_cards, issue_card

vaults = {name: Participant.join(place / name) for name in HOSPITALS}
vaults["analyst"] = Participant.join(place / "analyst")
cards = [place / f"{name}.card.toml" for name in vaults]
for (name, vault), card in zip(vaults.items(), cards, strict=True):
    role = "analyst" if name == "analyst" else "participant"
    issue_card(vault, card, name=name, role=role)
study = enrol_cards(place / "trial.toml", cards)
study.fingerprint

# %% [markdown]
# ## Will the answers be useful?
#
# The study's file and the expected number of rows are enough to say how wide the answers' intervals will be, and
# which answers will be refused. No row is read for it.

# %%
from mooring.protocol.registry import exchange_of

exchange_of(study).forecast(study)

# %% [markdown]
# ## One upload from each hospital
#
# Each hospital shares once and adds up its shares of the total, which the analyst opens.

# %%
inbox = place / "inbox"
inbox.mkdir()
hospitals = {name: Participant(study, vaults[name]) for name in HOSPITALS}
for name, hospital in hospitals.items():
    hospital.share(rows[name], output=inbox / f"{name}.bundle")
for name, hospital in hospitals.items():
    receipt = inbox / f"{name}.receipt"
    hospital.take("combine", bundles=inbox, output=receipt)
analyst = Analyst(study, place / "analysis", vaults["analyst"].signing_key)
analyst.gather(analyst.collect(inbox).bundles, receipts=inbox)
closing = analyst.folder / "closing.list"
for name, hospital in hospitals.items():
    share = inbox / f"{name}.share"
    hospital.take("combine", bundles=inbox, list=closing, output=share)
total = analyst.open_total(inbox)

# %% [markdown]
# ## Table 1
#
# A number has its mean, standard deviation in parentheses and the interval of the mean; a word has its rows, their
# percentage and its interval. Numbers of rows carry noise, too. Intervals of means and shares also include that other
# patients could have been observed.

# %%
from mooring.mechanisms.sums.answers import (
    describe,
    estimate_survival,
    regress,
)

table_1 = describe(total, by="hormone")
table_1

# %% [markdown]
# ## Regression
#
# Formulas are those of R with main effects. How much older are patients with hormone treatment than those without,
# before or after the menopause alike? If the interval of the coefficient contains 0, the total does not tell.

# %%
regression = regress(total, "age ~ hormone + menopause")
regression

# %% [markdown]
# ## Survival
#
# These curves show survival without recurrence, with and without hormone treatment, with 95 % intervals as dashed
# lines. Life tables suit intervals as wide as these, in which many patients are censored: the Kaplan-Meier estimate,
# the default, counts them as observed to the end.

# %%
from mooring.report.answer_page import draw_answer

survival = estimate_survival(total, by="hormone", estimator="life-table")
draw_answer(survival)[0]

# %%
survival

# %% [markdown]
# How close is this to the curves of the pooled rows, which nobody has in a real study? Points are read off the total,
# at the ends of the intervals. Lines are lifelines' curves of the pooled rows.

# %% alt="Share without recurrence over 72 months, with and without hormones. Each curve of the total is beside that of the pooled rows."
from lifelines import KaplanMeierFitter
from matplotlib import pyplot as plt

for k, (group, part) in enumerate(table.groupby("hormone")):
    pooled = KaplanMeierFitter().fit(
        part["months"], part["recurrence"] == "yes"
    )
    points = [point for point in survival.points if point.group == group]
    ends = [0, *(point.end for point in points)]
    shares = [1, *(point.survival for point in points)]
    plt.plot(ends, shares, "o", color=f"C{k}", label=f"hormone: {group}")
    curve = pooled.survival_function_.loc[:72]
    plt.step(curve.index, curve, where="post", color=f"C{k}", lw=1)
plt.xlabel("months")
plt.ylabel("share without recurrence")
plt.ylim(0, 1.02)
plt.legend()

# %% [markdown]
# [Statistics](../statistics.md) has the commands, and what each answer assumes.
