"""Members of studies with keys of their own and no vault."""

import hashlib

from mooring.protocol.crypto.keys import SealingKey, Secret, SigningKey
from mooring.protocol.messages.card import Member, proof_text


def fixed_key(number: int) -> SigningKey:
    """The signing key of a number below 256, always the same."""
    return SigningKey(Secret(bytes([number] * 32)))


def sealing_key_of(signer: SigningKey) -> SealingKey:
    """A sealing key that follows from a signing key."""
    return SealingKey(Secret(hashlib.shake_256(signer.seed.reveal()).digest(96)))


def keyed_member(name: str, signer: SigningKey) -> Member:
    """A participant with a sealing key that it signed."""
    sealing = sealing_key_of(signer).public
    return Member(name, signer.public, sealing, signer.sign(proof_text("sealing", sealing)).hex())
