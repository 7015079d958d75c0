#!/usr/bin/env bash
# Drafts study.toml in the current folder. Ranges and categories follow from what a column means (heart-disease.names and
# common sense about blood pressure), never from anybody's rows.
#
#   study-draft.sh HEADER.csv        WAY=sums drafts a study of secure sums, with EPSILON (1)
set -euo pipefail

# Hospitals measure what they need, so values are missing everywhere: they become the middle of the range, or none of the
# categories.
if [ "${WAY:-rotation}" = sums ]; then
    method=(--mechanism secure-sum --epsilon "${EPSILON:-1}"
        --question model --question tables --question regression)
else
    method=(--data-noise "${DATA_NOISE:-0.5}")
fi
mooring study init "$1" --name heart --label disease --classes no,yes \
    --ignore vessels --ignore thallium \
    --missing fill \
    --range age=18:100 \
    --category sex=female,male \
    --category chest_pain=typical,atypical,other,none \
    --range blood_pressure=50:250 \
    --range cholesterol=50:700 \
    --category high_sugar=no,yes \
    --category resting_ecg=normal,st-t,hypertrophy \
    --range highest_rate=40:230 \
    --category exercise_angina=no,yes \
    --range st_depression=-5:10 \
    --category st_slope=up,flat,down \
    "${method[@]}"
