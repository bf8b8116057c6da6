"""The group's slot is made once, adopted if it is ours, and never made again."""

from __future__ import annotations

import pytest
from tests.captured_group import Group, execute

from headwater.errors import OperatorMustAct, SlotLost
from headwater.postgres.connect import connect
from headwater.source.slots import slot_of


def test_a_slot_that_another_client_made_is_not_adopted(group: Group) -> None:
    execute(group.url, "SELECT pg_create_logical_replication_slot('headwater_shop', 'pgoutput')")
    with pytest.raises(OperatorMustAct, match="slot 'headwater_shop' already, and it was not made for group 'shop'"):
        group.prepare()


def test_our_slot_is_adopted_even_if_we_died_before_noting_where_it_stands(group: Group) -> None:
    first = group.prepare()
    with group.state.transaction() as connection:
        connection.execute("UPDATE headwater.groups SET captured_lsn = NULL")
    assert group.prepare() == first == group.log.end()


def test_a_slot_that_is_gone_is_not_silently_made_again(group: Group) -> None:
    group.prepare()
    execute(group.url, "SELECT pg_drop_replication_slot('headwater_shop')")
    with pytest.raises(SlotLost, match="is gone"):
        group.prepare()
    with connect(group.url) as connection:
        assert slot_of(connection, "headwater_shop") is None
