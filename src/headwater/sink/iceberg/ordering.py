"""The sort order that a mirror declares: by its key. Each file says for itself whether it follows it."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.table.update import AddSortOrderUpdate, SetDefaultSortOrderUpdate, TableUpdate
from pyiceberg.transforms import IdentityTransform

__all__ = ["key_order", "order_updates"]


def key_order(schema: Schema, order_id: int = 1) -> SortOrder:
    """By the identifier fields, as the table has them from left to right."""
    ids = [field.field_id for field in schema.fields if field.field_id in schema.identifier_field_ids]
    fields = [SortField(source_id=id_, transform=IdentityTransform()) for id_ in ids]
    return SortOrder(*fields, order_id=order_id) if fields else UNSORTED_SORT_ORDER


def order_updates(metadata: TableMetadata, schema: Schema) -> tuple[TableUpdate, ...]:
    """What makes the sort order that of the schema's key."""
    wanted = key_order(schema, max((each.order_id for each in metadata.sort_orders), default=0) + 1)
    for each in metadata.sort_orders:
        if each.fields == wanted.fields:
            same = each.order_id == metadata.default_sort_order_id
            return () if same else (SetDefaultSortOrderUpdate(sort_order_id=each.order_id),)
    return AddSortOrderUpdate(sort_order=wanted), SetDefaultSortOrderUpdate(sort_order_id=wanted.order_id)
