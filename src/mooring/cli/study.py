"""`mooring study`: the one file that everybody agrees on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from mooring.cli.execution import (
    DEFAULT_STUDY,
    Force,
    Output,
    StudyPath,
    command,
    make_place,
    read_study,
    show_progress,
    take_step,
)
from mooring.cli.options import (
    ProjectionChoice,
    SumOptions,
    parse_named_range,
    parse_named_words,
    parse_pair,
    parse_range,
    parse_shape,
    parse_words,
)
from mooring.cli.study_header import header, merge
from mooring.errors import InputError
from mooring.protocol.step import require_absent

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study

study_app = typer.Typer(
    name="study",
    help="Draft, complete and show a study: the one public file that everybody agrees on.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
column_option, method_option = (partial(typer.Option, rich_help_panel=panel) for panel in ("Columns", "Method"))


@study_app.command("init")
@command
def init(
    console: Output,
    sums: SumOptions,
    data: Annotated[Path, typer.Argument(help="A table (.csv, .parquet): no value of its rows goes into the draft.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the draft goes.")] = DEFAULT_STUDY,
    name: Annotated[str, typer.Option(help="Name of the study.")] = "study",
    label: Annotated[str | None, column_option(help="The column to predict.")] = None,
    classes: Annotated[str, column_option(help='Classes of the label: "no,yes".', show_default=False)] = "",
    label_range: Annotated[str | None, column_option(help='Range of a label that is a number: "0:250".')] = None,
    range: Annotated[list[str] | None, column_option(help='A column\'s range: "age=0:120"; again for more.')] = None,
    all_ranges: Annotated[str | None, column_option(help='Range of every other number: "0:16".')] = None,
    category: Annotated[
        list[str] | None, column_option(help='A column\'s categories: "sex=female,male"; again for more.')
    ] = None,
    id: Annotated[
        list[str] | None,
        column_option(help="A column that names rows: stays at home, comes back beside predictions; again for more."),
    ] = None,
    date: Annotated[
        list[str] | None, column_option(help='A column\'s first and last day: "seen=2000-01-01:2026-12-31".')
    ] = None,
    birth: Annotated[
        list[str] | None, column_option(help='A date of birth, taken as the age at a public day: "born=2026-01-01".')
    ] = None,
    drop: Annotated[list[str] | None, column_option(help="A column to leave out; again for more.")] = None,
    missing_word: Annotated[
        list[str] | None,
        column_option(
            help='What stands for a missing value besides ?, NA and nothing: "-9"; or in a column: "chol=0".'
        ),
    ] = None,
    missing: Annotated[
        Literal["refuse", "fill", "indicate"],
        column_option(
            help="What a missing value is: an error; the middle, or no category; that, and a column that tells."
        ),
    ] = "refuse",
    image_shape: Annotated[str | None, column_option(help='If rows are images, their shape: "8x8".')] = None,
    smallest_class: Annotated[int, column_option(min=1, help="Who has fewer rows of a class does not share.")] = 3,
    from_plan: Annotated[
        Path | None,
        method_option(help="The plan.json of 'mooring plan --study': takes its method, noise, anchor and projection."),
    ] = None,
    mechanism: Annotated[
        str | None,
        method_option(help="rotation, secure-sum, or one that another package defines.", show_default="rotation"),
    ] = None,
    method: Annotated[
        str | None,
        method_option(help="The method of rotation, which aligns by an anchor.", show_default="aa-i-gdp-data-noise"),
    ] = None,
    components: Annotated[
        int | None, method_option(min=1, help="Components to share.", show_default="all, up to 30")
    ] = None,
    anchor_rows: Annotated[
        int | None, method_option(min=2, help="Rows of the anchor.", show_default="four times the components")
    ] = None,
    data_noise: Annotated[
        float | None,
        method_option(
            min=0.0,
            help="Private-data noise of an encoded number, which lies between -1 and 1, with any projection.",
            show_default="0.5",
        ),
    ] = None,
    anchor_noise: Annotated[
        float | None, method_option(min=0.0, help="Scale of the anchor noise.", show_default="0.1")
    ] = None,
    projection: Annotated[ProjectionChoice, method_option(help="How rows are projected before they leave.")] = "auto",
    force: Force = False,
) -> None:
    """Draft a study from a table's header, and from which columns hold dates or words. Fill in what stays open.

    Example: mooring study init patients.csv --label ill --classes no,yes --range age=0:120 --category sex=female,male

    Example: mooring study init patients.csv --mechanism secure-sum --epsilon 1 --label ill --classes no,yes

    Example: mooring study init patients.csv --from-plan plan-report/plan.json --label ill --classes no,yes
    """
    from mooring.atomic_io import write_atomically
    from mooring.mechanisms.settings import MechanismSettings
    from mooring.protocol.designer import draft
    from mooring.protocol.exchange import get_exchange
    from mooring.protocol.messages.study import Study
    from mooring.protocol.messages.study_file import parse_study

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
    exchange = get_exchange(MechanismSettings.get_kind(entries["name"]).name)
    if shape:
        entries = exchange.adapt_to_images(entries)
    words = [parse_pair("--missing-word", given) if "=" in given else ("", given) for given in missing_word or ()]
    known = draft.DeclaredColumns(
        ranges=dict(parse_named_range(given) for given in range or ()),
        all_ranges=None if all_ranges is None else parse_range(all_ranges),
        categories=dict(parse_named_words(given) for given in category or ()),
        classes=parse_words(classes),
        label_range=None if label_range is None else parse_range(label_range),
        ids=id or (),
        dates={name: (days[:10], days[11:]) for name, days in (parse_pair("--date", given) for given in date or ())},
        births=dict(parse_pair("--birth", given) for given in birth or ()),
        missing_words={name: [word for own, word in words if own == name] for name, _ in words if name},
        kinds=draft.infer_kinds(data),
    )
    settings = draft.DraftSettings(
        mechanism=entries,
        smallest_class=smallest_class,
        image_shape=shape,
        missing_words=[word for name, word in words if not name],
        missing=missing,
    )
    text = draft.draft_study(data, name=name, label=label, drop=drop or (), known=known, settings=settings)
    recognised = draft.describe_recognised(data, known, [*(drop or ()), *([label] if label else []), sums.person or ""])
    left = draft.count_open_entries(text)
    plain = parse_study(text)
    drafted = None if left else Study.from_dict(plain)
    write_atomically(output, text.encode(), what="the draft")

    console.show(
        {
            "study": str(output),
            "open_entries": left,
            "mechanism": plain["mechanism"],
            "fingerprint": None if drafted is None else drafted.fingerprint,
            "recognised": recognised,
        },
        f"Wrote [bold]{escape(str(output))}[/bold]. No value of a row is in it.",
        *(f"  • {escape(f'{column}: {words}')}" for column, words in recognised.items()),
        f"Its mechanism is {entries['name']}.",
        *(
            []
            if drafted is None
            else (f"{what}: {escape(sentence)}" for what, sentence in exchange.describe_study(drafted))
        ),
        *(
            []
            if from_plan is None
            else ["The plan's noise is for columns with the ranges of the study it was made with."]
        ),
        f"Open entries: {left}. Fill in the lines marked TODO, from what the columns mean."
        if left
        else "Next: everybody runs 'mooring join', and 'mooring study enrol' takes their cards.",
    )


study_app.command()(header)
study_app.command()(merge)


@study_app.command("project")
@command
def project(
    console: Output,
    public_rows: Annotated[Path, typer.Argument(help="A table of public rows with the study's columns.")],
    study: StudyPath = DEFAULT_STUDY,
    components: Annotated[
        int | None,
        typer.Option(min=1, help="Components, or features of sums, to keep.", show_default="what the study says"),
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A column of the file to leave out; again for more.")] = None,
) -> None:
    """Make a public projection from public rows, never a participant's, and write its digest into the study.

    In a study of secure sums of pictures, features are fitted to public pictures instead.

    Example: mooring study project public-patients.csv --study study.toml --components 20
    """
    from mooring.protocol.designer.revision import project_study
    from mooring.protocol.messages.public_file import public_file_name

    with show_progress("Reading public rows") as told:
        found = project_study(study, public_rows, components=components, ignore=ignore or (), progress=told)
    file = study.parent / public_file_name(found.study)

    console.show(
        {"projection": str(file), "digest": found.digest, "fingerprint": found.study.fingerprint},
        f"Wrote [bold]{escape(str(file))}[/bold], {found.description}, and its digest into "
        f"[bold]{escape(str(study))}[/bold]. Send both to everybody.",
        f"The study's fingerprint is now [bold]{found.study.fingerprint}[/bold].",
    )


@study_app.command("enrol")
@command
def enrol(
    console: Output,
    cards: Annotated[list[Path], typer.Argument(help="Cards that 'mooring join' wrote, the analyst's among them.")],
    study: StudyPath = DEFAULT_STUDY,
) -> None:
    """Take the step 'enrol'.

    Each card must prove that its writer holds the keys.

    Example: mooring study enrol st-mary.card.toml north.card.toml analyst.card.toml --study study.toml
    """
    console.show_outcome(take_step("enrol", make_place(study), cards=cards))


@study_app.command("show")
@command
def show(console: Output, study: StudyPath = DEFAULT_STUDY) -> None:
    """Say in words what a study declares, who takes part, and its fingerprint.

    Example: mooring study show --study study.toml
    """
    agreed = read_study(study)
    facts = {"digest": agreed.digest, "fingerprint": agreed.fingerprint, "encoded_width": agreed.n_features}
    console.show(agreed.as_dict() | facts, *_describe_study(agreed))


def _choose_mechanism(plan: Path | None, mechanism: str | None, **given: Any) -> dict[str, Any]:
    """The entries of a draft's [mechanism]: those that were given, or a plan's; not both."""
    asked = {name: value for name, value in given.items() if value is not None}
    if plan is None:
        return {"name": mechanism or "rotation", **asked}
    if asked or mechanism:
        got = f"{', '.join([*asked, *(['mechanism'] if mechanism else [])])} beside it"
        cure = "Leave them out, or draft without the plan."
        raise InputError("--from-plan", expected="the only option about the mechanism", got=got, cure=cure)
    from mooring.report.records import read_plan_mechanism

    return read_plan_mechanism(plan)


def _describe_study(study: Study) -> Iterator[str]:
    from mooring.protocol.exchange import exchange_of

    label = study.label
    predicted = {
        "none": "nothing: no label",
        "classes": f"{label.column}, one of {', '.join(label.classes)}",
        "number": f"{label.column}, a number from {label.low:g} to {label.high:g}",
    }[label.kind]
    lines = [
        ("Study", study.name),
        ("Predicts", predicted),
        ("Mechanism", study.mechanism.name),
        *exchange_of(study).describe_study(study),
        *([("At home", f"{', '.join(study.ids)}: never shared, back beside predictions")] if study.ids else []),
        *([("Limits", "; ".join(limits))] if (limits := _describe_limits(study)) else []),
        ("Columns", f"{len(study.columns)}"),
    ]
    yield from (f"{what + ':':<12} {escape(words)}" for what, words in lines)
    for alike in (list(group) for _, group in groupby(study.columns, key=lambda column: replace(column, name="any"))):
        column = alike[0]
        name = column.name if len(alike) == 1 else f"{column.name} … {alike[-1].name} ({len(alike)} alike)"
        own = f" or {', '.join(column.missing_words)}" if column.missing_words else ""
        rules = f"missing{own}: {column.missing}" + (
            "" if column.kind == "category" else f", outside: {column.outside}"
        )
        yield f"  {escape(f'{name}: {column.kind}, {column.described}; {rules}')}"
    yield from _describe_roster(study)
    yield f"Fingerprint: [bold]{study.fingerprint}[/bold]"


def _describe_limits(study: Study) -> list[str]:
    of_model = [f"the model: {study.model_limit}"] if study.model_limit else []
    return [*(f"an upload: {words}" for words in study.upload_limits), *of_model]


def _describe_roster(study: Study) -> Iterator[str]:
    roster = _list_roster(study)
    yield f"{'Members:':<11} {', '.join(roster['participants']) or 'nobody yet'}"
    yield f"{'Analyst:':<11} {roster['analyst'] or 'nobody yet'}"


def _list_roster(study: Study) -> dict[str, Any]:
    names = [member.name for member in study.participants]
    return {
        "participants": names,
        "analyst": study.analyst and study.analyst.name,
    }
