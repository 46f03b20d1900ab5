"""The settings of a Kafka client, as Kafka's own tools take them: a file of ``name=value`` lines.

A secured cluster needs them (``security.protocol``, ``sasl.jaas.config``, ``ssl.truststore.location``, ...).
They are passed to Spark as they are, and come from a file because everybody may see the flags of a process.

Not for: escapes and continued lines of Java's format, which no such setting needs; they are refused.
"""

from __future__ import annotations

from pathlib import Path


class PropertiesError(Exception):
    """The file is not there or is not of such lines; the text names the line and never its value."""


def client_properties(file: Path) -> dict[str, str]:
    """The settings of a file; blank lines and those that begin with ``#`` or ``!`` do not count.

    Raises PropertiesError."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PropertiesError(f"cannot read {file}: {getattr(error, 'strerror', 'not UTF-8')}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip()[0] in "#!":
            continue
        name, is_setting, value = line.partition("=")
        if not is_setting or not name.strip() or "\\" in line:
            raise PropertiesError(f"{file}, line {number}: write name=value, without backslashes")
        found[name.strip()] = value.strip()
    return found
