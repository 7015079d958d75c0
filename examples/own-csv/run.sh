#!/usr/bin/env bash
# A rehearsal on one machine: one CSV file, split among participants, through every step of a study.
#
#   ./run.sh                                                     # scikit-learn's breast-cancer table
#   ./run.sh patients.csv --label ill --classes no,yes --range age=0:120 --category sex=female,male
#
# What follows the table goes to 'mooring study init' as it is. If that leaves entries open, the draft is kept for you to
# complete; then run:  STUDY=study.toml ./run.sh patients.csv
#
# PARTICIPANTS (3), WORK (own-csv-study), ROWS (all): how many participants, which new folder, how many rows at most.
# With QUICK=1 only the first participant runs the slow steps (check, predict).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-own-csv-study}
python=${PYTHON:-python3}
participants=${PARTICIPANTS:-3}

absolute() { echo "$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"; }
say() { printf '\n== %s\n' "$*"; }
in_folder() { (cd "$1" && shift && "$@"); }

command -v mooring > /dev/null || { echo "run.sh: mooring is not on the PATH; install it first." >&2; exit 2; }
if [ -e "$work" ]; then
    echo "run.sh: $work is there already; vaults are not overwritten. Move it away, or set WORK to another folder." >&2
    exit 2
fi
if [ $# -gt 0 ] && [ ! -f "$1" ]; then
    echo "run.sh: there is no table $1." >&2
    exit 2
fi
if [ -n "${STUDY:-}" ] && [ ! -f "$STUDY" ]; then
    echo "run.sh: there is no study $STUDY." >&2
    exit 2
fi
study=${STUDY:+$(absolute "$STUDY")}
mkdir -p "$work/designer" "$work/analyst/inbox" "$work/post"

if [ $# -gt 0 ]; then
    table=$(absolute "$1")
    shift
else
    "$python" "$here/breast_cancer.py" "$work/breast-cancer.csv"
    table=$(absolute "$work/breast-cancer.csv")
    # What measurements of cell nuclei in such images can be; nobody's rows were asked.
    set -- --name breast-cancer --label diagnosis --classes malignant,benign \
        --range radius=0:50 --range texture=0:60 --range perimeter=0:350 --range area=0:6000 \
        --range smoothness=0:0.5 --range compactness=0:2 --range concavity=0:2 --range concave_points=0:0.5 \
        --range symmetry=0:1 --range fractal_dimension=0:0.5
fi
cd "$work"

say "The study"
if [ -n "$study" ]; then
    cp "$study" designer/study.toml
else
    in_folder designer mooring study init "$table" "$@"
fi
if grep -q 'TODO' designer/study.toml; then
    cp designer/study.toml ../study.toml.draft
    echo "Complete $(absolute ../study.toml.draft), from what the columns mean; then run again with STUDY set to it." >&2
    cd .. && rm -r "$work"
    exit 2
fi

say "The rows, dealt to $participants participants as if they had never been together"
"$python" "$here/split.py" "$table" . "$participants" ${ROWS:+"$ROWS"}

say "Keys, cards, roster"
names=$(for k in $(seq 1 "$participants"); do echo "participant-$k"; done)
cards=()
for name in $names; do
    in_folder "$name" mooring join --name "$name" --output "../post/$name.card.toml"
    cards+=("../post/$name.card.toml")
done
in_folder analyst mooring join --role analyst --name analyst --output ../post/analyst.card.toml
in_folder designer mooring study enrol "${cards[@]}" ../post/analyst.card.toml
cp designer/study.toml post/
export MOORING_STUDY=../post/study.toml

say "The anchor"
in_folder participant-1 mooring deal --output ../post/study.anchor

patient=${QUICK:+participant-1}  # who takes the time to look
patient=${patient:-$names}
for name in $patient; do
    say "$name looks before anything leaves"
    in_folder "$name" mooring check rows.csv --anchor ../post/study.anchor || [ $? -eq 3 ]  # 3: advised not to share
done
for name in $names; do
    say "$name uploads, once"
    in_folder "$name" mooring share rows.csv --anchor ../post/study.anchor --labels --output "../analyst/inbox/$name.bundle"
done

say "The analyst aligns, trains and delivers"
in_folder analyst mooring align --bundles inbox
in_folder analyst mooring train
in_folder analyst mooring deliver --output results
for name in $names; do
    cp -r "analyst/results/$name" "$name/result"
done

for name in $patient; do
    say "$name scores rows that it did not share"
    in_folder "$name" mooring predict new-rows.csv --result result --beside rows.csv
done

say "The report"
in_folder analyst mooring report analysis --output ../report.html
