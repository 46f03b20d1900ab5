"""Keys of the command log: what compaction may take away, and what it must not."""

from __future__ import annotations

from service.engine.commands import PutQuery, PutSource
from service.engine.engine import Engine


def test_compaction_leaves_every_version_of_a_source_before_its_queries() -> None:
    engine = Engine()
    log: list[tuple[str, dict[str, object]]] = []
    where = {"id": "q", "source": "s", "where": "x > 0"}
    for command in (
        PutSource("s", {"attributes": {"x": "number"}}),
        PutQuery(None, where),
        PutSource("s", {"attributes": {"x": "number", "y": "number"}}),
        PutQuery(None, {**where, "where": "x > 1"}),
        PutSource("s", {"attributes": {"x": "number", "y": "number", "z": "number"}}),
    ):
        entry = engine.draft(0).prepare(command).entry
        assert entry is not None
        engine.command([(len(log), entry.body)], 0)
        log.append((entry.key, entry.body))

    newest = {key: offset for offset, (key, _) in enumerate(log)}
    compacted = [(offset, body) for offset, (key, body) in enumerate(log) if newest[key] == offset]
    assert [offset for offset, _ in compacted] == [0, 2, 3, 4]
    again = Engine()
    again.command(compacted, 0)
    assert not again.catalog.quarantined
    assert again.catalog.queries == engine.catalog.queries
    assert again.catalog.sources == engine.catalog.sources
