"""`mooring match`: say how your own table is read as a table of the study."""

from __future__ import annotations

from typing import Annotated

import typer

from mooring.cli import execution


@execution.command
def match(
    console: execution.Output,
    data: execution.TablePath,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    mapping: execution.MappingPath = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(help='A column\'s name in the study, and its name in your table: "gender=sex"; repeatable.'),
    ] = None,
    word: Annotated[
        list[str] | None,
        typer.Option(help='The study\'s category for a word of your table: "gender:F=female"; repeatable.'),
    ] = None,
    other: Annotated[
        list[str] | None,
        typer.Option(help='The category for all words that the study does not declare: "race=other"; repeatable.'),
    ] = None,
    missing_word: Annotated[
        list[str] | None,
        typer.Option(help='A word for a missing value, such as "-9"; "chol=0" applies to one column. Repeatable.'),
    ] = None,
    ignore: execution.IgnoreColumns = None,
    decimal: Annotated[
        str, typer.Option(help='Decimal mark of numbers: "." or ",".', show_default="as cells suggest")
    ] = "",
    date_format: Annotated[
        str, typer.Option(help='Form of dates, such as "%d.%m.%Y".', show_default="as cells suggest, if only one fits")
    ] = "",
    separator: Annotated[
        str, typer.Option(help="Separator of a text file.", show_default="as its first line suggests")
    ] = "",
    encoding: Annotated[
        str, typer.Option(help='Encoding of a text file, such as "windows-1252".', show_default="as its bytes suggest")
    ] = "",
    show_values: Annotated[
        bool,
        typer.Option("--show-values", help="Show on this screen the words that the study does not declare."),
    ] = False,
) -> int:
    """Take the step 'match'.

    If the table lacks a column of the study, the table's column with a similar name or similar words is suggested. Words
    such as F and M are matched to the study's categories, and decimal commas and forms of dates are recognised. Options
    declare what is not recognised, and are added to the mapping file. 'check', 'share' and 'predict' then read the table by
    this mapping. Exit code 3 means that some cells do not fit the study yet.

    Example: mooring match patients.csv --study study.toml --rename gender=sex --missing-word -9 --other race=other
    """
    workspace = execution.make_workspace(study, mapping=mapping)
    outcome = execution.take_step(
        "match",
        workspace,
        data=data,
        rename=rename,
        word=word,
        other=other,
        missing_word=missing_word,
        ignore=ignore,
        decimal=decimal,
        date_format=date_format,
        separator=separator,
        encoding=encoding,
        show_values=show_values,
    )
    return console.show_outcome(outcome)
