"""A step of a path that may be any text: a stream id with slashes, and with line breaks.

The framework's ``path`` stops at a line break, so such a stream could be neither seen nor removed. Its
registry of such things is global: whoever writes ``{id:text}`` in a path imports this module.
"""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class AnyText(Convertor[str]):
    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


TEXT = "text"
register_url_convertor(TEXT, AnyText())
