"""`mooring join`: make keys in a vault, and a card for the roster."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from mooring.cli import execution

floor_option = partial(typer.Option, rich_help_panel="What your vault refuses")


@execution.command
def join(
    console: execution.Output,
    name: Annotated[str, typer.Option(help="Your name in the study: lower-case letters, digits and hyphens.")],
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    output: Annotated[
        Path | None, typer.Option(help="File for your public card.", show_default="NAME.card.toml")
    ] = None,
    role: Annotated[
        Literal["participant", "helper", "analyst"],
        typer.Option(help="A helper combines secure sums, and contributes no rows."),
    ] = "participant",
    with_passphrase: Annotated[
        bool,
        typer.Option(
            "--passphrase",
            help="Encrypt the vault with a passphrase, which is asked for or read from MOORING_PASSPHRASE.",
        ),
    ] = False,
    revoke: Annotated[
        bool,
        typer.Option(
            "--revoke",
            help="Destroy the combining keys of your older cards, for instance because a card went astray. Keys of studies "
            "in which you have shared stay.",
        ),
    ] = False,
    least_anchor_noise: Annotated[
        float | None,
        floor_option(
            min=0.0,
            help="Refuse methods that add less anchor noise than this, but not methods without it.",
            show_default="0.01",
        ),
    ] = None,
    least_data_noise: Annotated[
        float | None,
        floor_option(
            min=0.0,
            help="Refuse methods that add less private-data noise than this, but not methods without it.",
            show_default="0.05",
        ),
    ] = None,
    accept_no_noise: Annotated[
        bool, floor_option("--accept-no-noise", help="Accept studies whose method adds no noise.")
    ] = False,
    most_epsilon: Annotated[
        float | None,
        floor_option(
            min=0.0,
            help="Refuse secure sums with which this vault would exceed this epsilon in total over all studies, whatever "
            "rows it shares in each.",
            show_default="8",
        ),
    ] = None,
    most_pooled_epsilon: Annotated[
        float | None,
        floor_option(
            min=0.0,
            help="Refuse secure sums in which your contribution would exceed this epsilon if combiners pooled their keys "
            "and opened it.",
            show_default="1000",
        ),
    ] = None,
    least_threshold: Annotated[
        int | None,
        floor_option(
            min=1, help="Refuse secure sums in which fewer combiners could open a contribution.", show_default="2"
        ),
    ] = None,
    least_colluders: Annotated[
        int | None, floor_option(min=1, help="Refuse secure sums that assume fewer colluders.", show_default="1")
    ] = None,
) -> None:
    """Take the step 'join'.

    Back up the vault, and show it to nobody. Send the card to whoever keeps the study's file. An existing vault is used as
    it is, so that one vault serves all your studies. A card serves 20 studies of secure sums in which you combine: each
    uses one of its combining keys. When they are used up, join again: a new card has 20 further keys.

    Example: mooring join --name st-mary --vault st-mary/vault
    """
    from mooring.protocol.storage.vault import is_encrypted

    words = execution.ask_passphrase(vault) if is_encrypted(vault) else new_passphrase() if with_passphrase else None
    outcome = execution.take_step(
        "join",
        execution.make_workspace(execution.DEFAULT_STUDY, vault),
        name=name,
        role=role,
        passphrase=words,
        least_anchor_noise=least_anchor_noise,
        least_data_noise=least_data_noise,
        most_epsilon=most_epsilon,
        most_pooled_epsilon=most_pooled_epsilon,
        least_threshold=least_threshold,
        least_colluders=least_colluders,
        accept_no_noise=accept_no_noise,
        revoke=revoke,
        output=output,
    )
    console.show_outcome(outcome)


def new_passphrase() -> str:
    """Return the passphrase for a new vault, from the environment or a prompt."""
    passphrase = os.environ.get("MOORING_PASSPHRASE")
    if passphrase:
        return passphrase
    return str(typer.prompt("Passphrase for the vault", hide_input=True, confirmation_prompt=True, err=True))
