"""An audit and a plan with all settings side by side, for tests that change one of them at a time."""

from dataclasses import fields
from typing import Any

from mooring.audit import AuditResult, AuditSettings, Plan, PointGrid, plan_study, run_audit


def _take(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    return {one.name: options.pop(one.name) for one in fields(kind) if one.name in options}


def audited(*data: Any, **options: Any) -> AuditResult:
    """`run_audit` with the fields of `PointGrid` and `AuditSettings` as keywords."""
    settings = AuditSettings(**_take(AuditSettings, options))
    grid = PointGrid(**_take(PointGrid, options))
    return run_audit(*data, **{"points": grid, **options}, settings=settings)


def planned(*data: Any, **options: Any) -> Plan:
    """`plan_study` with the fields of `AuditSettings` as keywords."""
    settings = AuditSettings(**_take(AuditSettings, options))
    return plan_study(*data, **options, settings=settings)
