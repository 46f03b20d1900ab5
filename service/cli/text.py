"""Text for people: what others wrote cannot move the cursor, change colours or begin a line of its own.

Stream ids are any text, and come from whoever produces events; so do dead letters, and names in the history.
On a terminal, control characters in them are commands: to clear it, to set its title or the clipboard, to
look like another line. They are shown as Python writes them (``\\x1b``).

Not for: machines. JSON has escapes of its own, and goes out by ``print`` as it is.
"""

from __future__ import annotations

import re
import sys
from typing import Any

#: C0, DEL and C1; further line breaks; what changes the direction of the text around it; halves of pairs,
#: which no output can encode.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str) -> str:
    """The text on one line, without anything that a terminal obeys."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def all_escaped(value: Any) -> Any:
    """The same for every text in a JSON value, names of fields too."""
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, list):
        return [all_escaped(one) for one in value]
    if isinstance(value, dict):
        return {escaped(name): all_escaped(one) for name, one in value.items()}
    return value


def say(*lines: str) -> None:
    """Lines for a person, on stdout."""
    for line in lines:
        print(escaped(line), flush=True)


def warn(*lines: str) -> None:
    """Lines for a person, on stderr."""
    for line in lines:
        print(escaped(line), file=sys.stderr, flush=True)
