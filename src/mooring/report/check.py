"""The page of `mooring check`: the report as far as it is known before anything leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mooring.report.study_page import render_report
from mooring.report.summary import summarise

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study


def render_check(study: Study, record: Mapping[str, Any]) -> str:
    """What a participant is shown before it shares: the self-attack and the hazards, in the report's frame."""
    summary = summarise(study, {"check": record})
    return render_report(summary | {"title": "Before anything leaves: what an upload would give away"})
