"""Splits one CSV file into folders of participants that have rows to share and rows to score later.

    python split.py TABLE.csv FOLDER NUMBER-OF-PARTICIPANTS [MOST-ROWS]

Only for a rehearsal: in a real study the rows lie with the participants from the beginning. Rows are shuffled with a fixed
seed and split in turn; every fourth of a participant's rows goes to new-rows.csv.
"""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path


def main() -> None:
    """Read the table and split it among participants."""
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    table, folder, n_participants = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    with table.open(newline="", encoding="utf-8-sig") as file:
        header, *rows = [line for line in csv.reader(file) if line]
    random.Random(0).shuffle(rows)
    rows = rows[: int(sys.argv[4])] if len(sys.argv) == 5 else rows
    for k in range(n_participants):
        own = rows[k::n_participants]
        place = folder / f"participant-{k + 1}"
        write(place / "rows.csv", header, [row for j, row in enumerate(own) if j % 4 != 3])
        write(place / "new-rows.csv", header, own[3::4])


def write(path: Path, header: list[str], rows: list[list[str]]) -> None:
    """A table with a header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


if __name__ == "__main__":
    main()
