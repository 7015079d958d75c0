#!/usr/bin/env bash
# Four hospitals and an analyst, each in a folder of its own, from their tables to one model and a report.
#
#   ./run.sh FOLDER-WITH-THE-DATA [WORK-FOLDER]
#
# The data is the "Heart Disease" set of the UCI Machine Learning Repository: the four files processed.cleveland.data,
# processed.hungarian.data, processed.switzerland.data and processed.va.data. HEART_DATA may name their folder instead.
# With QUICK=1 only Cleveland runs the slow steps (check, predict, report). With WAY=sums hospitals upload sealed sums, with a
# formal guarantee, instead of rows.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
data=${1:-${HEART_DATA:-}}
work=${2:-heart-study}
python=${PYTHON:-python3}
hospitals="cleveland hungary switzerland long-beach"
patient=${QUICK:+cleveland}  # who takes the time to look
patient=${patient:-$hospitals}
way=${WAY:-rotation}

command -v mooring > /dev/null || { echo "run.sh: mooring is not on the PATH; install it first." >&2; exit 2; }
if [ -z "$data" ] || [ ! -f "$data/processed.cleveland.data" ]; then
    echo "run.sh: the heart-disease data is not there." >&2
    echo "Download 'Heart Disease' from the UCI Machine Learning Repository (archive.ics.uci.edu), unpack it, and run:" >&2
    echo "    ./run.sh FOLDER    # the one that holds processed.cleveland.data and its three neighbours" >&2
    exit 2
fi
if [ -e "$work" ]; then
    echo "run.sh: $work is there already; vaults are not overwritten. Move it away or name another work folder." >&2
    exit 2
fi
data=$(cd "$data" && pwd)

say() { printf '\n== %s\n' "$*"; }
in_folder() { (cd "$1" && shift && "$@"); }

say "Each hospital writes its table"
mkdir -p "$work"
cd "$work"
"$python" "$here/prepare.py" "$data" .
mkdir -p designer analyst/inbox post

say "The designer drafts the study from what the columns mean; the file that it reads is a header alone"
head -n 1 cleveland/rows.csv > designer/header.csv
in_folder designer "$here/study-draft.sh" header.csv

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

extra=()
if [ "$way" = rotation ]; then
    say "The first hospital of the roster makes the anchor"
    in_folder cleveland mooring deal --output ../post/heart.anchor
    extra=(--anchor ../post/heart.anchor)
fi
for hospital in $patient; do
    say "$hospital looks before anything leaves"
    in_folder "$hospital" mooring check rows.csv "${extra[@]}" --ignore vessels --ignore thallium || [ $? -eq 3 ]  # 3: advised not to share
done
[ "$way" = sums ] || extra+=(--labels)
for hospital in $hospitals; do
    say "$hospital uploads, once"
    in_folder "$hospital" mooring share rows.csv "${extra[@]}" --ignore vessels --ignore thallium \
        --output "../analyst/inbox/$hospital.bundle"
done

if [ "$way" = sums ]; then
    say "All four combine: they test their shares, the analyst closes the list, they add up"
    for hospital in $hospitals; do
        in_folder "$hospital" mooring combine --bundles ../analyst/inbox --output "../analyst/inbox/$hospital.receipt"
    done
    in_folder analyst mooring align --bundles inbox --receipts inbox
    cp analyst/analysis/closing.list post/
    for hospital in $hospitals; do
        in_folder "$hospital" mooring combine --bundles ../analyst/inbox --list ../post/closing.list \
            --output "../analyst/inbox/$hospital.share"
    done
    in_folder analyst mooring train --shares inbox
    say "From the same total, the analyst reads a Table 1 and a regression"
    in_folder analyst mooring describe --by disease --page ../table-1.html
    in_folder analyst mooring regress "disease ~ exercise_angina" --page ../regression.html
else
    say "The analyst aligns and trains"
    in_folder analyst mooring align --bundles inbox
    in_folder analyst mooring train
fi
say "The analyst delivers"
in_folder analyst mooring deliver --output results
for hospital in $hospitals; do
    cp -r "analyst/results/$hospital" "$hospital/result"
done

for hospital in $patient; do
    say "$hospital scores rows that it did not share, beside a model of its raw rows alone"
    in_folder "$hospital" mooring predict new-rows.csv --result result --beside rows.csv \
        --ignore vessels --ignore thallium
    in_folder "$hospital" mooring report vault --output report.html
done

say "The analyst's report"
in_folder analyst mooring report analysis --output ../report.html
