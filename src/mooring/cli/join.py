"""`mooring join`: keys in a vault, and a card for the roster."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli.execution import DEFAULT_VAULT, Format, VaultPath, open_vault, run_command
from mooring.errors import InputError

floor_option = partial(typer.Option, rich_help_panel="Floors")


def join(
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
    format: Format = "text",
) -> None:
    """Make your keys and secrets in a local vault, and a public card for the study's roster.

    The vault stays with you: keep it, back it up, show it to nobody. The card goes to whoever keeps the study's file. A
    vault that is there already is used as it is, so one vault serves all your studies. Write a new card for each study of
    secure sums: its combining key is destroyed once the study's total is combined.

    Example: mooring join --name st-mary --vault st-mary/vault
    """
    with run_command(format) as console:
        from mooring.protocol.messages.card import Member, require_name, write_card
        from mooring.protocol.participant.membership import make_member
        from mooring.protocol.storage.vault import Floors, Vault

        require_name("name", name)
        there = (vault / "identity.json").exists() or (vault / "identity.age").exists()
        asked = {"anchor_noise": least_anchor_noise, "data_noise": least_data_noise, "most_epsilon": most_epsilon}
        if there:
            opened = open_vault(vault)
            differ = any(given not in (None, getattr(opened.floors, name)) for name, given in asked.items())
            plain = not (vault / "identity.age").exists()
            if differ or (accept_no_noise and not opened.floors.without_noise) or (with_passphrase and plain):
                raise InputError(
                    "vault",
                    expected="a new one for these floors or this passphrase",
                    got="one that is there, with others",
                    cure="Leave the options out to use it as it is; floors and passphrase are set once.",
                )
        else:
            words = _new_passphrase() if with_passphrase else None
            given = {key: value for key, value in asked.items() if value is not None}
            opened = Vault.create(vault, passphrase=words, floors=Floors(**given, without_noise=accept_no_noise))
        card = output or Path(f"{name}.card.toml")
        member = Member(name, opened.signing_key.public) if analyst else make_member(name, opened, combines=True)
        write_card(card, role="analyst" if analyst else "participant", member=member, signer=opened.signing_key)

        made = "The vault is there already" if there else "Made a vault"
        console.show(
            {"name": name, "new_vault": not there, "card": str(card), **member.as_dict()},
            f"{made}, in [bold]{escape(str(vault))}[/bold]: keep it, back it up.",
            f"Send the card [bold]{escape(str(card))}[/bold] to whoever keeps the study's file; it holds no secret.",
        )


def _new_passphrase() -> str:
    given = os.environ.get("MOORING_PASSPHRASE")
    return given or str(typer.prompt("Passphrase for the vault", hide_input=True, confirmation_prompt=True, err=True))
