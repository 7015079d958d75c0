"""Writes scikit-learn's breast-cancer table as a CSV file: ten measurements of cell nuclei, and the diagnosis.

python breast_cancer.py TABLE.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer


def main() -> None:
    """Keep the ten 'worst' measurements, the largest of each image, under plain names."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    data = load_breast_cancer()
    chosen = [k for k, name in enumerate(data.feature_names) if name.startswith("worst ")]
    header = [data.feature_names[k].removeprefix("worst ").replace(" ", "_") for k in chosen]
    with Path(sys.argv[1]).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*header, "diagnosis"])
        for values, target in zip(data.data[:, chosen].tolist(), data.target, strict=True):
            writer.writerow([*values, data.target_names[target]])


if __name__ == "__main__":
    main()
