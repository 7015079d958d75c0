"""The pages of an audit and of a plan, and the section on an audit in the report of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from mooring import AuditResult, Plan
from mooring.attacks import Attack, CollusionView, SumView, attacks_on
from mooring.audit import PointResult
from mooring.audit.results.point_result import Examples, find_strongest
from mooring.audit.results.statements import state_only_class, state_strongest, state_total
from mooring.learners import Score
from mooring.mechanisms.sums.guarantee import bound_odds
from mooring.metrics import Figure
from mooring.metrics.measures import MEASURES, RISKS
from mooring.metrics.membership import FALSE_POSITIVE_RATES
from mooring.report.charts import Comparison, ErrorTable, draw_audit, list_images, order_points, tabulate_errors
from mooring.report.frame import render_page
from mooring.report.pictures import Picture, picture_attackers, picture_joining, picture_trade_off
from mooring.report.plot import Chart

_MEMBERSHIP = "membership_at_1_percent"
_BRIEFLY = {
    "centred_error": "rows with an error of {} (0 is exact)",
    "linkage": "{} of rows picked out of ten look-alikes",
    "membership_auc": "membership AUC of {} (0.5 is chance)",
    _MEMBERSHIP: "{} of members at 1 % false alarms",
}
_VERSIONS = ("mooring", "seed", "learner", "device", "machine")
_MOST_COLUMNS, _MOST_ROWS, _MOST_CELLS = 8, 4, 20
_SHOWN = ("original", "rebuilt", "guessed without the upload")


@dataclass(frozen=True)
class Cell:
    """One cell of a person's row: its original value, what was rebuilt, and what a guess without the upload would be."""

    column: str
    original: str
    rebuilt: str
    guess: str | None

    @property
    def is_found(self) -> bool:
        """Whether what was rebuilt is right."""
        return self.rebuilt == self.original

    @property
    def is_guessed(self) -> bool:
        """Whether a guess by label and population is right."""
        return self.guess == self.original


@dataclass(frozen=True)
class Person:
    """A row of a table in words. If the table has many columns, only those in which the attack did best are kept."""

    number: int | None
    cells: tuple[Cell, ...]
    n_more: int
    """Number of columns that are not shown."""


@dataclass(frozen=True)
class MechanismLine:
    """One mechanism beside others: its score, what an attacker gets, and what is promised."""

    name: str
    score: Score | None
    attacker: str
    """What an attacker gets, with its interval, chance and control."""
    promise: str
    brief: str
    """What an attacker gets, in a few words for a terminal."""


@dataclass(frozen=True)
class AuditSection:
    """What a page shows of an audit, and of the plan that it belongs to."""

    result: AuditResult
    plan: Plan | None = None
    detailed_point: PointResult | None = None
    """The point to show in detail. If it is None, the chosen point is shown or, without a chosen point, the point with the
    least error above zero."""

    measures = MEASURES
    questions = RISKS

    @property
    def tried(self) -> AuditResult:
        """The audit of every point that was tried."""
        return self.result if self.plan is None else self.plan.tried

    @property
    def setting(self) -> str:
        """Who took part in the simulation, and who attacked whom."""
        about = self.result.description
        low, high = about.rows_each
        rows = f"{low}" if low == high else f"{low} to {high}"
        colluders, targets = ", ".join(about.colluders) or "nobody", ", ".join(about.targets)
        verb = "collude" if len(about.colluders) > 1 else "colludes"
        return (
            f"{about.n_participants} participants with {rows} rows of {about.n_features} features each were simulated; "
            f"{colluders} {verb} with the analyst against {targets}."
        )

    @property
    def is_about_totals(self) -> bool:
        """Whether the headline is about totals, and uploads of rows stand beside them for contrast."""
        headline = self.result.headline_point
        return headline is not None and not headline.point.shares_rows

    @property
    def sentences(self) -> list[str]:
        """What to read first."""
        guarded = [point for point in self.result.totals if point.point.promise is not None]
        instead = [] if self.is_about_totals else guarded[:1]
        return [
            *self.result.sentences,
            self.result.joining,
            *(f"If sums were uploaded instead of rows ({point.title}): {state_total(point)}" for point in instead),
        ]

    @cached_property
    def charts(self) -> dict[str, Chart]:
        """Charts by name."""
        return draw_audit(self.plan or self.result)

    @cached_property
    def errors(self) -> ErrorTable | None:
        """Every attack's error at every point."""
        return tabulate_errors(self.tried)

    @cached_property
    def images(self) -> list[tuple[str, str]]:
        """Images, original and rebuilt, as pairs of a title and a data URL; empty for tables."""
        return list_images(self.tried)

    @property
    def points(self) -> list[PointResult]:
        """The points at which rows are shared, in the order of `order_points`."""
        return order_points(self.tried)

    @property
    def gain_heading(self) -> str:
        """The heading of the column of gains."""
        gain = next((point.gain for point in self.tried.points if point.gain is not None), None)
        return "percentage points over alone" if gain is None or gain.is_percent else f"{gain.metric} over alone"

    @cached_property
    def detailed(self) -> PointResult | None:
        """The point shown in detail; None if there is none, or if no attack could be run at it."""
        headline = None if self.result.chosen is None else self.result.headline_point
        chosen = headline if headline is not None and headline.point.shares_rows else None
        point = self.detailed_point or chosen or _least_protected_that_hides_something(self.result)
        return None if point is None or point.worst() is None else point

    @property
    def risks(self) -> dict[str, dict[str, tuple[str, Figure]]]:
        """All figures at the detailed point by risk and measure, each with the name of the attack that reaches it."""
        point = self.detailed
        figures = {name: worst for name in MEASURES if point is not None and (worst := point.worst(name)) is not None}
        by_risk = {
            risk: {name: worst for name, worst in figures.items() if MEASURES[name].risk == risk} for risk in RISKS
        }
        return {risk: measured for risk, measured in by_risk.items() if measured}

    @property
    def examples(self) -> Examples | None:
        """Rows of a table, original beside rebuilt; None if rows are images or were not kept."""
        examples = None if self.detailed is None else self.detailed.examples
        return None if examples is None or examples.image_shape else examples

    @property
    def has_examples(self) -> bool:
        """Whether the results hold anybody's rows, so that the page may show them."""
        return any(point.examples is not None for point in self.tried.points)

    @property
    def persons(self) -> list[Person]:
        """The rows in words; empty if the columns are not known."""
        examples = self.examples
        if examples is None or not examples.columns:
            return []
        original = examples.words["original"]
        guesses = examples.words.get("guessed without the upload") or ((None,) * len(examples.columns),) * len(original)
        numbers = examples.row_numbers or (None,) * len(original)
        return [
            _pick_cells(number, [Cell(*parts) for parts in zip(examples.columns, *row, strict=True)])
            for number, *row in zip(numbers, original, examples.words["rebuilt"], guesses, strict=True)
        ]

    @property
    def example_columns(self) -> list[str]:
        """Names of the columns of `example_lines`."""
        examples = self.examples
        if examples is None:
            return []
        n = min(_MOST_COLUMNS, len(examples.rows["original"][0]))
        return list(examples.feature_names[:n]) or [f"column {k + 1}" for k in range(n)]

    @property
    def example_lines(self) -> list[tuple[int, str, tuple[float, ...]]]:
        """The rows as numbers: the row's number, its version (such as "rebuilt"), and the values of the first columns."""
        examples, n = self.examples, len(self.example_columns)
        if examples is None:
            return []
        return [
            (k + 1, name, examples.rows[name][k][:n])
            for k in range(min(_MOST_ROWS, len(examples.rows["original"])))
            for name in _SHOWN
            if name in examples.rows
        ]

    @property
    def totals(self) -> tuple[PointResult, ...]:
        """The points at which totals are shared."""
        return self.tried.totals

    @property
    def totals_alone(self) -> Score | None:
        """The score of training alone with the features of the totals; None if it was not measured."""
        return next((point.alone for point in self.totals if point.alone is not None), None)

    @property
    def guesses(self) -> list[str]:
        """What an attacker without the totals reaches by each measure of membership; an empty text if this is not known."""
        worst = [self.totals[0].worst(measure) for measure in ("membership_auc", *FALSE_POSITIVE_RATES)]
        return ["" if pair is None else pair[1].describe().control or "" for pair in worst]

    @property
    def chances(self) -> list[str]:
        """What chance reaches by each measure of membership; with n non-members, no false positive rate is below 1 / n."""
        worst = [self.totals[0].worst(measure) for measure in ("membership_auc", *FALSE_POSITIVE_RATES)]
        return [pair[1].describe().chance or "" for pair in worst if pair is not None]

    @property
    def scope(self) -> str:
        """Against whom the guarantee of the totals holds; empty without a guarantee, or if only totals were audited."""
        guarded = (point.point for point in self.totals if point.point.promise is not None)
        scope = next((point.state_scope() for point in guarded), "")
        return scope if self.result.row_points else ""

    @property
    def compared(self) -> list[MechanismLine]:
        """The mechanisms that the audit simulated, side by side."""
        return compare_mechanisms(self.result)

    @property
    def row_attacks(self) -> Sequence[Attack]:
        """Attacks on uploads of rows."""
        return attacks_on(CollusionView)

    @property
    def total_attacks(self) -> Sequence[Attack]:
        """Attacks on totals."""
        return attacks_on(SumView)

    def write_odds(self, point: PointResult) -> str:
        """The largest factor by which a test can change the odds that a row is in the data; empty without a guarantee."""
        if point.point.promise is None:
            return ""
        odds = bound_odds(*point.point.promise)
        return f"{odds:,.0f}" if odds >= 100 else f"{odds:.3g}"

    def find_beyond(self, point: PointResult) -> Figure | None:
        """The strongest attack's AUC with more colluders than the guarantee allows for; None if it was not measured."""
        outcome = find_strongest(point.beyond, "membership_auc")
        return None if outcome is None else outcome.figures["membership_auc"]


def render_audit(result: AuditResult, *, command: str) -> str:
    """The page of an audit."""
    return _render("What an upload discloses", result, AuditSection(result), command)


def render_plan(plan: Plan, *, command: str) -> str:
    """The page of a plan."""
    best = plan.recommended if plan.recommended is not None and plan.recommended.point.shares_rows else None
    return _render("Which operating point, if any", plan, AuditSection(plan.audit, plan, best), command)


def _render(title: str, audited: AuditResult | Plan, section: AuditSection, command: str) -> str:
    made = {name: getattr(section.result.description, name) for name in _VERSIONS}
    values = {"title": title, "decision": audited.decision, "audit": section, "command": command, "made": made}
    values["pictures"] = _draw_pictures(audited, section.result)
    point = section.result.headline_point
    values["attention"] = [words for words in ("" if point is None else state_only_class(point),) if words]
    return render_page("audit.html.jinja", values)


def _draw_pictures(audited: AuditResult | Plan, result: AuditResult) -> list[Picture]:
    """Return pictures of what joining gives, what an attacker gets and the trade-off, for the point of the headline."""
    point, references = result.headline_point, result.references
    if point is None:
        return []
    compared = Comparison("simulated", result.find_alone(point), point.deployed, references.pooled_raw)
    gain = "Alone and together were not compared row by row." if point.gain is None else point.gain.sentence()
    chosen = point if len(result.usable_points) == 1 or result.chosen is not None else None
    caveat = "" if chosen is not None else f"This is the least safe setting that a study may have ({point.title})."
    return [
        *picture_joining([compared], gain),
        *picture_attackers(point, point.point.promise, caveat=caveat),
        *picture_trade_off(audited, chosen),
    ]


def compare_mechanisms(result: AuditResult) -> list[MechanismLine]:
    """Return a line for each mechanism that an audit simulated, between training alone and pooling all raw rows."""
    leaves_nothing = ("nothing", "nothing leaves", "nothing")
    lines = [MechanismLine("alone", result.references.local_only, *leaves_nothing)]
    alone = next((point.alone for point in result.totals if point.alone is not None), None)
    if alone is not None:
        lines.append(MechanismLine("alone, with the features of the sums", alone, *leaves_nothing))
    for point in (*result.totals, *result.row_points):
        measures = ("centred_error", "linkage") if point.point.shares_rows else ("membership_auc", _MEMBERSHIP)
        clauses = [clause for measure in measures if (clause := state_strongest(point, measure))]
        promise = point.point.promise
        promised = "nothing" if promise is None else f"ε = {promise[0]:g}, δ = {promise[1]:g} per row"
        name = f"{point.title}: rows uploaded" if point.point.shares_rows else point.title
        figures = {measure: worst[1] for measure in measures if (worst := point.worst(measure)) is not None}
        brief = "; ".join(_BRIEFLY[measure].format(figure.describe().value) for measure, figure in figures.items())
        none_ran = "no attack could be run"
        lines.append(MechanismLine(name, point.deployed, ". ".join(clauses) or none_ran, promised, brief or none_ran))
    return [*lines, MechanismLine("pooled raw", result.references.pooled_raw, "every row", "nothing", "every row")]


def _pick_cells(number: int | None, cells: Sequence[Cell]) -> Person:
    telling = sorted(cells, key=lambda cell: cell.is_guessed - cell.is_found)[:_MOST_CELLS]
    shown = tuple(cell for cell in cells if cell in telling)
    return Person(number, shown, len(cells) - len(shown))


def _least_protected_that_hides_something(result: AuditResult) -> PointResult | None:
    """Return the point with the least error above zero; if all errors are zero, the first; None if no attack was run."""
    known = [(point, worst[1].value) for point in order_points(result) if (worst := point.worst()) is not None]
    hiding = [(point, value) for point, value in known if value > 1e-6]
    return next((point for point, _ in hiding or known), None)
