"""`mooring join`: keys in a vault, and a card for the roster."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli.execution import DEFAULT_VAULT, Output, VaultPath, ask_passphrase, command

floor_option = partial(typer.Option, rich_help_panel="Floors")


@command
def join(
    console: Output,
    name: Annotated[str, typer.Option(help="How the study will call you: lower-case letters, digits, hyphens.")],
    vault: VaultPath = DEFAULT_VAULT,
    output: Annotated[
        Path | None, typer.Option(help="Where your public card goes.", show_default="NAME.card.toml")
    ] = None,
    analyst: Annotated[
        bool, typer.Option("--analyst", help="Join as the analyst instead of as a participant.")
    ] = False,
    with_passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Encrypt the vault; asked for, or taken from MOORING_PASSPHRASE.")
    ] = False,
    least_anchor_noise: Annotated[
        float | None,
        floor_option(min=0.0, help="Refuse studies whose anchor noise is below this.", show_default="0.01"),
    ] = None,
    least_data_noise: Annotated[
        float | None,
        floor_option(min=0.0, help="Refuse studies whose private-data noise is below this.", show_default="0.05"),
    ] = None,
    accept_no_noise: Annotated[
        bool, floor_option("--accept-no-noise", help="Accept methods without any noise.")
    ] = False,
    most_epsilon: Annotated[
        float | None,
        floor_option(
            min=0.0, help="Refuse secure sums beyond this epsilon, over all studies of the same rows.", show_default="8"
        ),
    ] = None,
) -> None:
    """Make your keys and secrets in a local vault, and a public card for the study's roster.

    The vault stays with you: keep it, back it up, show it to nobody. The card goes to whoever keeps the study's file. A
    vault that is there already is used as it is, so one vault serves all your studies. Write a new card for each study of
    secure sums: its combining key is destroyed once the study's total is combined.

    Example: mooring join --name st-mary --vault st-mary/vault
    """
    from mooring.protocol.messages.card import require_name
    from mooring.protocol.participant.membership import issue_card
    from mooring.protocol.storage.vault import Vault, is_encrypted

    require_name("name", name)
    asked = {"anchor_noise": least_anchor_noise, "data_noise": least_data_noise, "most_epsilon": most_epsilon}
    floors: dict[str, float | bool] = {key: value for key, value in asked.items() if value is not None}
    floors |= {"without_noise": True} if accept_no_noise else {}
    words = ask_passphrase(vault) if is_encrypted(vault) else _new_passphrase() if with_passphrase else None
    opened, is_new = Vault.open_or_create(vault, passphrase=words, floors=floors)
    card = output or Path(f"{name}.card.toml")
    member = issue_card(opened, card, name=name, is_analyst=analyst)

    made = "Made a vault" if is_new else "The vault is there already"
    console.show(
        {"name": name, "new_vault": is_new, "card": str(card), **member.as_dict()},
        f"{made}, in [bold]{escape(str(vault))}[/bold]: keep it, back it up.",
        f"Send the card [bold]{escape(str(card))}[/bold] to whoever keeps the study's file; it holds no secret.",
    )


def _new_passphrase() -> str:
    given = os.environ.get("MOORING_PASSPHRASE")
    return given or str(typer.prompt("Passphrase for the vault", hide_input=True, confirmation_prompt=True, err=True))
