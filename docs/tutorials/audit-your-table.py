# %% [markdown]
# # Audit your own table
#
# What would an upload of rows like yours disclose, what would joining be worth, and which method keeps to a limit?
# Nothing leaves this notebook. Put your own data frame (pandas or polars) instead of `table`, its label instead of
# `LABEL`, and its ranges, categories and classes below.

# %%
from sklearn.datasets import load_breast_cancer

data = load_breast_cancer(as_frame=True)
COLUMNS = [
    "mean radius",
    "mean texture",
    "mean smoothness",
    "mean concavity",
    "mean symmetry",
]
table = data.data[COLUMNS].assign(
    tumour=data.target.map({0: "malignant", 1: "benign"})
)
LABEL = "tumour"
table.head(3)

# %% [markdown]
# ## Does it fit a study?
#
# A study declares ranges from what the columns mean, never from anybody's rows. `draft_study` reads names and types.
# Ranges that you do not give stay open, and the draft is refused until somebody fills them in.

# %%
import tempfile
from pathlib import Path

from mooring import DeclaredColumns, Study, check_table_fit, draft_study

known = DeclaredColumns(
    ranges={
        "mean radius": (5, 40),
        "mean texture": (5, 50),
        "mean smoothness": (0, 0.3),
        "mean concavity": (0, 0.6),
        "mean symmetry": (0, 0.5),
    },
    classes=("benign", "malignant"),
)
draft = Path(tempfile.mkdtemp()) / "study.toml"
draft.write_text(
    draft_study(table, name="tumour", label=LABEL, known=known),
    encoding="utf-8",
)
study = Study.read(draft)
fit, _ = check_table_fit(study, table)
fit

# %% [markdown]
# A table that does not fit is described with every problem at once, with the first rows and what to do. No value is
# quoted, except a number that often stands for a missing one, such as 999.

# %%
spoiled = table.astype(object)
spoiled.loc[3, "mean radius"] = "17,99"
spoiled.loc[5:9, "mean texture"] = 999
spoiled.loc[7, "tumour"] = "Benign"
fit, _ = check_table_fit(study, spoiled)
fit

# %% [markdown]
# ## What would an upload disclose?
#
# Rows are divided among four participants. The first colludes with the analyst, and every attack that applies is run
# on others' uploads: by rotation without noise and with two scales of it, and by secure sums at ε = 1.

# %%
import numpy as np

from mooring import AuditSettings, PointGrid, partition, read_records, run_audit

records = read_records(table, label=LABEL)
parts = partition(
    records, n_participants=4, rows_each=60, rng=np.random.default_rng(0)
)
points = PointGrid(
    ["aa-i-gdp", "aa-i-gdp-data-noise"],
    data_noise_scales=[0.5, 1.0],
    epsilons=[1.0],
)
audit = run_audit(
    parts, points=points, settings=AuditSettings(learner="linear")
)
audit

# %% [markdown]
# An error is of the rows as standardised columns: 0 is exact, and 1 is no better than the mean ([what each measure
# means](../audit.md#what-an-audit-measures)). The first chart has every attack's error at each setting of rotation,
# and joins the strongest by a line. The second compares mechanisms: the joint model's score against how many members
# an attacker recognises.

# %%
from mooring.report.charts import draw_audit, draw_mechanisms

draw_audit(audit)["envelope"]

# %%
draw_mechanisms(audit)

# %% [markdown]
# ## Which method keeps to a limit?
#
# A plan takes a limit on what the strongest attack may recover, and looks for the operating point that keeps to it
# and scores best. Or it takes a limit on ε, for a guarantee that holds against every attack, which secure sums can
# carry. The search takes one half of the rows, and the figures come from the other.

# %%
from mooring import plan_study

plan = plan_study(parts, limit="epsilon at most 2")
plan

# %% [markdown]
# In short:

# %%
print("Does joining pay?", plan.answer)
print(plan.mechanism_lines())

# %% [markdown]
# The last lines go into a study's file. [Plan and audit](../audit.md) has the same as commands, which also write a
# page with pictures.
