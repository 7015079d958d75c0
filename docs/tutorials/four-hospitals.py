# %% [markdown]
# # Four hospitals, one model
#
# Four hospitals that may not pool their patients train one model by **secure sums**, with one upload each. All roles
# are played here in one notebook. In a real study each has a machine and a folder of its own, and only the study,
# cards and signed files travel. Keys and noise are drawn afresh, so your figures differ from this page's.
#
# The patients are those of scikit-learn's diabetes table, divided among the hospitals at random: is a patient better
# or worse after a year?

# %%
import tempfile
from pathlib import Path

from sklearn.datasets import load_diabetes

HOSPITALS = ["north", "south", "east", "west"]
RANGES = {  # from what the columns mean, never from anybody's rows
    "age": (18, 90),
    "bmi": (15, 45),
    "bp": (50, 140),
    "s3": (20, 110),
    "s5": (3, 7),
}
data = load_diabetes(as_frame=True, scaled=False)
outcome = (data.target > 140).map({True: "worse", False: "better"})
table = data.data[list(RANGES)].assign(outcome=outcome)
table = table.sample(frac=1, random_state=0)
rows = {name: table.iloc[k:240:4] for k, name in enumerate(HOSPITALS)}
new = {name: table.iloc[240 + k :: 4] for k, name in enumerate(HOSPITALS)}
{name: (len(rows[name]), len(new[name])) for name in HOSPITALS}

# %% [markdown]
# Those are the numbers of patients that each hospital shares, and of new ones that it predicts later.
#
# ## The study is one public file
#
# The designer drafts it from the columns' names and meaning, with ε = 2 as the promise to every patient. No row is
# read. Every hospital sees whether its table fits before there are keys.

# %%
from mooring import (
    DeclaredColumns,
    DraftSettings,
    Study,
    SumSettings,
    check_table_fit,
    draft_study,
)

place = Path(tempfile.mkdtemp())
post = place / "post"
post.mkdir()
text = draft_study(
    rows["north"],
    name="progression",
    label="outcome",
    known=DeclaredColumns(ranges=RANGES, classes=("better", "worse")),
    settings=DraftSettings(mechanism=SumSettings(epsilon=2.0)),
)
(post / "study.toml").write_text(text, encoding="utf-8")
fit, _ = check_table_fit(Study.read(post / "study.toml"), rows["south"])
fit

# %% [markdown]
# ## Join
#
# Everybody makes keys in a vault, which never leaves its machine, and a card with the public halves. The designer
# enters the cards, which fixes the study's fingerprint. People compare it by telephone: whoever has another
# fingerprint has another study.

# %%
from mooring import Participant, enrol_cards, issue_card

vaults = {name: Participant.join(place / name) for name in HOSPITALS}
vaults["analyst"] = Participant.join(place / "analyst")
cards = []
for name, vault in vaults.items():
    cards.append(post / f"{name}.card.toml")
    role = "analyst" if name == "analyst" else "participant"
    issue_card(vault, cards[-1], name=name, role=role)
study = enrol_cards(post / "study.toml", cards)
hospitals = {name: Participant(study, vaults[name]) for name in HOSPITALS}
study.fingerprint

# %% [markdown]
# ## Look before anything leaves
#
# A hospital checks its own rows: do they fit, and what do attacks get from sums over rows like these? This is the
# page to decide on.

# %%
hospitals["south"].check(rows["south"])

# %% [markdown]
# ## Share once
#
# What leaves is a file of sealed shares of the hospital's sums, with its part of the noise. Nobody opens it: only
# the total of all hospitals can be opened, once enough of them have added up their shares.

# %%
inbox = place / "inbox"
inbox.mkdir()
for name, hospital in hospitals.items():
    hospital.share(rows[name], output=inbox / f"{name}.bundle")
{
    file.name: f"{file.stat().st_size / 1e3:.0f} kB"
    for file in sorted(inbox.iterdir())
}

# %% [markdown]
# There is one upload for each study, so that the promise is kept. Who shares again gets the first file again, byte by
# byte, even if other rows are given:

# %%
again = hospitals["north"].share(new["north"], output=place / "again.bundle")
first = (inbox / "north.bundle").read_bytes()
again.reissued, (place / "again.bundle").read_bytes() == first

# %% [markdown]
# ## One total
#
# Each hospital tests the shares that it got. The analyst closes the list of contributions, and each hospital adds up
# its shares of the listed ones, once.

# %%
from mooring import Analyst

for name, hospital in hospitals.items():
    receipt = inbox / f"{name}.receipt"
    hospital.take("combine", bundles=inbox, output=receipt)

analyst = Analyst(study, place / "analysis", vaults["analyst"].signing_key)
contributions = analyst.collect(inbox).bundles
closing = analyst.gather(contributions, receipts=inbox)
closing.participants

# %% [markdown]
# With the shares of two hospitals, the analyst gets nothing:

# %%
from mooring import MooringError

total = {"bundles": inbox, "list": analyst.folder / "closing.list"}
for name in HOSPITALS[:2]:
    hospitals[name].take("combine", **total, output=inbox / f"{name}.share")
try:
    analyst.train(shares=inbox)
except MooringError as refusal:
    print(refusal)

# %% [markdown]
# With those of the others, the total opens, and a model is trained on it.

# %%
for name in HOSPITALS[2:]:
    hospitals[name].take("combine", **total, output=inbox / f"{name}.share")
training = analyst.train(shares=inbox)
analyst.deliver(place / "results")
training

# %% [markdown]
# ## Predict new patients
#
# Each hospital predicts its new patients on its own machine, with a model of its own rows beside the joint one.

# %%
predictions = {
    name: hospital.predict(
        new[name], result=place / "results" / name, own_rows=rows[name]
    )
    for name, hospital in hospitals.items()
}
predictions["south"]

# %% [markdown]
# Did joining pay? With so few new patients, many differences cannot be distinguished from chance, and mooring says so.

# %%
for name, prediction in predictions.items():
    print(f"{name:6}", prediction.gain.sentence())

# %%
from mooring.report.charts import Comparison, draw_comparisons

draw_comparisons(
    [
        Comparison(name, alone=found.local_only, together=found.score)
        for name, found in predictions.items()
    ]
)

# %% [markdown]
# The same with one command for each person is in [Get started](../get-started.md#a-first-study), and [the
# protocol](../protocol.md) says what happens when somebody is late or leaves.
