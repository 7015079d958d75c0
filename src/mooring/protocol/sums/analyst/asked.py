"""The answers that the analyst's commands read off a total, kept in the work folder for the report.

Each answer is a file of its own in the folder `answers`; an answer that is asked for again is kept once. All answers follow
from the total, so that they disclose nothing beyond the total.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from mooring.atomic_io import make_folder, write_atomically
from mooring.mechanisms.sums.answers import Answer, AskedAnswer
from mooring.protocol.messages.study import Study
from mooring.serialization import read_record

FOLDER = "answers"
_MOST_ANSWERS = 200


def keep_answer(study: Study, folder: Path, answer: Answer, command: str) -> Path:
    """Write an answer to the analyst's work folder and return its file."""
    asked = AskedAnswer(command, study.digest, answer)
    name = f"{answer.answer}-{hashlib.sha256(answer.to_json().encode()).hexdigest()[:12]}.json"
    make_folder(folder / FOLDER, what="the answers")
    write_atomically(folder / FOLDER / name, asked.to_json().encode(), mode=0o600, what="the answer")
    return folder / FOLDER / name


def read_answers(folder: Path, study: Study | None = None) -> tuple[AskedAnswer, ...]:
    """Return the first 200 kept answers, in the order of their file names; with a study, only its answers among these."""
    files = sorted((folder / FOLDER).glob("*.json"))[:_MOST_ANSWERS]
    cure = "Ask the question again, or delete the file."
    answers = [read_record(AskedAnswer, file, what=f"the answer {file.name}", cure=cure) for file in files]
    return tuple(asked for asked in answers if study is None or asked.study == study.digest)
