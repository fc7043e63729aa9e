"""Writes the files that are made."""

from tests.monitoring.files import made

for path, text in made():
    path.write_text(text)
    print(path)
