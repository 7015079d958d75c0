"""Source distributions of the same files are the same bytes."""

import tarfile
from pathlib import Path

from tests.installation.scripts import load_script

normalise = load_script("normalise_sdist").normalise


def test_the_same_files_packed_by_others_at_other_times_give_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for names, time, mode in ((("a.py", "b.py"), 1_000_000, 0o600), (("b.py", "a.py"), 2_000_000, 0o664)):
        path = tmp_path / f"{time}.tar.gz"
        with tarfile.open(path, "w:gz") as packed:
            for name in names:
                (tmp_path / name).write_text(name)
                entry = packed.gettarinfo(tmp_path / name, arcname=f"mooring-0/{name}")
                entry.mtime, entry.uid, entry.uname, entry.mode = time, time, str(time), mode
                with (tmp_path / name).open("rb") as file:
                    packed.addfile(entry, file)
        assert path.read_bytes() not in written
        normalise(path, 5_000_000)
        written.append(path.read_bytes())
        with tarfile.open(path) as packed:
            members = {entry.name: packed.extractfile(entry) for entry in packed.getmembers()}
            assert {name: file and file.read() for name, file in members.items()} == {
                "mooring-0/a.py": b"a.py",
                "mooring-0/b.py": b"b.py",
            }
    assert written[0] == written[1]
