"""`mooring collect`: verify the bundles that arrived."""

from __future__ import annotations

from mooring.cli import execution


@execution.command
def collect(
    console: execution.Output,
    bundles: execution.BundleFolder,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: execution.WorkFolder = execution.DEFAULT_FOLDER,
) -> int:
    """Take the step 'collect'.

    'mooring align' also begins with this step. The work folder records whose bundle was accepted.

    Exit code 3 means that the step is done, but a bundle was set aside.

    Example: mooring collect --study study.toml --bundles inbox --folder analysis
    """
    workspace = execution.make_workspace(study, folder=folder)
    return console.show_outcome(execution.take_step("collect", workspace, bundles=bundles))
