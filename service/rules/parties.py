"""Who asks in a step: the field ``tenant`` beside those of a command. Without it, the default tenant does."""

from __future__ import annotations

from service.rules.document import Node
from service.tenants import DEFAULT_TENANT, is_tenant

FIELD = "tenant"


def parted(node: Node) -> tuple[dict[str, Node], str]:
    """The fields of a mapping but for ``tenant``, and that: who asks. Raises RuleFileError."""
    fields = dict(node.mapping())
    named = fields.pop(FIELD, None)
    if named is None:
        return fields, DEFAULT_TENANT
    if not is_tenant(named.text()):
        raise named.error(f"{named.shown()} is no tenant: 1 to 100 of A-Z a-z 0-9 . _ -")
    return fields, named.text()
