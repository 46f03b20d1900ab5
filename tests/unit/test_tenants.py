"""Keys: whatever a client names, the key is one of its own tenant."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.language import Limits, is_query_id, load_json, parse_query, parse_source, query_body
from service.model import Reason, Refusal
from service.tenants import DEFAULT_TENANT, id_of, is_tenant, key_of, order, own, split, tenant_of

TENANT = st.one_of(
    st.just(DEFAULT_TENANT), st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=5)
)
ANY_ID = st.one_of(st.text(max_size=5), st.sampled_from(["a", "acme/a", "default/a", "/", "/a", "a/", ""]))
SOURCES = {"s": parse_source("s", {"attributes": {"x": "number"}})}


@given(TENANT, ANY_ID)
def test_a_key_is_of_its_tenant_and_of_no_other(tenant: str, id: str) -> None:
    key = key_of(tenant, id)
    assert split(key) == (tenant, id) == (tenant_of(key), id_of(key))
    assert not is_query_id(id) or (key == id) == (tenant == DEFAULT_TENANT)


@given(st.dictionaries(st.tuples(TENANT, st.from_regex(r"[a-c~:]{1,2}", fullmatch=True)), st.integers()))
def test_what_is_a_tenants_own_is_what_has_its_keys(things: dict[tuple[str, str], int]) -> None:
    by_key = {key_of(*whose): thing for whose, thing in things.items()}
    assert len(by_key) == len(things)
    for tenant in {DEFAULT_TENANT, "nobody", *(tenant for tenant, _ in things)}:
        assert own(tenant, by_key) == {id: thing for (of, id), thing in things.items() if of == tenant}


def test_the_default_tenant_is_the_first() -> None:
    assert sorted(["b", DEFAULT_TENANT, "a", "z"], key=order) == [DEFAULT_TENANT, "a", "b", "z"]


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ä", "a\n", "x" * 101, "a\x00"])
def test_what_no_tenant_can_be_called(name: str) -> None:
    assert not is_tenant(name)
    body = {"id": "a", "source": "s", "where": "x > 0"}
    with pytest.raises(Refusal) as refused:
        parse_query(body, SOURCES, id=None, now_ms=None, limits=Limits(), tenant=name)
    assert refused.value.reason is Reason.BAD_ID


def test_a_query_is_written_without_its_tenant_and_read_with_it() -> None:
    body = load_json(b'{"id": "a", "source": "s", "where": "x > 0"}')
    query = parse_query(body, SOURCES, id="a", now_ms=None, limits=Limits(), tenant="acme")
    assert (query.id, query.tenant, query.public_id) == ("acme/a", "acme", "a")
    again = parse_query(query_body(query), SOURCES, id=None, now_ms=None, limits=Limits(), tenant="acme")
    assert again == query
