"""The scripts of the folder installation as modules, and wheels for tests of them."""

import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "installation" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_wheel(folder: Path, name: str, *requires: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    info, path = f"{name}-1.0.dist-info", folder / f"{name}-1.0-py3-none-any.whl"
    about = "\n".join(
        [
            "Metadata-Version: 2.1",
            f"Name: {name}",
            "Version: 1.0",
            *(f"Requires-Dist: {name}" for name in requires),
        ]
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "print('it runs')\n")
        archive.writestr(f"{info}/METADATA", about + "\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path
