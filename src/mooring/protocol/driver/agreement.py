"""How members agree on a study: cards are collected, the roster is completed, and everybody compares the fingerprint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mooring.atomic_io import copy_atomically, hash_file, make_folder
from mooring.errors import RefusedError
from mooring.protocol.driver.post import Event, Post
from mooring.protocol.driver.questions import Given, OpenQuestion, ask_about_members, ask_about_study
from mooring.protocol.messages.card import Member, Role, read_card
from mooring.protocol.messages.public_file import public_file_name
from mooring.protocol.messages.study import Study
from mooring.protocol.step import AGREED
from mooring.protocol.transport.place import CARD_SUFFIX, EVERYBODY, STUDY_NAME, PlacedFile
from mooring.protocol.workspace import Workspace

_MOST_CARD_BYTES, _MOST_STUDY_BYTES, _MOST_PUBLIC_BYTES = 2**16, 2**20, 2**28
Cards = list[tuple[Role, Member]]


@dataclass
class Agreement:
    """The part of a member's run that comes before the member has agreed to a complete study."""

    workspace: Workspace
    post: Post
    given: Given
    answer: Callable[[OpenQuestion], bool]
    """Returns whether a question has the answer yes."""

    @property
    def is_reached(self) -> bool:
        """Whether the folder has a complete study with this member and, if there is a place, the member has agreed to it."""
        workspace = self.workspace
        if not AGREED.is_there(workspace):
            return False
        return self.post.place is None or self.post.journal.entries.agreed == workspace.study.digest

    def advance(self) -> bool:
        """Fetch cards or studies, and return whether anything changed."""
        if self.given.is_analyst:
            if not self.workspace.has_study:
                self.post.notice(
                    "There is no draft yet. 'mooring study init' writes study.toml here, and the run then goes on."
                )
            return self._fetch_cards() or self._accept_own_study()
        return self._fetch_studies()

    def put(self) -> bool:
        """Put the card and, as the analyst, the study; return whether anything was put."""
        workspace, post, name = self.workspace, self.post, self.workspace.identify().name
        card = f"{name}{CARD_SUFFIX}"
        moved = post.put(workspace.root / card, PlacedFile(name, EVERYBODY, card), grows=True)
        if self.given.is_analyst and workspace.has_study:
            study, beside = workspace.study, workspace.study_file.parent
            public = PlacedFile(name, EVERYBODY, public_file_name(study))
            if digests := list_public_digests(study):
                moved |= post.put(beside / public.name, public, grows=True, public=digests)
            moved |= post.put(workspace.study_file, PlacedFile(name, EVERYBODY, STUDY_NAME), grows=True)
        return moved

    def choose_cards(self) -> tuple[list[Path], Cards] | None:
        """Return the files of the cards to enrol, the analyst's own last, and the cards of the others.

        Returns None until enough members have joined. If fingerprints were accepted beforehand, only the cards with these
        fingerprints are chosen, and all of them must be there.
        """
        workspace, own_name = self.workspace, self.workspace.identify().name
        paths = [workspace.root / name for name in workspace.list_files((CARD_SUFFIX,))]
        cards = {path: read_card(path) for path in paths}
        others = {path: card for path, card in cards.items() if card[1].name != own_name}
        if accepted := {*self.given.accepted}:
            others = {path: card for path, card in others.items() if self.given.answer(ask_about_members([card]))}
            if len(others) < len(accepted):
                return None
        too_few = len(others) < self.given.n_members
        if too_few or sum(role == "participant" for role, _ in others.values()) < 2:
            return None
        return [*others, *(path for path in paths if cards[path][1].name == own_name)], [*others.values()]

    def _accept_own_study(self) -> bool:
        """Agree to the complete study that this member, the analyst, made."""
        workspace = self.workspace
        if not AGREED.is_there(workspace) or workspace.identify().role != "analyst":
            return False
        study = workspace.study
        self.post.journal.agree(study.digest)
        words = f"The study is complete. Tell everybody its fingerprint by telephone: {study.fingerprint}"
        self.post.tell(Event("notice", words))
        return True

    def _fetch_cards(self) -> bool:
        """Fetch members' cards while the roster is open; return whether any came."""
        own_name, moved = self.workspace.identify().name, False
        for file in self.post.list_open(own_name, lambda file: file.name == f"{file.sender}{CARD_SUFFIX}"):

            def check(path: Path, sender: str = file.sender) -> None:
                role, member = read_card(path)
                if member.name != sender or role == "analyst":
                    raise RefusedError(
                        "the card",
                        reason="it is not the sender's own card, or is an analyst's",
                        cure="Ask for it again.",
                    )

            target = self.workspace.root / file.name
            moved |= self.post.take_in(file, target, _MOST_CARD_BYTES, check, grows=True)
        return moved

    def _fetch_studies(self) -> bool:
        """Fetch a draft, or a complete study once a person has compared its fingerprint; return whether any was accepted."""
        workspace, moved = self.workspace, False
        own_name, candidates = workspace.identify().name, list[tuple[Study, Path, str]]()
        for file in self.post.list_open(own_name, lambda file: file.name == STUDY_NAME):
            path = self.post.journal.folder / f"candidate-{file.sender}" / STUDY_NAME
            make_folder(path.parent, mode=0o700, what="the vault")

            def check(path: Path, sender: str = file.sender) -> None:
                study = Study.read(path)
                if study.is_complete and study.analyst is not None and study.analyst.name != sender:
                    reason = "it is complete, and its sender is not its analyst"
                    raise RefusedError("the study", reason=reason, cure="Ask the analyst to put it at the place.")

            self.post.take_in(file, path, _MOST_STUDY_BYTES, check, grows=True)
            if path.is_file():
                candidates.append((Study.read(path), path, file.sender))
        drafts = [candidate for candidate in candidates if not candidate[0].is_complete]
        if len(drafts) > 1:  # drafts are not signed, and nobody can say which one is meant
            self.post.notice(f"There are drafts from {' and '.join(sender for _, _, sender in drafts)}; none is used.")
        for study, path, sender in candidates:
            if (study.is_complete or len(drafts) == 1) and self._fetch_public_file(study, sender):
                moved |= self._consider(study, path, sender)
        known = {study.digest for study, _, _ in candidates}
        if AGREED.is_there(workspace) and not self.is_reached and workspace.study.digest not in known:
            moved |= self._consider(workspace.study, workspace.study_file, "this folder")
        return moved

    def _consider(self, study: Study, path: Path, source: str) -> bool:
        """Accept a draft or, if a person agrees, a complete study with this member's keys; return whether it was new."""
        workspace, post = self.workspace, self.post
        if not study.is_complete:
            is_known = workspace.has_study and (workspace.study.is_complete or workspace.study.digest == study.digest)
            if not is_known:
                copy_atomically(path, workspace.study_file, what="the study's file")
                post.tell(Event("notice", f"A draft of the study {study.name!r} has come from {source}."))
            return not is_known
        if not workspace.identify().role:
            return False  # this member joins first
        key = workspace.vault.signing_key.public
        if study.member_with_key(key) is None and study.helper_with_key(key) is None:
            post.notice(f"The study from {source} is complete, but your card is not in its roster.")
            return False
        if not self.answer(ask_about_study(study)):
            return False
        if path != workspace.study_file:
            copy_atomically(path, workspace.study_file, what="the study's file")
        post.journal.agree(study.digest)
        return True

    def _fetch_public_file(self, study: Study, sender: str) -> bool:
        """Fetch the public file that a study names; return whether the file is there or not needed."""
        digests, path = list_public_digests(study), self.workspace.study_file.parent / public_file_name(study)
        if not digests or (path.is_file() and hash_file(path, what="the public file") in digests):
            return True
        file = self.post.files.get(PlacedFile(sender, EVERYBODY, path.name).path)
        if file is None:
            self.post.notice(
                f"The study from {sender} names the public file {path.name}, which is not at the place yet."
            )
            return False

        def check(fetched: Path) -> None:
            if hash_file(fetched, what="the public file") not in digests:
                reason = "it is not the one that the study names"
                raise RefusedError("the public file", reason=reason, cure="Ask the study's sender for it.")

        return self.post.take_in(file, path, _MOST_PUBLIC_BYTES, check, grows=True)


def list_public_digests(study: Study) -> list[str]:
    """Return the SHA-256 digests of public files that a study's mechanism names."""
    named = study.mechanism.as_dict().items()
    return [str(value) for key, value in named if key.endswith("_digest") and value]
