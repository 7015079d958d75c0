"""Print the survival curves of the pooled rows beside those that were read off the total: compare.py FOLDER ANSWER.json."""

import json
import sys
from pathlib import Path

import pandas as pd
from lifelines import KaplanMeierFitter


def main() -> None:
    """Print a line per group and time, and the largest deviation."""
    rows = pd.concat(pd.read_csv(path) for path in sorted(Path(sys.argv[1]).glob("*/rows.csv")))
    points = json.loads(Path(sys.argv[2]).read_text())["points"]
    largest = 0.0
    print("group  months  pooled rows  from the total  95 % interval")
    for group, part in rows.groupby("hormone"):
        curve = KaplanMeierFitter().fit(part["months"], part["event"] == "yes")
        for point in (point for point in points if point["group"] == group):
            pooled = float(curve.predict(point["end"]))
            largest = max(largest, abs(pooled - point["survival"]))
            interval = f"{point['low']:.2f} to {point['high']:.2f}"
            print(f"{group:5}  {point['end']:6g}  {pooled:11.2f}  {point['survival']:14.2f}  {interval}")
    print(f"Largest deviation: {largest:.3f}")


if __name__ == "__main__":
    main()
