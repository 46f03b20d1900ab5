"""Queries of the command log that differ in little: what they have in common is read once.

Idea: the service writes the entry of a query always in the same order. Between what is another's in each of
them (id, condition, tags, time of expiry) stand the same bytes in nearly all. Those bytes are looked up, and
what they say is taken from a query that was read the whole way and had them too: a third of the work of
reading a million queries at the start. The conditions have their own such way (``forms``).

Invariant: a query from here equals that of the whole way (``language``). What is cut out is a JSON value
wherever it is put, so the rest means the same. Everything else (entries by hand or of other versions,
escapes, texts that are not ASCII, what no form fits) gives None and goes the whole way, which says what is
wrong.

Not for: entries that are no queries, or that take one out of a collection. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from service.forms import known_region
from service.language import MAX_INSTANT_MS, STORED, kept_region, parse_query
from service.model import Query, Refusal, Source
from service.tenants import split

_MOST_EXAMPLES = 4_096

_ID = rb"[A-Za-z0-9._~:-]{1,200}"
_TEXT = rb"[ !#-\[\]-~]*"
_FLAG = rb"(?:true|false)"
_WHOLE = rb"(?:0|[1-9][0-9]{0,14})"
_TIME = rb"(?:null|" + _WHOLE + rb")"
#: What is cut out between brackets holds none that would end it, or is no JSON then.
_entry = re.compile(
    rb'\{"v":1,"op":"query","id":"(?!default/)((?:[A-Za-z0-9._-]{1,100}/)?((?!\.\.?")' + _ID + rb'))"'
    rb',"query":\{"id":"\2","source":"([A-Za-z0-9._-]{1,100})"'
    rb',"where":(?:"(' + _TEXT + rb')"|(\{"any":\[.*?\]\}))'
    rb',("on":\[[^]]*\],"initial":"[a-z]*")'
    rb',"keep":(?:null|"(' + _TEXT + rb')")'
    rb',("for":' + _TIME + rb',"cooldown":' + _TIME + rb',"once":' + _FLAG + rb',"select":\[[^]]*\]'
    rb',"aggregates":(?:null|\{[^{}]*\}))'
    rb',"tags":(\{[^{}]*\})'
    rb',("enabled":' + _FLAG + rb'),"expires_at":(' + _TIME + rb")\}"
    rb',"at":' + _WHOLE + rb'(?:,"by":"' + _TEXT + rb'")?\}'
).fullmatch  # fmt: skip

_from_json = msgspec.json.Decoder().decode
_tags_of = msgspec.json.Decoder(dict[str, str]).decode
_NO_TAGS: Mapping[str, str] = {}
_NONE = None, None

_Frame = tuple[bytes, ...]
"""What stands between, in order."""


class StoredQueries:
    """Reads entries of the command log, one after the other, against ``sources`` as they are then."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self._examples: dict[_Frame, tuple[Source, Query]] = {}

    def read(self, value: bytes | None) -> Query | None:
        """The query that an entry puts; None where the entry has to be read the whole way. O(length)."""
        found = _entry(value) if value is not None else None
        source = self._sources.get(found[3].decode()) if found is not None else None
        if found is None or source is None:
            return None
        try:
            return self._query(found, source)
        except (Refusal, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _query(self, found: re.Match[bytes], source: Source) -> Query | None:
        key, _, name, text, parts, begin, keep, middle, tags, end, expires = found.groups()
        frame = name, begin, middle, end
        known, example = self._examples.get(frame, _NONE)
        if known is not source or example is None:
            return self._example(found, frame, source)
        where = text.decode() if parts is None else _from_json(parts)
        region = known_region(where, source, limit=STORED.disjuncts, max_bytes=STORED.text)
        tagged = _tags_of(tags) if tags != b"{}" else _NO_TAGS
        expires_at = None if expires == b"null" else int(expires)
        if region is None or len(tagged) > STORED.tags or (expires_at or 0) > MAX_INSTANT_MS:
            return None
        kept = None if keep is None else keep.decode()
        return Query(  # by place, which takes half the time of names
            key.decode(),
            source.name,
            where,
            region,
            example.on,
            example.initial,
            example.select,
            tagged,
            example.enabled,
            kept,
            kept_region(kept, region, source, STORED),
            example.dwell,
            example.cooldown,
            example.once,
            example.aggregates,
            expires_at,
        )

    def _example(self, found: re.Match[bytes], frame: _Frame, source: Source) -> Query:
        """Reads an entry the whole way, for others to be like it."""
        tenant, id = split(found[1].decode())
        body = _from_json(found[0])["query"]
        query = parse_query(body, self._sources, id=id, now_ms=None, limits=STORED, tenant=tenant)
        if len(self._examples) == _MOST_EXAMPLES:
            self._examples.clear()
        self._examples[frame] = source, query
        return query
