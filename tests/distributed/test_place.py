"""Four stewards and an analyst by the driver alone, through an S3-compatible store, which takes what a folder takes."""

from pathlib import Path

import fsspec
import pytest

from tests.protocol.driver.support import NAMES, Town, draft

from .object_store import amazons_own, settings

pytest.importorskip("moto")
pytest.importorskip("s3fs")


@pytest.mark.parametrize("mechanism", ["rotation", "sums"])
def test_a_study_goes_from_a_draft_to_predictions_through_a_store(
    mechanism: str, moto_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings(moto_port).items():
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    town = Town.found(tmp_path, draft(mechanism), place=f"s3://ward/run-{mechanism}")
    town.advance("north")
    with amazons_own(moto_port) as client:  # half a card, as an interrupted upload leaves
        key = f"run-{mechanism}/north/everybody/north.card.toml"
        card = client.get_object(Bucket="ward", Key=key)["Body"].read()
        client.put_object(Bucket="ward", Key=key, Body=card[: len(card) // 2])
    town.go_round()
    for name in NAMES:
        assert (tmp_path / name / "predictions.csv").is_file()
        assert town.took(name).count("Share") == 1
