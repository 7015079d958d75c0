#!/bin/sh
# Installs mooring from this folder, without network:  sh install.sh [FOLDER]
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
target=${1:-$here/mooring}
[ -x "$target/bin/python" ] || "${PYTHON:-python3}" -m venv "$target"
"$target/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$here/wheels" \
    --require-hashes --requirement "$here/requirements.txt" || {
    echo "install.sh: not installed. These wheels: $(sed -n '1s/# //p' "$here/requirements.txt") PYTHON=... names another Python." >&2
    exit 1
}
echo "Installed: $target/bin/mooring"
