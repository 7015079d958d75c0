"""The pages that steps end in: what a check found, and what a member knows of a study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.atomic_io import require_writable, write_atomically
from mooring.errors import InputError
from mooring.protocol.workspace import Outcome

if TYPE_CHECKING:
    from mooring.protocol.inspection import Inspection
    from mooring.protocol.messages.study import Study


@dataclass(frozen=True)
class StepPages:
    """Writes pages for steps; a page is readable by its owner only, since it may hold rows."""

    def write_check(self, study: Study, inspection: Inspection, output: Path) -> None:
        """Write the page of a check."""
        from mooring.report.study_page import render_check

        write_atomically(output, render_check(study, inspection).encode(), mode=0o600, what="the page")

    def write_report(
        self, study: Study | None, records: Path, output: Path, *, audit: Path | None = None, examples: bool = True
    ) -> Outcome:
        """Write the page of everything that a member knows of a study, and of an audit."""
        from mooring.report.records import StudyRecords, collect_records, read_audit
        from mooring.report.study_page import render_report
        from mooring.report.summary import summarise

        require_writable(output, what="the page")
        kept = collect_records(records, study, examples=examples)
        audited = None if audit is None else read_audit(audit, examples=examples)
        if kept == StudyRecords() and audited is None:
            expected, got = "a folder with records of a study", "a folder without any"
            cure = "Give the folder that the analyst's commands write to, your vault, or an audit with --audit."
            raise InputError("folder", expected=expected, got=got, cure=cure)
        report = summarise(study, kept, audited)
        write_atomically(output, render_report(report).encode(), mode=0o600, what="the page")
        summary = report.summary
        name = f"Study {study.name!r}, fingerprint {study.fingerprint}" if study else "The study is not known"
        return Outcome(
            report,
            summary.as_dict(),
            (f"{name}; seen by: {summary.role}.",),
            # whether joining pays, whether a row of the data is recognised, and what is rebuilt
            details=(summary.joining[0].words, *summary.leakage[:2]),
            notes=tuple(finding.words for finding in summary.attention),
            decision=summary.decision.words,
            page=output,
        )
