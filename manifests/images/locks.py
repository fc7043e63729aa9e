"""What images and the kubectl plugin install, locked with hashes: `python manifests/images/locks.py` writes the .txt
beside each .in.

An .in file names what the packages of one of them import; which versions will do says pyproject.toml.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LOCKED = ("build", "extender", "plugin", "kubectl")
COMMAND = ("pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-annotate", "--python-version=3.11")


def main() -> None:
    """Resolve all anew; needs a package index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dependencies = [*project["dependencies"], *project["optional-dependencies"]["traces"]]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(dependencies))
        constraints.flush()
        for name in LOCKED:
            files = [f"--constraint={constraints.name}", f"--output-file={HERE / name}.txt", str(HERE / f"{name}.in")]
            header = "--custom-compile-command=make locks"
            subprocess.run([sys.executable, "-m", "uv", *COMMAND, "--upgrade", header, *files], check=True)


if __name__ == "__main__":
    main()
