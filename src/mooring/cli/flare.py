"""`mooring flare`: write a job for NVIDIA FLARE, and the settings that each site and the server keep."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli import execution

flare_app = typer.Typer(
    help="Run a study over NVIDIA FLARE. A job contains no code: sites run only what is installed there. "
    "See docs/flare.md.",
    no_args_is_help=True,
)
Kit = Annotated[Path, typer.Option("--output", help="The folder 'local' of the kit that 'nvflare provision' made.")]


@flare_app.command("job")
@execution.command
def job(
    console: execution.Output,
    output: Annotated[Path, typer.Option(help="Folder for the job; it is created if needed.")],
    study: execution.StudyPath = execution.DEFAULT_STUDY,
) -> None:
    """Write the job that the analyst submits. It holds two class names and the study's digest, and no code.

    Example: mooring flare job --study study.toml --output job
    """
    from mooring.engines.flare.configuration import write_job

    agreed = execution.read_study(study)
    write_job(agreed, output)

    console.show(
        {"job": str(output), "fingerprint": agreed.fingerprint},
        f"Wrote the job to [bold]{escape(str(output))}[/bold]. It contains no code and no secrets.",
        f"It is for the study with the fingerprint {agreed.fingerprint}.",
    )


@flare_app.command("site")
@execution.command
def site(
    console: execution.Output,
    output: Kit,
    data: Annotated[
        Path | None, typer.Option(help="Your table: .csv (also .tsv, .gz) or .parquet. A helper has none.")
    ] = None,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    labels: execution.LabelConsent = False,
    folder: Annotated[
        Path,
        typer.Option(help="Folder in which your steps run. It holds what is sent, and the result that comes back."),
    ] = Path("mooring"),
    anchor: Annotated[
        Path | None,
        typer.Option(
            help="The sealed anchor, if it does not come through the server.", show_default="through the server"
        ),
    ] = None,
    ignore: execution.IgnoreColumns = None,
) -> None:
    """Write a site's settings (study, vault, and a participant's table) and a policy that refuses code from outside.

    A job can only name the study, and a job for a different study is refused. Your own mooring.toml decides which table and
    vault are used and whether the analyst may see labels.

    Example: mooring flare site --study study.toml --data patients.csv --labels --output kit/local

    Secure sums, which upload no labels: mooring flare site --study study.toml --data patients.csv --output kit/local
    """
    from mooring.engines.flare.configuration import write_policy
    from mooring.engines.flare.settings import SiteSettings, opened_vault
    from mooring.errors import InputError
    from mooring.protocol.participant.membership import find_member
    from mooring.protocol.registry import exchange_of
    from mooring.tables.files import require_file

    agreed = execution.read_study(study)
    member = find_member(opened_vault(vault), agreed)
    is_helper = member in agreed.helpers
    if is_helper == (data is not None):
        problem = "A helper shares no table." if is_helper else "A participant's site needs a table."
        raise InputError("data", problem=problem, cure="Leave --data out." if is_helper else "Give it with --data.")
    if data is not None:
        require_file(data)
    settings = SiteSettings(
        study.resolve(),
        vault.resolve(),
        None if data is None else data.resolve(),
        labels=labels,
        folder=folder.resolve(),
        anchor=None if anchor is None else anchor.resolve(),
        ignore=tuple(ignore or ()),
    )
    write_policy(output, "site")
    settings.write(output)
    roles = exchange_of(agreed).list_roles(agreed, member.name)
    about_labels = "with consent for labels" if labels else "without consent for labels"
    shared = f"share {data}, {about_labels}{''.join(f', and act as {role}' for role in roles)},"
    if is_helper:
        shared = f"act as {' and '.join(roles)}"
    _show_files(
        console,
        output,
        f"This site is {member.name}, which must also be its name in FLARE. It will {shared} in the study with the "
        f"fingerprint {agreed.fingerprint}.",
    )


@flare_app.command("server")
@execution.command
def server(
    console: execution.Output,
    output: Kit,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    folder: Annotated[
        Path, typer.Option(help="Folder in which the analyst's steps run; 'analysis' in it is the work folder.")
    ] = Path("mooring"),
    learner: Annotated[
        str,
        typer.Option(
            help="auto, linear, random-fourier, forest, gradient-boosting or xgboost; for secure sums auto, discriminant, "
            "least-squares or quadratic."
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the training.")] = 0,
    least_sites: Annotated[
        int,
        typer.Option(min=2, help="Minimum number of bundles. Secure sums also need the study's quorum."),
    ] = 2,
    wait_seconds: Annotated[
        int, typer.Option(min=1, help="Longest time in seconds that a site may take to answer.")
    ] = 3600,
    late: Annotated[
        bool,
        typer.Option(
            "--late",
            help="Once there is an alignment, only add new participants; those already aligned keep their maps.",
        ),
    ] = False,
) -> None:
    """Write the analyst's settings and policy for the server.

    Example: mooring flare server --study study.toml --vault vault --output kit/local
    """
    from mooring.engines.flare.configuration import write_policy
    from mooring.engines.flare.settings import ServerSettings, opened_vault
    from mooring.errors import RefusedError

    agreed = execution.read_study(study)
    agreed.require_roster()
    if agreed.analyst is None or opened_vault(vault).signing_key.public != agreed.analyst.signing_key:
        raise RefusedError(
            "the vault", reason="it is not that of the study's analyst", cure="Give the vault that joined as analyst."
        )
    settings = ServerSettings(
        study.resolve(), vault.resolve(), folder.resolve(), learner, seed, least_sites, wait_seconds, late
    )
    settings.require_learner(agreed)
    write_policy(output, "server")
    settings.write(output)
    _show_files(console, output, f"This server is the analyst of the study with the fingerprint {agreed.fingerprint}.")


def _show_files(console: execution.Output, output: Path, words: str) -> None:
    from mooring.engines.flare.configuration import certificate_end, list_kit_warnings

    first, warnings = certificate_end(output), list_kit_warnings(output)
    until = None if first is None else f"{first[0]:%Y-%m-%d}"
    is_installed = find_spec("nvflare") is not None
    names = ("mooring.toml", "resources.json", "authorization.json", "comm_config.json")
    files = [str(output / name) for name in names]
    hint = r"NVIDIA FLARE is not installed here. Install it where the kit runs: pip install 'mooring\[flare]'"
    console.show(
        {
            "files": files,
            "words": words,
            "flare_installed": is_installed,
            "certificate_until": until,
            "warnings": warnings,
        },
        f"Wrote {escape(', '.join(files))}.",
        escape(words),
        *(
            []
            if first is None
            else [f"The kit's certificates are valid until {until}; {escape(first[1])} expires first."]
        ),
        *(f"[yellow]{escape(warning)}[/yellow]" for warning in warnings),
        *([] if is_installed else [hint]),
    )
