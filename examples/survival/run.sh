#!/usr/bin/env bash
# A breast-cancer trial split at random into four invented hospitals, from their tables to survival curves by treatment, with one sealed upload each.
#
#   ./run.sh [WORK-FOLDER]
#
# The data is GBSG2, which ships with lifelines (pip install lifelines). EPSILON (8) sets the guarantee.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=${1:-survival-study}
python=${PYTHON:-python3}
hospitals="north east south west"

command -v mooring > /dev/null || { echo "run.sh: mooring is not on the PATH; install it first." >&2; exit 2; }
"$python" -c "import lifelines" || { echo "run.sh: install lifelines, which has the data." >&2; exit 2; }
if [ -e "$work" ]; then
    echo "run.sh: $work exists; vaults are not overwritten. Move it away or name another work folder." >&2
    exit 2
fi

say() { printf '\n== %s\n' "$*"; }
in_folder() { (cd "$1" && shift && "$@"); }

mkdir -p "$work"
cd "$work"
"$python" "$here/prepare.py" .
mkdir -p designer analyst/inbox post

say "The designer drafts the study from what the columns mean"
head -n 1 north/rows.csv > designer/header.csv
edges=()
for month in 0 6 12 18 24 30 36 48 60 72; do edges+=(--survival-edge "$month"); done
in_folder designer mooring study init header.csv --name trial --range age=18:100 --category hormone=no,yes \
    --range months=0:84 --category event=no,yes --mechanism secure-sum --epsilon "${EPSILON:-8}" \
    --question tables --question survival --survival-time months --survival-event event --survival-occurred yes "${edges[@]}"

say "Everybody makes keys, and the designer enters the cards"
cards=()
for hospital in $hospitals; do
    in_folder "$hospital" mooring join --name "$hospital" --output "../post/$hospital.card.toml"
    cards+=("../post/$hospital.card.toml")
done
in_folder analyst mooring join --role analyst --name analyst --output ../post/analyst.card.toml
in_folder designer mooring study enrol "${cards[@]}" ../post/analyst.card.toml
cp designer/study.toml post/
export MOORING_STUDY=../post/study.toml

say "Every hospital uploads once, and all combine: they test their shares, the analyst closes the list, they add up"
for hospital in $hospitals; do
    in_folder "$hospital" mooring share rows.csv --output "../analyst/inbox/$hospital.bundle"
done
for hospital in $hospitals; do
    in_folder "$hospital" mooring combine --bundles ../analyst/inbox --output "../analyst/inbox/$hospital.receipt"
done
in_folder analyst mooring align --bundles inbox --receipts inbox
cp analyst/analysis/closing.list post/
for hospital in $hospitals; do
    in_folder "$hospital" mooring combine --bundles ../analyst/inbox --list ../post/closing.list \
        --output "../analyst/inbox/$hospital.share"
done

say "The analyst reads a Table 1 and survival curves off the total"
in_folder analyst mooring describe --by hormone
in_folder analyst mooring survival --by hormone --life-table --page ../survival.html
in_folder analyst mooring survival --by hormone --life-table --format json > survival.json

say "The analyst's report, with everything that was asked"
in_folder analyst mooring report analysis --output ../report.html

say "Beside the curves of the pooled rows, which nobody has in a real study"
"$python" "$here/compare.py" . survival.json compare.html
