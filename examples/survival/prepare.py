"""Write the breast-cancer trial GBSG2, which lifelines ships, as tables of four hospitals: prepare.py FOLDER."""

import sys
from pathlib import Path

import numpy as np
from lifelines.datasets import load_gbsg2

HOSPITALS = ("north", "east", "south", "west")


def main() -> None:
    """Split the patients among the hospitals at random, and keep the columns of the study."""
    folder = Path(sys.argv[1])
    patients = load_gbsg2()
    patients["months"] = (patients["time"] / 30.44).clip(upper=84).round(2)
    patients["event"] = np.where(patients["cens"] == 1, "yes", "no")
    patients["hormone"] = patients["horTh"].astype(str)
    columns = patients[["age", "hormone", "months", "event"]]
    order = np.random.default_rng(0).permutation(len(columns))
    for hospital, rows in zip(HOSPITALS, np.array_split(order, len(HOSPITALS)), strict=True):
        (folder / hospital).mkdir(parents=True, exist_ok=True)
        columns.iloc[rows].to_csv(folder / hospital / "rows.csv", index=False)


if __name__ == "__main__":
    main()
