"""How a command fails: one line for a person, one number for a script."""

from __future__ import annotations

FAILED = 1
"""The service or a file said no; the text says why."""
USAGE = 2
"""The command line is wrong (argparse's own code)."""
UNREACHABLE = 3
"""There is no service, or no broker, at the address."""
INTERRUPTED = 130


class CliError(Exception):
    """Ends the command with this text on stderr and this exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code
