"""The steps that every study has, whatever its mechanism, in the order in which they are taken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mooring.protocol.analyst import steps as analyst
from mooring.protocol.designer import steps as designer
from mooring.protocol.participant import steps as participant
from mooring.protocol.registry import exchange_of
from mooring.protocol.step import (
    AFTERWARDS,
    AGREE,
    AGREED,
    ANALYSE,
    ASK_BUNDLES,
    AWAITED_BUNDLES,
    AWAITS_NOBODY,
    BUNDLES,
    SHARE_ONCE,
    TABLES,
    USE,
    Choice,
    Item,
    Question,
    Sent,
    Step,
)
from mooring.protocol.workspace import CARDS, MAPPING, Outcome, Workspace, has_file, has_label, has_record
from mooring.tables.text_encodings import ENCODINGS
from mooring.typing import Progress


def _is_fitted(workspace: Workspace) -> bool:
    is_checked = any(has_record(name)(workspace) for name in ("check", "share"))
    return is_checked or (workspace.has_study and workspace.fitted == workspace.study.schema)


def _is_complete(workspace: Workspace) -> bool:
    return workspace.has_study and workspace.study.is_complete


def _has_gathered(workspace: Workspace) -> bool:
    return has_file(workspace, f"analysis/{exchange_of(workspace.study).gather_record}.json")


def _has_results(workspace: Workspace) -> bool:
    """Whether participants get something back: a model, or files of the mechanism."""
    return has_label(workspace) or bool(exchange_of(workspace.study).own_result_files(workspace.study))


def _has_records(workspace: Workspace) -> bool:
    return workspace.identify().is_enrolled and any(workspace.records.glob("*.json"))


STUDY = Item("the study's file", ("study.toml",))
COMPLETE = Item("the study with its roster", ("study.toml",), _is_complete)
TABLE = Item("your table", holds=lambda workspace: bool(workspace.list_files(TABLES)))
FITTING = Item("a table that fits the study", holds=lambda workspace: not workspace.is_misfit)
HEADERS = Item("descriptions of tables", ("*.header.toml",))
MEMBERSHIP = Item(
    "your vault and your card", ("vault", "NAME.card.toml"), lambda workspace: bool(workspace.identify().role)
)
MEMBERS_CARDS = Item("members' cards", ("*.card.toml",))
BUNDLE = Item("your bundle", ("NAME.bundle",), has_record("share"))
INTAKE = Item("a record of bundles", ("analysis/intake.json",))
GATHERED = Item("the gathered contributions", ("analysis/*.json",), _has_gathered)
MODEL = Item("the model", ("analysis/training.json",))
RESULTS = Item("everybody's result", ("results",), lambda workspace: has_file(workspace, "analysis/delivery.json"))
RESULT = Item("the delivered model", ("result/model.safetensors",))
DELIVERABLE = Item(
    "the model, where the study has a label",
    MODEL.files,
    lambda workspace: not has_label(workspace) or MODEL.is_there(workspace),
)

_TABLE = Question("data", "Your table", "choice", endings=TABLES)
_IGNORE = Question("ignore", "Columns to leave out", "many", "--ignore", is_optional=True, hint="names between commas")
_REASON = "who decides, and why: NAME: REASON"


def _ask_overwriting(name: str) -> Question:
    label = f"Overwrite {name}"
    return Question(
        "force", label, "tick", "--force", is_optional=True, when=lambda workspace: has_file(workspace, name)
    )


def _ask_floor(name: str, label: str) -> Question:
    return Question(name, label, "number", f"--{name.replace('_', '-')}", is_optional=True, is_rare=True)


def write_report(
    workspace: Workspace,
    *,
    folder: Path | None = None,
    audit: Path | None = None,
    examples: bool = True,
    force: bool = False,
    output: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Write the page of everything that a member knows of a study and, if given, of an audit."""
    from mooring.atomic_io import require_absent

    path = output or workspace.root / "report.html"
    require_absent(path, force=force)
    study = workspace.study if workspace.has_study else None
    return workspace.pages.write_report(study, folder or workspace.records, path, audit=audit, examples=examples)


COMMON: Sequence[Step] = (
    Step(
        name="init",
        role="designer",
        title="Draft the study",
        explanation="Draft a study from the names of columns and what they mean; no value of a row is in the draft.",
        command="study init",
        phase=AGREE,
        makes=(STUDY,),
    ),
    Step(
        name="header",
        role="participant",
        title="Describe your table",
        explanation="Describe your table for the designer: kinds, ranges rounded outward, and categories.",
        command="study header",
        phase=AGREE,
        needs=(TABLE,),
        makes=(Item("a description of your table", ("NAME.header.toml",)),),
        is_optional=True,
    ),
    Step(
        name="merge",
        role="designer",
        title="Merge descriptions",
        explanation="Draft one study from several sites' descriptions, and show side by side what they do not agree on.",
        command="study merge",
        phase=AGREE,
        needs=(HEADERS,),
        makes=(STUDY,),
        is_optional=True,
    ),
    Step(
        name="project",
        role="designer",
        title="Make a public projection",
        explanation="Make a projection from public rows, never from a participant's, and write its digest into the study.",
        command="study project",
        phase=AGREE,
        needs=(STUDY,),
        is_optional=True,
    ),
    Step(
        name="fit",
        role="participant",
        title="Fit your table",
        explanation="Read your table and list everything that does not fit the study; nothing is kept, and nothing "
        "leaves.",
        command="check --fit-only",
        phase=AGREE,
        needs=(STUDY, TABLE),
        makes=(Item("a table that fits", holds=_is_fitted),),
        asks=(_TABLE, _IGNORE),
        awaits=AWAITS_NOBODY,
        consent="reading",
        run=participant.fit,
        when=lambda workspace: workspace.has_study and workspace.identify().role in ("", "participant"),
    ),
    Step(
        name="join",
        role="everybody",
        title="Join",
        explanation="Make keys and secrets in a vault, which stays with you, and a public card for the study's roster.",
        command="join",
        phase=AGREE,
        makes=(MEMBERSHIP,),
        sends=(Sent("NAME.card.toml"),),
        asks=(
            Question(
                "name", "Your name in the study", option="--name", hint="lower-case letters, digits, hyphens: st-mary"
            ),
            Question("role", "You are", "choice", "--role", tuple(map(Choice, ("participant", "helper", "analyst")))),
            Question(
                "passphrase",
                "Passphrase of the vault",
                "password",
                "--passphrase",
                is_optional=True,
                hint="the vault is not encrypted if this is empty",
            ),
            _ask_floor("least_anchor_noise", "If the method adds anchor noise, refuse less than"),
            _ask_floor("least_data_noise", "If the method adds private-data noise, refuse less than"),
            _ask_floor(
                "most_epsilon", "Refuse secure sums beyond this epsilon, added up over all studies of this vault"
            ),
            _ask_floor(
                "most_pooled_epsilon",
                "Refuse secure sums whose epsilon, if combiners pool their keys to open your contribution, is larger than",
            ),
            _ask_floor(
                "least_threshold",
                "Refuse secure sums in which your contribution could be opened by fewer combiners than",
            ),
            _ask_floor("least_colluders", "Refuse secure sums that assume fewer colluders than"),
            Question(
                "revoke",
                "Revoke the combining keys of my older cards",
                "tick",
                "--revoke",
                is_optional=True,
                is_rare=True,
            ),
            Question(
                "accept_no_noise",
                "Accept methods without any noise",
                "tick",
                "--accept-no-noise",
                is_optional=True,
                is_rare=True,
            ),
        ),
        awaits=AWAITS_NOBODY,
        run=participant.join,
        when=lambda workspace: not workspace.identify().is_enrolled,
    ),
    Step(
        name="enrol",
        role="designer",
        title="Enrol members",
        explanation="Enter members' cards in the study's roster; the study's fingerprint changes with each.",
        command="study enrol",
        phase=AGREE,
        needs=(STUDY, MEMBERS_CARDS),
        makes=(COMPLETE,),
        sends=(Sent("study.toml"), Sent("STUDY.projection.safetensors")),
        asks=(Question("cards", "Cards", "many", endings=CARDS),),
        awaits=AWAITS_NOBODY,
        consent="members",
        run=designer.enrol,
        when=lambda workspace: workspace.has_study and not workspace.study.is_complete,
    ),
    Step(
        name="show",
        role="everybody",
        title="Show the study",
        explanation="Print what a study declares, who takes part, and its fingerprint.",
        command="study show",
        phase=AGREE,
        needs=(STUDY,),
        is_optional=True,
    ),
    Step(
        name="invite",
        role="analyst",
        title="Invite participants",
        explanation="Make an address for each participant, to which it can upload its bundle without credentials.",
        command="invite",
        phase=AGREE,
        needs=(COMPLETE,),
        is_optional=True,
    ),
    Step(
        name="match",
        role="participant",
        title="Match your table to the study",
        explanation="Write a file that says how to read your own table where its names, words, decimal marks, dates or "
        "missing values differ from the study's; later steps use it.",
        command="match",
        phase=SHARE_ONCE,
        needs=(STUDY, TABLE),
        makes=(Item("your mapping", (MAPPING,)),),
        asks=(
            _TABLE,
            _IGNORE,
            Question("rename", "Columns by other names", "many", "--rename", is_optional=True, hint="gender=sex"),
            Question("word", "Words of categories", "many", "--word", is_optional=True, hint="gender:F=female"),
            Question("other", "Category of all other words", "many", "--other", is_optional=True, hint="race=other"),
            Question(
                "missing_word",
                "Words for a missing value",
                "many",
                "--missing-word",
                is_optional=True,
                hint="-9, chol=0",
            ),
            Question("decimal", "Decimal mark", "text", "--decimal", is_optional=True, hint="a point or a comma"),
            Question("date_format", "Form of dates", "text", "--date-format", is_optional=True, hint="%d.%m.%Y"),
            Question("separator", "Separator", "text", "--separator", is_optional=True, is_rare=True),
            Question(
                "encoding",
                "Encoding, if not UTF-8",
                "choice",
                "--encoding",
                tuple(map(Choice, ENCODINGS)),
                is_optional=True,
                is_rare=True,
            ),
            Question("show_values", "Show unknown words on this screen", "tick", "--show-values", is_optional=True),
        ),
        run=participant.match,
        is_optional=True,
    ),
    Step(
        name="check",
        role="participant",
        title="See what would be disclosed",
        explanation="Measure what others could recover of your rows at the study's noise, and advise whether to share them. "
        "Nothing leaves.",
        command="check",
        phase=SHARE_ONCE,
        needs=(AGREED, TABLE, FITTING),
        makes=(Item("a page and a record of the check", ("check.html",), has_record("check")),),
        asks=(_TABLE, _IGNORE, Question("output", "Page", "usual", "--output", default="check.html")),
        awaits=AWAITS_NOBODY,
        run=participant.check,
    ),
    Step(
        name="share",
        role="participant",
        title="Share",
        explanation="Write the one bundle that you upload; the same rows give the same file again. Nothing is sent.",
        command="share",
        phase=SHARE_ONCE,
        needs=(AGREED, TABLE, FITTING),
        makes=(BUNDLE,),
        sends=(Sent("NAME.bundle", "analyst", "inbox"),),
        asks=(
            _TABLE,
            _IGNORE,
            Question(
                "override",
                "Share although the check does not show that limits are kept",
                option="--override",
                is_optional=True,
                is_rare=True,
                hint=_REASON,
                when=lambda workspace: bool(workspace.study.upload_limits),
            ),
        ),
        awaits=AWAITS_NOBODY,
        consent="share",
        run=participant.share,
        advise=participant.advise_sharing,
    ),
    Step(
        name="send",
        role="participant",
        title="Send",
        explanation="Send a file of the study, such as a bundle, to a folder, an object store or a presigned address.",
        command="send",
        phase=SHARE_ONCE,
        needs=(BUNDLE,),
        is_optional=True,
    ),
    Step(
        name="collect",
        role="analyst",
        title="Check the inbox",
        explanation="Check every bundle in the inbox, and list which are accepted, which are missing, and which are "
        "set aside and why.",
        command="collect",
        phase=ANALYSE,
        needs=(AGREED, BUNDLES),
        makes=(INTAKE,),
        asks=(ASK_BUNDLES,),
        run=analyst.collect,
        is_optional=True,
    ),
    Step(
        name="align",
        role="analyst",
        title="Gather contributions",
        explanation="Gather the contributions in all bundles that pass their checks, ready for training.",
        command="align",
        phase=ANALYSE,
        needs=(AGREED, BUNDLES),
        makes=(GATHERED,),
        asks=(ASK_BUNDLES,),
        awaits=(AWAITED_BUNDLES,),
        run=analyst.align,
    ),
    Step(
        name="train",
        role="analyst",
        title="Train",
        explanation="Train the joint model, and score it as far as the analyst can.",
        command="train",
        phase=ANALYSE,
        needs=(AGREED, GATHERED),
        makes=(MODEL,),
        asks=(Question("learner", "Learner", "choice", "--learner", choices=analyst.list_learners, default="auto"),),
        awaits=AWAITS_NOBODY,
        run=analyst.train,
        when=has_label,
    ),
    Step(
        name="export",
        role="analyst",
        title="Export",
        explanation="Copy the collaboration matrix, or the model as ONNX, to a file that other tools read.",
        command="export",
        phase=ANALYSE,
        needs=(AGREED, GATHERED),
        is_optional=True,
    ),
    Step(
        name="deliver",
        role="analyst",
        title="Deliver",
        explanation="Write and sign each participant's result; each participant gets only its own.",
        command="deliver",
        phase=ANALYSE,
        needs=(AGREED, GATHERED, DELIVERABLE),
        makes=(RESULTS,),
        sends=(Sent("results/RECIPIENT/model.safetensors", "participant", "result", grows=True),),
        asks=(
            Question("output", "Results", "usual", "--output", default="results"),
            Question(
                "override",
                "Deliver although the model's risk is above the study's limit",
                option="--override",
                is_optional=True,
                hint=_REASON,
                when=lambda workspace: bool(workspace.study.model_limit),
            ),
        ),
        awaits=AWAITS_NOBODY,
        run=analyst.deliver,
        when=_has_results,
    ),
    Step(
        name="predict",
        role="participant",
        title="Predict",
        explanation="Predict new rows with the joint model, on this machine; if they have labels, score the model.",
        command="predict",
        phase=USE,
        needs=(AGREED, TABLE, RESULT),
        makes=(Item("predictions", ("predictions.csv",), has_record("predict")),),
        asks=(
            Question("data", "New rows", "choice", endings=TABLES),
            Question("result", "Result", "usual", "--result", default="result"),
            Question(
                "beside",
                "Rows that you shared",
                "choice",
                "--beside",
                endings=TABLES,
                is_optional=True,
                hint="to compare with a model of them alone",
            ),
            Question("importance", "Measure column importance", "tick", "--importance", is_optional=True, is_rare=True),
            _ask_overwriting("predictions.csv"),
            _IGNORE,
        ),
        awaits=AWAITS_NOBODY,
        run=participant.predict,
        when=has_label,
    ),
    Step(
        name="report",
        role="everybody",
        title="Make the report",
        explanation="Write one page to read, print and sign: who took part, what joining gains, and what it discloses.",
        command="report",
        phase=AFTERWARDS,
        needs=(AGREED, Item("records of earlier steps", holds=_has_records)),
        makes=(Item("a page", ("report.html",)),),
        asks=(_ask_overwriting("report.html"),),
        run=write_report,
        when=AGREED.is_there,
        is_optional=True,
    ),
)
