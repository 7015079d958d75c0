"""Who may talk to a desk: the browser that opened it with the address in the terminal, from the desk's own pages.

Other machines: the desk listens on 127.0.0.1. Other users of this one: a cookie, in exchange for a token that works once.
Other web pages in the same browser: the Host header (DNS rebinding), Origin and Sec-Fetch-Site, a cookie that is not sent
across sites, nor to other servers on this machine, which do not know its path, and a token in every form.
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
    """Given the next address to open whenever one is used."""
    path: str = field(default_factory=lambda: f"/{secrets.token_hex(8)}", repr=False)
    """Below which everything lies, and alone the cookie is sent."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """In the address; another one once it is used."""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """The cookie's value."""
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """In every form."""

    @property
    def address(self) -> str:
        """Opens the desk, once."""
        return f"http://127.0.0.1:{self.port}{self.path}/open?token={self.token}"

    @property
    def cookie(self) -> str:
        """The header that lets a browser in."""
        return f"{COOKIE}={self.key}; Path={self.path}/; HttpOnly; SameSite=Strict"

    def redeem(self, token: str) -> bool:
        """Whether a token is the one in the address, which is used up then."""
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return False
        self.token = secrets.token_urlsafe(32)
        self.announce(self.address)
        return True

    def require_form_token(self, given: object) -> None:
        """Refuse a form that no page of this desk held."""
        if not (isinstance(given, str) and secrets.compare_digest(given.encode(), self.form_token.encode())):
            raise RefusedError("the form", reason="it is not of this desk", cure="Load the page again.")

    def find_refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and the reason to refuse a request with, judged by its head alone; None to let it through."""
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
                return 411, "it does not say its size"
            if int(sizes[0]) > most:
                return 413, f"it is larger than {most >> 20 or 1} MB; copy the file into the desk's folder instead"
        elif scope["method"] != "GET":
            return 405, "nothing but GET and POST is understood"
        if opens:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            return None if self.redeem(given) else (403, "the address was used before, or is of another desk")
        if not self._has_key(headers.get("cookie", [])):
            return 403, "this browser did not open the desk"
        return None

    def _has_key(self, cookies: list[str]) -> bool:
        """Whether one of the cookies is the key: other servers on this machine may have set more of that name."""
        pairs = (one.strip().partition("=") for header in cookies for one in header.split(";"))
        return any(
            name == COOKIE and secrets.compare_digest(value.encode(), self.key.encode()) for name, _, value in pairs
        )


@dataclass(frozen=True)
class Guard:
    """Middleware: lets through what a session does not refuse, and puts its headers on every answer."""

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
                own = {name for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in own]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        refusal = self.session.find_refusal(scope)
        if refusal is None:
            await self.app(scope, receive, send_guarded)
            return
        status, reason = refusal
        cure = "Open the address that 'mooring desk' printed last."
        answer = PlainTextResponse(f"mooring desk: the request is refused: {reason}. {cure}\n", status)
        await answer(scope, receive, send_guarded)
