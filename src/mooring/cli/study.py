"""`mooring study`: draft, complete and show the file that everybody agrees on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table

from mooring.cli.execution import (
    DEFAULT_STUDY,
    Force,
    Output,
    StudyPath,
    command,
    make_table,
    make_workspace,
    read_study,
    show_progress,
    take_step,
)
from mooring.cli.forecast_output import describe_forecast
from mooring.cli.options import (
    ProjectionChoice,
    SumOptions,
    parse_named_range,
    parse_named_words,
    parse_pair,
    parse_range,
    parse_shape,
)
from mooring.cli.study_header import header, merge
from mooring.errors import InputError
from mooring.protocol.step import split_words

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study

study_app = typer.Typer(
    name="study",
    help="Draft, complete and show a study's file, which is public and which everybody agrees on.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
column_option, method_option = (partial(typer.Option, rich_help_panel=panel) for panel in ("Columns", "Method"))


@study_app.command("init")
@command
def init(
    console: Output,
    data: Annotated[Path, typer.Argument(help="A table (.csv, .parquet). The draft holds no value of its rows.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the draft.")] = DEFAULT_STUDY,
    name: Annotated[str, typer.Option(help="Name of the study.")] = "study",
    label: Annotated[str | None, column_option(help="Column to predict.")] = None,
    classes: Annotated[str, column_option(help='Classes of the label, such as "no,yes".', show_default=False)] = "",
    label_range: Annotated[
        str | None, column_option(help='Range of a label that is a number, such as "0:250".')
    ] = None,
    range: Annotated[
        list[str] | None, column_option(help='Range of a column, such as "age=0:120"; repeatable.')
    ] = None,
    all_ranges: Annotated[
        str | None, column_option(help='Range of every other column of numbers, such as "0:16".')
    ] = None,
    category: Annotated[
        list[str] | None, column_option(help='Categories of a column, such as "sex=female,male"; repeatable.')
    ] = None,
    id: Annotated[
        list[str] | None,
        column_option(
            help="Column that identifies rows. It is never uploaded, and is copied to the predictions. Repeatable."
        ),
    ] = None,
    date: Annotated[
        list[str] | None,
        column_option(help='First and last day of a column of dates: "seen=2000-01-01:2026-12-31"; repeatable.'),
    ] = None,
    birth: Annotated[
        list[str] | None,
        column_option(help='Column of dates of birth, used as the age on a public day: "born=2026-01-01"; repeatable.'),
    ] = None,
    ignore: Annotated[list[str] | None, column_option(help="Column to leave out; repeatable.")] = None,
    missing_word: Annotated[
        list[str] | None,
        column_option(
            help='Word for a missing value besides ?, NA and empty cells, such as "-9"; '
            '"chol=0" applies to one column. Repeatable.'
        ),
    ] = None,
    missing: Annotated[
        Literal["refuse", "fill", "indicate"],
        column_option(
            help="What to do with a missing value: refuse it; fill in the middle of the range, or no category; or "
            "fill it in and indicate it in a further column."
        ),
    ] = "refuse",
    image_shape: Annotated[
        str | None, column_option(help='Shape of the images if rows are images, such as "8x8".')
    ] = None,
    smallest_class: Annotated[
        int, column_option(min=1, help="A participant with fewer rows of a class than this does not share.")
    ] = 3,
    from_plan: Annotated[
        Path | None,
        method_option(
            help="A plan.json of 'mooring plan --study', whose method, noise, anchor and projection are used."
        ),
    ] = None,
    mechanism: Annotated[
        str | None,
        method_option(
            help="rotation, secure-sum, or a mechanism that another package defines.", show_default="rotation"
        ),
    ] = None,
    method: Annotated[
        str | None,
        method_option(
            help="Method of rotation; it must be one that aligns by an anchor.", show_default="aa-i-gdp-data-noise"
        ),
    ] = None,
    components: Annotated[
        int | None, method_option(min=1, help="Number of components to share.", show_default="all, up to 30")
    ] = None,
    anchor_rows: Annotated[
        int | None, method_option(min=2, help="Number of anchor rows.", show_default="four times the components")
    ] = None,
    data_noise: Annotated[
        float | None,
        method_option(
            min=0.0,
            help="Scale of the private-data noise, in units of encoded numbers, which lie between -1 and 1.",
            show_default="0.5",
        ),
    ] = None,
    anchor_noise: Annotated[
        float | None, method_option(min=0.0, help="Scale of the anchor noise.", show_default="0.1")
    ] = None,
    projection: Annotated[
        ProjectionChoice, method_option(help="How rows are projected before they are uploaded.")
    ] = "auto",
    sums: SumOptions,
    force: Force = False,
) -> None:
    """Draft a study from the names and kinds of a table's columns. Fill in the entries that stay open.

    Example: mooring study init patients.csv --label ill --classes no,yes --range age=0:120 --category sex=female,male

    Example: mooring study init patients.csv --mechanism secure-sum --epsilon 1 --label ill --classes no,yes

    Example: mooring study init patients.csv --from-plan plan-report/plan.json --label ill --classes no,yes
    """
    from mooring.atomic_io import require_absent, write_atomically
    from mooring.protocol.designer import draft
    from mooring.protocol.registry import exchange_of

    require_absent(output, force=force)
    shape = parse_shape(image_shape)
    entries = _choose_mechanism(
        from_plan,
        mechanism,
        method=method,
        n_components=components,
        n_anchor_rows=anchor_rows,
        data_noise_scale=data_noise,
        anchor_noise_scale=anchor_noise,
        projection=None if projection == "auto" else projection,
        **sums.entries(),
    )
    words = [parse_pair("--missing-word", entry) if "=" in entry else ("", entry) for entry in missing_word or ()]
    known = draft.DeclaredColumns(
        ranges=dict(parse_named_range(entry) for entry in range or ()),
        all_ranges=None if all_ranges is None else parse_range(all_ranges),
        categories=dict(parse_named_words(entry) for entry in category or ()),
        classes=split_words(classes),
        label_range=None if label_range is None else parse_range(label_range),
        ids=id or (),
        dates={name: (days[:10], days[11:]) for name, days in (parse_pair("--date", entry) for entry in date or ())},
        births=dict(parse_pair("--birth", entry) for entry in birth or ()),
        missing_words={name: [word for column, word in words if column == name] for name, _ in words if name},
        kinds=draft.infer_kinds(data),
    )
    settings = draft.DraftSettings(
        mechanism=entries,
        smallest_class=smallest_class,
        image_shape=shape,
        missing_words=[word for name, word in words if not name],
        missing=missing,
    )
    text = draft.draft_study(data, name=name, label=label, ignore=ignore or (), known=known, settings=settings)
    recognised = draft.describe_recognised(
        data, known, [*(ignore or ()), *([label] if label else []), sums.person or ""]
    )
    drafted = draft.read_draft(text)
    study, left, forecast = drafted.study, drafted.n_open, drafted.forecast
    write_atomically(output, text.encode(), what="the draft")

    console.show(
        {
            "study": str(output),
            "open_entries": left,
            "mechanism": drafted.plain["mechanism"],
            "fingerprint": None if study is None else study.fingerprint,
            "recognised": recognised,
            "forecast": None if forecast is None else forecast.as_dict(),
        },
        f"Wrote [bold]{escape(str(output))}[/bold]. It holds no value of a row.",
        *(f"  • {escape(f'{column}: {words}')}" for column, words in recognised.items()),
        f"Its mechanism is {entries['name']}.",
        *(
            []
            if study is None
            else (f"{what}: {escape(sentence)}" for what, sentence in exchange_of(study).describe_study(study))
        ),
        *(
            []
            if from_plan is None
            else ["The plan's noise assumes the column ranges of the study that it was made with."]
        ),
        *([] if forecast is None else describe_forecast(forecast)),
        f"Open entries: {left}. Fill in the lines marked TODO according to what the columns mean."
        if left
        else "Next: everybody runs 'mooring join', and 'mooring study enrol' takes their cards.",
    )


study_app.command()(header)
study_app.command()(merge)


@study_app.command("project")
@command
def project(
    console: Output,
    public_rows: Annotated[Path, typer.Argument(help="Table of public rows with the study's columns.")],
    study: StudyPath = DEFAULT_STUDY,
    components: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of components or, for secure sums, of features to keep.",
            show_default="as in the study",
        ),
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Column of the file to leave out; repeatable.")] = None,
) -> None:
    """Make a public projection from public rows, and write its digest into the study.

    In a study of secure sums of images, features are fitted to public images instead.

    Example: mooring study project public-patients.csv --study study.toml --components 20
    """
    from mooring.protocol.designer.revision import project_study
    from mooring.protocol.messages.public_file import public_file_name

    with show_progress("Reading public rows") as moved:
        revision = project_study(study, public_rows, components=components, ignore=ignore or (), progress=moved)
    file = study.parent / public_file_name(revision.study)

    console.show(
        {"projection": str(file), "digest": revision.digest, "fingerprint": revision.study.fingerprint},
        f"Wrote [bold]{escape(str(file))}[/bold], {revision.description}, and its digest into "
        f"[bold]{escape(str(study))}[/bold]. Send both to everybody.",
        f"The study's fingerprint is now [bold]{revision.study.fingerprint}[/bold].",
    )


@study_app.command("enrol")
@command
def enrol(
    console: Output,
    cards: Annotated[list[Path], typer.Argument(help="Cards that 'mooring join' wrote, including the analyst's.")],
    study: StudyPath = DEFAULT_STUDY,
) -> None:
    """Take the step 'enrol'.

    Each card must prove that whoever wrote it holds the private keys.

    Example: mooring study enrol st-mary.card.toml north.card.toml analyst.card.toml --study study.toml
    """
    console.show_outcome(take_step("enrol", make_workspace(study), cards=cards))


@study_app.command("show")
@command
def show(console: Output, study: StudyPath = DEFAULT_STUDY) -> None:
    """Describe what a study declares and who takes part, and print its fingerprint.

    Example: mooring study show --study study.toml
    """
    agreed = read_study(study)
    facts = {"digest": agreed.digest, "fingerprint": agreed.fingerprint, "encoded_width": agreed.n_features}
    console.show(agreed.as_dict() | facts, *_describe_study(agreed), *_describe_shared(agreed))


def _choose_mechanism(plan: Path | None, mechanism: str | None, **options: Any) -> dict[str, Any]:
    """Return the entries of a draft's [mechanism]: either those that were given, or those of a plan."""
    asked = {name: value for name, value in options.items() if value is not None}
    if plan is None:
        return {"name": mechanism or "rotation", **asked}
    if asked or mechanism:
        got = f"also {', '.join([*asked, *(['mechanism'] if mechanism else [])])}"
        cure = "Leave these options out, or draft without the plan."
        raise InputError("--from-plan", expected="the only option about the mechanism", got=got, cure=cure)
    from mooring.report.records import read_plan_mechanism

    return read_plan_mechanism(plan)


def _describe_shared(study: Study) -> Iterator[Table]:
    from mooring.protocol.registry import exchange_of

    if lines := exchange_of(study).list_shared(study):
        yield make_table([tuple(map(escape, line)) for line in lines], title="What a participant adds up", n_left=1)


def _describe_study(study: Study) -> Iterator[str]:
    from mooring.protocol.registry import exchange_of

    label = study.label
    predicted = {
        "none": "nothing: no label",
        "classes": f"{label.column}, one of {', '.join(label.classes)}",
        "number": f"{label.column}, a number from {label.low:g} to {label.high:g}",
    }[label.kind]
    limits = [f"an upload: {words}" for words in study.upload_limits]
    limits += [f"the model: {study.model_limit}"] if study.model_limit else []
    lines = [
        ("Study", study.name),
        ("Predicts", predicted),
        ("Mechanism", study.mechanism.name),
        *exchange_of(study).describe_study(study),
        *([("Identifiers", f"{', '.join(study.ids)}: never uploaded, copied to predictions")] if study.ids else []),
        *([("Ranges", str(study.range_source))] if study.range_source.from_rows else []),
        *([("Limits", "; ".join(limits))] if limits else []),
        ("Columns", f"{len(study.columns)}"),
    ]
    yield from (f"{what + ':':<12} {escape(words)}" for what, words in lines)
    for alike in (list(group) for _, group in groupby(study.columns, key=lambda column: replace(column, name="any"))):
        column = alike[0]
        name = column.name if len(alike) == 1 else f"{column.name} … {alike[-1].name} ({len(alike)} alike)"
        missing_words = f" or {', '.join(column.missing_words)}" if column.missing_words else ""
        rules = f"missing{missing_words}: {column.missing}" + (
            "" if column.kind == "category" else f", outside: {column.outside}"
        )
        yield f"  {escape(f'{name}: {column.kind}, {column.described}; {rules}')}"
    members = ", ".join(member.name for member in study.participants)
    yield f"{'Participants:':<12} {members or 'nobody yet'}"
    if study.helpers:
        yield f"{'Helpers:':<12} {', '.join(helper.name for helper in study.helpers)}"
    yield f"{'Analyst:':<12} {'nobody yet' if study.analyst is None else study.analyst.name}"
    yield f"Fingerprint: [bold]{study.fingerprint}[/bold]"
