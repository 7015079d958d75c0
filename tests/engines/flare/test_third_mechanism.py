"""A study of a mechanism from outside runs as a FLARE job, although nothing of FLARE's half of mooring knows it."""

import json
from pathlib import Path

import pytest

from mooring.engines.flare.chunks import Message
from mooring.engines.flare.client_workflow import ClientWorkflow
from mooring.engines.flare.server_workflow import ServerWorkflow
from mooring.engines.flare.settings import ServerSettings, SiteSettings
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.role import Participant
from mooring.protocol.storage.vault import Vault
from tests import commands
from tests.engines.flare.support import SiteTasks
from tests.protocol.test_third_mechanism import NAME, registered, write_table

__all__ = ["registered"]
NAMES = ("north", "south", "east")


@pytest.mark.usefixtures("registered")
def test_a_mechanism_from_outside_runs_as_a_job(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    for k, name in enumerate((*NAMES, "analyst")):
        (tmp_path / name).mkdir()
        write_table(tmp_path / name / "rows.csv", k)
        role = ["--role", "analyst"] if name == "analyst" else ["--accept-no-noise"]
        commands.run("join", "--name", name, *role, place=tmp_path / name)
    draft = ["study", "init", tmp_path / "north" / "rows.csv", "--mechanism", NAME, "--all-ranges", "-1:1"]
    commands.run(*draft, "--label", "ill", "--classes", "no,yes", "--output", path)
    commands.run("study", "enrol", *(tmp_path / name / f"{name}.card.toml" for name in (*NAMES, "analyst")), "-s", path)
    study, kit = Study.read(path), tmp_path / "kit"
    kit.mkdir()
    settings = ServerSettings(path, tmp_path / "analyst" / "vault", tmp_path / "analyst" / "mooring")
    settings.write(kit)
    server = ServerWorkflow.opened(kit, study.digest, lambda words: None)

    def open_site(name: str, message: Message) -> ClientWorkflow:
        here = tmp_path / name
        given = SiteSettings(path, here / "vault", here / "rows.csv", folder=here / "mooring")
        return ClientWorkflow.opened(given, name, study.digest, message, server.place.answer)

    assert server.run(NAMES, SiteTasks(open_site)) == ()
    server.close()
    record = json.loads((settings.folder / "flare.json").read_bytes())
    assert {name: site["done"] for name, site in record["sites"].items()} == {name: ["Join", "Share"] for name in NAMES}
    write_table(tmp_path / "new.csv", 9)
    participant = Participant(study, Vault.open(tmp_path / "south" / "vault"))
    predictions = participant.predict(tmp_path / "new.csv", result=tmp_path / "south" / "mooring" / "result")
    assert predictions.score is not None
    assert predictions.score.value > 0.9
