"""What a store's error means, in plain words; its own message is never shown: it may quote credentials."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.errors import StorageError
from mooring.protocol.transport.addresses import redact_address

_NO_CREDENTIALS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "ProfileNotFound",
    "TokenRetrievalError",
)


def is_denied(problem: BaseException) -> bool:
    """Whether a store said no (401, 403)."""
    return any(
        isinstance(each, PermissionError) or getattr(each, "status", None) in (401, 403) for each in _chain(problem)
    )


def is_absent(problem: BaseException) -> bool:
    """Whether a store said that there is nothing (404)."""
    return any(isinstance(each, FileNotFoundError) or getattr(each, "status", None) == 404 for each in _chain(problem))


def lacks_credentials(problem: BaseException) -> bool:
    """Whether nobody told who asks."""
    return any(type(each).__name__ in _NO_CREDENTIALS for each in _chain(problem))


def explain_store_error(problem: BaseException, *, what: str, address: str, doing: str = "used") -> StorageError:
    """What a store's error means, and what to do."""
    where = redact_address(address)
    if lacks_credentials(problem):
        reason, cure = (
            "there are no credentials for the store",
            "Set them as its tools expect (for s3:// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile); a "
            "participant needs none with a presigned address, which 'mooring invite' makes.",
        )
    elif is_denied(problem):
        reason, cure = (
            "the store refuses access (403)",
            "Check that your credentials are not expired, and may list, read and write there.",
        )
    elif is_absent(problem):
        reason, cure = (
            "nothing is there (404)",
            "Check bucket and folder; a store knows no empty folders, so there is none before the first file.",
        )
    else:
        reason, cure = (
            "the store could not be reached, or broke off",
            "Check the address and the network, then run the same command again; nothing finished is lost.",
        )
    return StorageError(what, reason=f"{where} cannot be {doing}: {reason}", cure=cure)


def is_transient(problem: BaseException) -> bool:
    """Whether another try may help."""
    return not (lacks_credentials(problem) or is_denied(problem) or is_absent(problem))


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while problem is not None and problem not in seen:
        seen.append(problem)
        yield problem
        problem = problem.__cause__ or problem.__context__
