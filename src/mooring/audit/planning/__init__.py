"""The plan: points are searched on one half of the rows, and the chosen point is reported on the other half.

If the limit bounds ε, there is no search, and all points are reported.
"""

from mooring.audit.planning.plan import Plan
from mooring.audit.planning.planner import plan_study

__all__ = ["Plan", "plan_study"]
