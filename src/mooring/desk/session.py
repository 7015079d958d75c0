"""Protection of a desk: it answers only requests that its own pages make, in the browser that opened the printed address.

- Other machines cannot connect, because the desk listens on 127.0.0.1.
- Other users of this machine have no cookie. A browser gets it for the token in the address, which works once.
- Other web pages in the same browser are refused by the headers Host (against DNS rebinding), Origin and Sec-Fetch-Site, and
  by a token in every form. The browser does not send the cookie with the requests of such pages.
- Other servers on this machine do not receive the cookie, because they do not know its path.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mooring.errors import RefusedError

COOKIE = "mooring-desk"
MOST_UPLOAD_BYTES, MOST_FORM_BYTES = 2**30, 2**16
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
DOCUMENT_POLICY = f"sandbox; {_POLICY}; form-action 'none'"
_HEADERS = {
    "content-security-policy": f"{_POLICY}; form-action 'self'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with none, forms would be sent with the Origin 'null'
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass
class Session:
    """The secrets of one running desk."""

    port: int
    announce: Callable[[str], None] = field(default=lambda address: None, repr=False)
    """Called with the next address whenever an address has been used."""
    path: str = field(default_factory=lambda: f"/{secrets.token_hex(8)}", repr=False)
    """The path of all pages, and the only one that the cookie is sent to."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """The token in the address, which is replaced once it is used."""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """The cookie's value."""
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """The token in every form."""

    @property
    def address(self) -> str:
        """The address that opens the desk; it works once."""
        return f"http://127.0.0.1:{self.port}{self.path}/open?token={self.token}"

    @property
    def cookie(self) -> str:
        """The header that gives a browser the cookie."""
        return f"{COOKIE}={self.key}; Path={self.path}/; HttpOnly; SameSite=Strict"

    def redeem(self, token: str) -> bool:
        """Return whether a token is the one in the address; if it is, the token is replaced."""
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return False
        self.token = secrets.token_urlsafe(32)
        self.announce(self.address)
        return True

    def require_form_token(self, token: object) -> None:
        """Refuse a form that does not come from a page of this desk."""
        if not (isinstance(token, str) and secrets.compare_digest(token.encode(), self.form_token.encode())):
            raise RefusedError(
                "the form", reason="it does not come from a page of this desk", cure="Load the page again."
            )

    def find_refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the reason for refusing a request, before its body is read; None if it is accepted.

        A token in the address is used up.
        """
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        hosts, origins, sites = (headers.get(name, []) for name in ("host", "origin", "sec-fetch-site"))
        if hosts not in ([f"127.0.0.1:{self.port}"], [f"localhost:{self.port}"]):
            return 421, "the Host is not this desk's"
        opens = scope["method"] == "GET" and scope["path"] == f"{self.path}/open"
        if not opens and sites not in ([], ["none"], ["same-origin"]):
            return 403, "another site sent the request"
        if scope["method"] == "POST":
            if origins != [f"http://{hosts[0]}"] and (origins or sites != ["same-origin"]):
                return 403, "the Origin is not this desk's"
            sizes = headers.get("content-length", [])
            most = MOST_UPLOAD_BYTES if scope["path"] == f"{self.path}/upload" else MOST_FORM_BYTES
            if len(sizes) != 1 or not sizes[0].isdecimal():
                return 411, "it does not state its size"
            if int(sizes[0]) > most:
                if most == MOST_FORM_BYTES:
                    return 413, f"its form is larger than {most >> 10} kB"
                return 413, f"it is larger than {most >> 20} MB; copy the file into the desk's folder instead"
        elif scope["method"] != "GET":
            return 405, "only GET and POST are supported"
        if opens:
            token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            return None if self.redeem(token) else (403, "the address was used before, or belongs to a different desk")
        if not self._has_key(headers.get("cookie", [])):
            return 403, "this browser did not open the desk"
        return None

    def _has_key(self, cookies: list[str]) -> bool:
        """Return whether a cookie holds the key; other servers on this machine may have set cookies of the same name."""
        pairs = (cookie.strip().partition("=") for header in cookies for cookie in header.split(";"))
        return any(
            name == COOKIE and secrets.compare_digest(value.encode(), self.key.encode()) for name, _, value in pairs
        )


@dataclass(frozen=True)
class Guard:
    """Middleware that refuses what the session refuses, and adds the desk's headers to every answer."""

    app: ASGIApp
    session: Session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                headers = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                more = [header for header in headers if header[0] not in present]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        refusal = self.session.find_refusal(scope)
        if refusal is None:
            await self.app(scope, receive, send_guarded)
            return
        status, reason = refusal
        cure = "To use the desk, open the address that 'mooring desk' printed last."
        answer = PlainTextResponse(f"mooring desk: the request is refused: {reason}. {cure}\n", status)
        await answer(scope, receive, send_guarded)
