"""Rows of Arrow's batches as Python's values. A value that Python cannot hold is the fault of its row alone."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

Row = tuple[dict[str, Any], str | None]
"""The fields that can be read, and the fault of the first that cannot."""


def rows_of(batch: Any) -> Iterator[Row]:
    """The batch's rows in order. Nanoseconds are cut to microseconds, the resolution of Python's times."""
    columns = {name: _cut_times(batch.column(name)) for name in batch.schema.names}
    try:
        values = {name: column.to_pylist() for name, column in columns.items()}
    except pa.ArrowException:
        raise
    except (ValueError, OverflowError):
        for place in range(batch.num_rows):
            yield _row_at(place, columns)
    else:
        for place in range(batch.num_rows):
            yield {name: column[place] for name, column in values.items()}, None


def _row_at(place: int, columns: dict[str, Any]) -> Row:
    fields, fault = {}, None
    for name, column in columns.items():
        try:
            fields[name] = column[place].as_py()
        except pa.ArrowException:
            raise
        except UnicodeDecodeError:
            fault = f"column {name!r} holds what is not UTF-8"
        except (ValueError, OverflowError):
            fault = f"column {name!r} holds a time that is out of range"
    return fields, fault


def _cut_times(column: Any) -> Any:
    kind = _without_nanoseconds(column.type)
    return column if kind == column.type else column.cast(kind, safe=False)


def _without_nanoseconds(kind: Any) -> Any:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_struct(kind):
        return pa.struct([_retyped(kind.field(place)) for place in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_retyped(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_retyped(kind.value_field))
    return kind


def _retyped(field: Any) -> Any:
    return field.with_type(_without_nanoseconds(field.type))
