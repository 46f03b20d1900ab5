"""Faults that an engine like ours could have, each small, and each of them once overlooked somewhere.

A fault names a history of the suite that finds it (``search``): where that does not any more, since the
histories have changed, ``python -m tests.engine.planting`` says which do now.

Not for: faults that raise an exception by themselves; anybody finds those.
"""

from __future__ import annotations

from service.engine import (
    changes,
    collections,
    crossings,
    delta,
    due,
    engine,
    events,
    kernels,
    memory,
    numbers,
    payments,
    recent,
    state,
    streams,
)
from service.engine.aggregates import PartitionAggregates
from service.engine.catalog import Catalog
from service.engine.collections import Collections
from tests.engine.planting import Fault

TIME = (
    Fault(
        "a late event does not renew the ttl of its stream", kernels, "walk",
        "seen[s] = clock[i]", "seen[s] = seen[s] if is_late else clock[i]",
        "plane", 3,
    ),
    Fault(
        "a rejected event renews the ttl of its stream", kernels, "walk",
        "verdict[i] = REJECTED", "verdict[i] = REJECTED; seen[s] = clock[i]",
        "plane", 110,
    ),
    Fault(
        "a late event is not recorded in the state", events, "apply_events",
        "seen = ~refuses &", "seen = ~refuses & (verdict != kernels.LATE) &",
        "plane", 11,
    ),
    Fault(
        "silence begins a millisecond late", kernels, "walk",
        "clock[i] - seen[s] >= stale_after", "clock[i] - seen[s] > stale_after",
        "line", 3,
    ),
    Fault(
        "a wait ends though its stream is silent", due, "_end_waits",
        "silence >= (queries.source.stale_after or NEVER)", "silence > NEVER - 1",
        "plane", 1,
    ),
    Fault(
        "a wait ends in the very millisecond that its stream falls silent", due, "_end_waits",
        "silence >= (queries.source.stale_after or NEVER)", "silence > (queries.source.stale_after or NEVER)",
        "line", 3,
    ),
    Fault(
        "a wait goes on after a silence", crossings, "_settle_in_waves",
        "restarts=walked.first[pairs] | walked.silent[pairs]", "restarts=walked.first[pairs]",
        "line", 3,
    ),
    Fault(
        "a wait is forgotten after a silence that an event inside ends", crossings, "_woken",
        "if entry[0] == WAITING", "if entry[0] == WAITING and False",
        "line", 3,
    ),
    Fault(
        "a batch is not cut where a silence ends", due, "apply_in_time",
        "shortest = min(shortest, queries.source.stale_after or NEVER)", "pass",
        "kept", 1,
    ),
    Fault(
        "a batch is not cut where a wait that begins in it ends", due, "apply_in_time",
        "due = min(next_due(table, queries), now + shortest)", "due = next_due(table, queries)",
        "cuts", 18,
    ),
    Fault(
        "a batch is not cut where a stream begins anew", due, "apply_in_time",
        "cuts = queries.rules.store or queries.tenants.are_several", "cuts = queries.tenants.are_several",
        "cuts", 5,
    ),
    Fault(
        "a stream is removed before a wait that ends in the same millisecond", due, "_end_waits",
        "silence > (queries.source.stream_ttl or NEVER)", "silence >= (queries.source.stream_ttl or NEVER)",
        "line", 66,
    ),
    Fault(
        "what has expired is removed before waits end", due, "fire",
        """effects += _end_waits(task, table, queries, up_to, changes, max_ids)
        effects += _expire(task, table, queries, up_to, changes, max_ids)""",
        """effects += _expire(task, table, queries, up_to, changes, max_ids)
        effects += _end_waits(task, table, queries, up_to, changes, max_ids)""",
        "cuts", 18,
    ),
    Fault(
        "a wait ends though its stream expired before", due, "_end_waits",
        "silence > (queries.source.stream_ttl or NEVER)", "silence > NEVER - 1",
        "line", 11,
    ),
    Fault(
        "a stream lives a millisecond too long", due, "_expire",
        "table.seen <= up_to - ttl", "table.seen < up_to - ttl",
        "kept", 12,
    ),
    Fault(
        "a removal says when it was noticed, not when it was due", due, "_expire",
        "due = table.seen[rows] + ttl", "due = np.full(n, up_to)",
        "line", 5,
    ),
    Fault(
        "an end of a wait says when it was noticed, not when it was due", due, "_end_waits",
        "ts=due[of_record]", "ts=np.full(len(of_record), up_to)",
        "line", 16,
    ),
    Fault(
        "a wait and a cooldown that end together are taken for a cooldown", due, "_end_waits",
        "due > memory.since + rule.dwell", "due >= memory.since + rule.dwell",
        "kept", 0,
    ),
    Fault(
        "a removal by time is not recorded in the state", due, "_expire",
        "table.touch(rows)", "pass",
        "cuts", 2,
    ),
    Fault(
        "an end of a wait is not recorded in the state", due, "_end_waits",
        "table.touch(rows[table.memory.put(rows, slots, memory, after, rule)])",
        "table.memory.put(rows, slots, memory, after, rule)",
        "line", 3,
    ),
    Fault(
        "a quarantined query never expires", Catalog, "expiry",
        "self.quarantined[id].expires_at if id in self.quarantined else None", "None",
        "cuts", 8,
    ),
    Fault(
        "the time of the partition goes back", streams.PartitionTime, "at",
        "max(self.reached, now_ms + (self.ahead or 0))", "now_ms + (self.ahead or 0)",
        "kept", 9,
    ),
    Fault(
        "the time of the partition depends on who looked at the clock before the first ts",
        streams.PartitionTime, "move",
        "if first or self.reached != NO_TIME:", "if False:",
        "kept", 10,
    ),
    Fault(
        "the time of the partition is not saved", state, "_block",
        "ahead=table.time.ahead,\n        reached=table.time.reached", "ahead=None, reached=NO_TIME",
        "line", 1,
    ),
    Fault(
        "a restart forgets when waits end", state.StateLog, "load",
        "table.memory.retime(queries.rules)", "pass",
        "line", 3,
    ),
    Fault(
        "a change of policies leaves the ends of waits as they were", engine.Engine, "_change_source",
        "table.memory.retime(queries.rules)", "pass",
        "kept", 2,
    ),
)  # fmt: skip
PAIRS = (
    Fault(
        "a cooldown is a millisecond too long", delta, "settle",
        "np.where(left, t.now + rule.cooldown, ", "np.where(left, t.now + rule.cooldown + 1, ",
        "kept", 4,
    ),
    Fault(
        "a cooldown outlives an update that takes it away", delta, "settle",
        "np.where(rule.cooldown > 0, free_at, np.minimum(free_at, t.now))", "free_at",
        "kept", 3,
    ),
    Fault(
        "a wait that goes on forgets the end of a cooldown that is over", delta, "settle",
        "(free_at > t.now) | (waits & waits_on)", "free_at > t.now",
        "kept", 23,
    ),
    Fault(
        "a silence holds up who has nothing to wait for", delta, "settle",
        " & ((rule.dwell > 0) | (rule.cooldown > 0))", "",
        "kept", 29,
    ),
    Fault(
        "waits that end together are told one by one", due, "_end_waits",
        "(ends_together[1:] != ends_together[:-1]).any(axis=1)", "[True] * (len(told) - 1)",
        "kept", 18,
    ),
    Fault(
        "a record has all waits that end together, however many", due, "_end_waits",
        "records = -(-ids // max_ids)", "records = np.ones_like(ids)",
        "kept", 16,
    ),
    Fault(
        "a query is not once again after a restart", state, "_block",
        "for slot, entry in sorted(entries.items())",
        "for slot, entry in sorted(entries.items()) if entry[2] < 2**62",
        "line", 7,
    ),
    Fault(
        "a cooldown does not outlive a restart", state, "_block",
        "for slot, entry in sorted(entries.items())",
        "for slot, entry in sorted(entries.items()) if entry[0]",
        "plane", 20,
    ),
    Fault(
        "who is kept is forgotten when its partition moves", state, "_block",
        "for slot, entry in sorted(entries.items())",
        "for slot, entry in sorted(entries.items()) if entry[0] != 3",
        "line", 0,
    ),
    Fault(
        "who waits is forgotten when its partition moves", state, "_block",
        "for slot, entry in sorted(entries.items())",
        "for slot, entry in sorted(entries.items()) if entry[0] != 2",
        "line", 3,
    ),
    Fault(
        "who is ignored is forgotten when its partition moves", state, "_block",
        "for slot, entry in sorted(entries.items())",
        "for slot, entry in sorted(entries.items()) if entry[0] != 1",
        "kept", 6,
    ),
    Fault(
        "a restart takes pairs that earlier versions of a query left for none", state, "_place",
        "queries.rules.remember(known)", "pass",
        "kept", 6,
    ),
    Fault(
        "an update forgets who is ignored", delta, "settle",
        "rule.ignores & ~member0, state == IGNORED)",
        "rule.ignores & ~member0, (state == IGNORED) & ~t.restarts)",
        "kept", 7,
    ),
    Fault(
        "an update of anything ignores anew", delta, "settle",
        "np.where(t.begins, rule.ignores", "np.where(t.begins | t.restarts, rule.ignores",
        "cuts", 44,
    ),
    Fault(
        "a disabling leaves waits", delta, "settle",
        "np.where(t.remains, state1, NONE)", "np.where(t.remains, np.where(t.watched1, state1, state), NONE)",
        "line", 11,
    ),
    Fault(
        "a deletion leaves waits", delta, "settle",
        "np.where(t.remains, state1, NONE)", "np.where(t.remains, state1, state)",
        "line", 0,
    ),
    Fault(
        "an update during a silence ends a wait", changes._Group, "_move",
        "silent=now - table.seen[streams] >= (queries.source.stale_after or NEVER)",
        "silent=np.zeros(len(streams), np.bool_)",
        "kept", 15,
    ),
    Fault(
        "an update goes on with a wait for another place", changes, "_waits_for",
        "(active_region(query), _active_keep(query), query.dwell)", "(query.enabled, query.dwell)",
        "line", 11,
    ),
    Fault(
        "an update that makes a wait shorter leaves its end", memory.PairMemory, "put",
        "differs | retimed", "differs",
        "kept", 0,
    ),
    Fault(
        "a member that the new where or keep still holds enters anew", delta, "settle",
        "stays = member0 & t.watched1 & t.held1", "stays = member0 & t.watched1 & t.held1 & ~t.begins",
        "line", 7,
    ),
    Fault(
        "an update forgets members that only keep holds", changes._Group, "_move",
        "held1=inside1 | kept", "held1=inside1",
        "line", 7,
    ),
    Fault(
        "who leaves where within keep leaves", crossings, "_facts",
        "in_where | keeps, True", "in_where, True",
        "kept", 8,
    ),
    Fault(
        "keep is not asked for streams that begin to have memory", crossings, "_keep_borders",
        "table.memory.among(streams) | np.isin(streams, begins)", "table.memory.among(streams)",
        "plane", 3,
    ),
    Fault(
        "keep is asked only for streams that begin to have memory", crossings, "_keep_borders",
        "table.memory.among(streams) | np.isin(streams, begins)", "np.isin(streams, begins)",
        "kept", 8,
    ),
    Fault(
        "pairs that change more than once in a batch are settled once", crossings, "_settle_in_waves",
        "np.flatnonzero(wave == number)", "np.flatnonzero((wave == number) & (number < 1))",
        "cuts", 5,
    ),
    Fault(
        "what is remembered of a stream outlives it", streams.StreamTable, "give_up",
        "self.memory.forget(row)", "pass",
        "cuts", 5,
    ),
)  # fmt: skip
RECORDS = (
    Fault(
        "a second life within a batch goes on counting", kernels, "number",
        "seq[s] = 0", "pass",
        "cuts", 48,
    ),
    Fault(
        "a second life within a batch begins with what was carried", kernels, "walk",
        "carried[s, j] = -np.inf", "pass",
        "kept", 16,
    ),
    Fault(
        "a second life within a batch begins with late events", kernels, "walk",
        "last_ts[s] = NO_TIME", "pass",
        "kept", 17,
    ),
    Fault(
        "a late event changes what is carried", kernels, "walk",
        "if not is_late:\n            if carry:",
        "if is_late and carry:\n            carried[s] = np.maximum(carried[s], values[i])\n"
        "        if not is_late:\n            if carry:",
        "plane", 8,
    ),
    Fault(
        "a late event that is processed sets the time of its stream back", kernels, "walk",
        "            if timed[i]:", "        if True:\n            if timed[i]:",
        "kept", 13,
    ),
    Fault(
        "the first event of a stream does not begin", kernels, "walk",
        "first[i] = not known[s]", "first[i] = False",
        "line", 2,
    ),
    Fault(
        "records of a command are not counted in the state", payments, "pay",
        "table.touch_in_place(streams)", "pass",
        "plane", 4,
    ),
    Fault(
        "memory that a command changes is not recorded in the state", changes._Group, "_move",
        "table.touch_in_place(streams[changed])", "pass",
        "kept", 6,
    ),
    Fault(
        "the end of the border kinds does not close what is open", changes._Group, "_move",
        "(stays & both0 & ~both1)", "(stays & False)",
        "kept", 11,
    ),
    Fault(
        "the begin of the border kinds does not tell who is inside", changes._Group, "_move",
        "(stays & both1 & ~both0)", "(stays & False)",
        "kept", 11,
    ),
    Fault(
        "a command tells the wall time, not the partition's", changes._Group, "apply",
        "self._told(queries, now)", "self._told(queries, now_ms)",
        "line", 0,
    ),
    Fault(
        "a group of commands takes the newest of one query only", engine.Engine, "command",
        "(change is not None and change.id in group)", "False",
        "kept", 11,
    ),
    Fault(
        "a deletion tells no more than one leave of a stream", changes._Group, "apply",
        'told = told[np.argsort(pairs.places[told], kind="stable")]',
        "told = told[np.unique(pairs.rows[told], return_index=True)[1]]",
        "kept", 11,
    ),
    Fault(
        "ids past the first record are forgotten", events, "number_borders",
        "records_of_row = -(-ids_of_row // max_ids)",
        "records_of_row = np.minimum(-(-ids_of_row // max_ids), 1)",
        "plane", 4,
    ),
    Fault(
        "a jump from a missing value is told", crossings, "_jumped",
        "begin, end = walked.points[walked.before[moved]], walked.points[moved]",
        "begin, end = np.maximum(walked.points[walked.before[moved]], -1.0), walked.points[moved]",
        "kept", 19,
    ),
    Fault(
        "a jump is told though the stream is a member by keep", crossings, "_settle_in_waves",
        "facts.jumps & ~member0", "facts.jumps",
        "kept", 18,
    ),
    Fault(
        "a jump is told where a category holds at one end only", crossings, "_jumps",
        "holds(texts, begin) and holds(texts, end)", "holds(texts, begin)",
        "kept", 20,
    ),
    Fault(
        "a jump is told though the stream was in another box of the query", crossings, "_jumps",
        "if holds(conjunct, begin) or holds(conjunct, end):", "if holds(conjunct, end):",
        "jumps", 14,
    ),
    Fault(
        "a jump is told though the stream comes to another box of the query", crossings, "_jumps",
        "if holds(conjunct, begin) or holds(conjunct, end):", "if holds(conjunct, begin):",
        "jumps", 6,
    ),
    Fault(
        "a new attribute takes the place of another", streams.StreamTable, "reshape",
        "new[:, column] = old[:, place]", "new[:, column] = old[:, -1]",
        "cuts", 9,
    ),
    Fault(
        "carrying begins with nothing", streams.StreamTable, "carry",
        "self.point[living] if on else MISSING", "MISSING",
        "plane", 9,
    ),
    Fault(
        "who is removed leaves the queries that match only", crossings, "_where_borders",
        "_ends(walked.points, walked.before, walked.here)",
        "_ends(walked.points, np.where(walked.here < 0, -1, walked.before), walked.here)",
        "plane", 9,
    ),
)  # fmt: skip
AGGREGATES = (
    Fault(
        "who is removed is still counted", crossings, "moves_of",
        "counted[pairs] = True", "counted[walked.verdict == kernels.REMOVES] = False",
        "aggregates", 5,
    ),
    Fault(
        "who expires is still counted", due, "_expire",
        "changes += [(at, move) for at, moves in moves_of(table, walked, changed) for move in moves]", "pass",
        "aggregates", 9,
    ),
    Fault(
        "new attributes leave counted columns where they were", engine.Engine, "_change_source",
        "table.aggregates.recolumn(queries.attributes)", "pass",
        "aggregates", 11,
    ),
    Fault(
        "what was told is forgotten by a restart", PartitionAggregates, "load",
        "self._orphans.pop(query.id, None)", "None",
        "aggregates", 0,
    ),
    Fault(
        "what is due to be told is told a millisecond early", PartitionAggregates, "_changed",
        "asked.told.at + asked.every", "asked.told.at + asked.every - 1",
        "aggregates", 0,
    ),
    Fault(
        "changes of time alone are told out of order", due, "fire",
        "changes.sort(key=_when)", "pass",
        "aggregates", 15,
    ),
    Fault(
        "a change of one who stays a member is not counted", crossings, "moves_of",
        "counted = table.aggregates.rows.among(walked.rows)",
        "counted = np.zeros(len(walked.rows), np.bool_)",
        "aggregates", 0,
    ),
)  # fmt: skip

TENANTS = (
    Fault(
        "a batch is not cut where a stream of several tenants begins anew", due, "apply_in_time",
        "cuts = queries.rules.store or queries.tenants.are_several", "cuts = queries.rules.store",
        "cuts", 162,
    ),
    Fault(
        "numbers of another tenant outlive a stream", streams.StreamTable, "give_up",
        "self.others.pop(row, None)", "pass",
        "cuts", 4,
    ),
    Fault(
        "numbers of another tenant are not in the state", state, "_block",
        "{row: table.others[row] for row in rows.tolist() if row in table.others}", "{}",
        "line", 0,
    ),
    Fault(
        "a stream that is gone has numbers in the state once more", state, "_place",
        "table.others.pop(row, None)", "pass",
        "plane", 11,
    ),
    Fault(
        "two tenants share a record", numbers, "number_borders",
        "ranks = queries.tenants.ranks_of(changed.slots)",
        "ranks = 0 * queries.tenants.ranks_of(changed.slots)",
        "line", 0,
    ),
    Fault(
        "where a record ends depends on other tenants", numbers, "number_borders",
        "records = -(-counts // max_ids) + begins",
        "records = -(-np.array([counts[rows == row].sum() for row in rows], np.int64) // max_ids) + begins",
        "plane", 9,
    ),
    Fault(
        "several records of a tenant at once have one number", numbers, "next_numbers",
        "numbers[tenant] = seq[place] = numbers.get(tenant, 0) + 1",
        "seq[place] = numbers.get(tenant, 0) + 1; numbers[tenant] = len(set(seq[~own]))",
        "line", 0,
    ),
    Fault(
        "waits of two tenants end in the order of their names", due, "_end_waits",
        "ranks[told], rows[told]", "0 * ranks[told], rows[told]",
        "line", 121,
    ),
    Fault(
        "what a tenant is owed is numbered with the default one", payments, "pay",
        "tenants = tenants_of_changes(queries, changes, places)", "tenants = None",
        "line", 0,
    ),
)  # fmt: skip

COLLECTIONS = (
    Fault(
        "a member that the file has no more stays",
        collections,
        "planned",
        "commands[:0] = _deletions(name, snapshot, seen)",
        "pass",
        "collections",
        0,
    ),
    Fault(
        "a query that has left its collection is replaced with it",
        collections,
        "_query",
        "if id in snapshot.others and id not in snapshot.members:",
        "if False:",
        "collections",
        0,
    ),
    Fault(
        "a query that has lost the tag of its collection is still in it",
        Collections,
        "follow",
        "if name is None:",
        "if False:",
        "collections",
        0,
    ),
    Fault(
        "what is equal in another field counts as unchanged",
        collections,
        "_put",
        "replace(query, where=before.where, keep=before.keep) == before:",
        "query.region == before.region:",
        "collections",
        0,
    ),
)

_REMEMBERED = "recent[s, accepted[s] % last_ids] = ids[i]; accepted[s] += 1; unsaved[s] += 1"
COPIES = (
    Fault(
        "a copy renews the ttl of its stream", kernels, "walk",
        "verdict[i] = DUPLICATE", "verdict[i] = DUPLICATE; seen[s] = clock[i]",
        "copies", 38,
    ),
    Fault(
        "a copy is remembered once more", kernels, "walk",
        "verdict[i] = DUPLICATE", f"verdict[i] = DUPLICATE; {_REMEMBERED}",
        "copies", 4,
    ),
    Fault(
        "the id of an event that is refused for being late is remembered", kernels, "walk",
        "verdict[i] = REJECTED",
        f"verdict[i] = REJECTED\n            if has_id:\n                {_REMEMBERED}",
        "copies", 47,
    ),
    Fault(
        "a copy that is late is told to be late", kernels, "walk",
        "            if is_copy:", "            if is_copy and not (timed[i] and ts[i] < last_ts[s]):",
        "copies", 3,
    ),
    Fault(
        "one id too few is remembered", kernels, "walk",
        "range(min(accepted[s], last_ids))", "range(min(accepted[s], last_ids - 1))",
        "copies", 0,
    ),
    Fault(
        "a second life within a batch has the ids of the first", kernels, "walk",
        "accepted[s] = unsaved[s] = 0", "pass",
        "kept", 44,
    ),
    Fault(
        "the ids of a stream outlive it", streams.StreamTable, "give_up",
        "self.recent.forget(row)", "pass",
        "copies", 38,
    ),
    Fault(
        "ids of another field are remembered", streams.StreamTable, "dedup",
        "before.by == after.by", "True",
        "copies", 22,
    ),
    Fault(
        "a source that remembers fewer ids remembers the oldest", recent.RecentIds, "restore",
        "window[max(0, count - last) :]", "window[:last]",
        "copies", 54,
    ),
    Fault(
        "how many ids are remembered changes in memory only", streams.StreamTable, "dedup",
        "self.touch_in_place(self.recent.resize(after.last if after else 0, kept=same))",
        "self.recent.resize(after.last if after else 0, kept=same)",
        "copies", 22,
    ),
    Fault(
        "ids are not in the state", state, "_block",
        "held = table.recent.held(rows)", "held = 0 * table.recent.held(rows)",
        "copies", 0,
    ),
    Fault(
        "a restart turns the ids of a stream round", recent.RecentIds, "newest",
        "np.repeat(ends, counts) - np.arange(counts.sum())",
        "np.arange(counts.sum()) - np.repeat(ends - counts, counts) + 1",
        "copies", 0,
    ),
)  # fmt: skip

FAULTS = TIME + PAIRS + RECORDS + AGGREGATES + TENANTS + COLLECTIONS + COPIES
