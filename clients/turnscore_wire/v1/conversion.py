"""Conversion: wire types to protobuf messages and back, by their names alone. Checks nothing: the wire types do.

A message and its wire type share their name and their fields' names. A message that no wire type is named after stands
for a choice between wire types: its one `oneof` names them, in lower case (`ScoreReply` is `score_reply`).
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from pydantic import BaseModel

import turnscore_wire
from turnscore_wire.requests import TakesMessages
from turnscore_wire.v1 import turnscore_pb2

Convert: TypeAlias = Callable[[Any], Any]


def to_message(model: BaseModel) -> Message:
    """The message named after the model's class, with the model's fields.

    What is None is left out, and so is what the caller of a request did not give.
    """
    name = type(model).__name__
    message_class: type[Message] = getattr(turnscore_pb2, name)
    return message_class(**_writer(name)(model))


def to_fields(message: Message) -> dict[str, Any]:
    """The message as what the wire type of its name validates, as if it had been read from JSON.

    What is not set is left out, so that the wire type's default stands in or its absence is refused; a required field
    that may be null is None. A number that an enumeration does not have is given as its digits, to be refused.
    """
    fields: dict[str, Any] = _reader(message.DESCRIPTOR.name)(message)
    return fields


@cache
def _writer(name: str) -> Convert:
    """The function from a model to the arguments of its message's class."""
    descriptor = turnscore_pb2.DESCRIPTOR.message_types_by_name[name]
    wire_type: type[BaseModel] | None = getattr(turnscore_wire, name, None)
    if wire_type is None:
        return _choice_writer
    plan = [(field.name, _field_converter(field, _value_writer)) for field in descriptor.fields]

    takes_messages = issubclass(wire_type, TakesMessages)

    def write(model: BaseModel) -> dict[str, Any]:
        arguments = {}
        for field, convert in plan:
            value = getattr(model, field)
            if value is not None and (not takes_messages or field in model.model_fields_set):
                arguments[field] = value if convert is None else convert(value)
        return arguments

    return write


def _choice_writer(model: BaseModel) -> dict[str, Any]:
    name = type(model).__name__
    return {_member(name): _writer(name)(model)}


def _member(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@cache
def _reader(name: str) -> Convert:
    """The function from a message to its fields."""
    descriptor = turnscore_pb2.DESCRIPTOR.message_types_by_name[name]
    wire_type: type[BaseModel] | None = getattr(turnscore_wire, name, None)
    if wire_type is None:
        return _choice_reader(descriptor)
    steps = [_reading_step(field, wire_type) for field in descriptor.fields]

    def read(message: Message) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for step in steps:
            step(message, fields)
        return fields

    return read


def _choice_reader(descriptor: Descriptor) -> Convert:
    [oneof] = descriptor.oneofs
    readers = {field.name: _value_reader(field) for field in oneof.fields}

    def read(message: Message) -> Any:
        member = message.WhichOneof(oneof.name)
        convert = readers.get(member or "")
        return {} if convert is None else convert(getattr(message, member or ""))

    return read


def _reading_step(field: FieldDescriptor, wire_type: type[BaseModel]) -> Callable[[Message, dict[str, Any]], None]:
    name, convert = field.name, _field_converter(field, _value_reader)
    is_required = wire_type.model_fields[name].is_required()
    may_be_empty = not is_required and field.is_repeated
    skips_zero = field.enum_type is not None and not field.is_repeated

    def read_present(message: Message, fields: dict[str, Any]) -> None:
        if message.HasField(name):
            value = getattr(message, name)
            fields[name] = value if convert is None else convert(value)
        elif is_required and field.message_type is None:
            fields[name] = None

    def read(message: Message, fields: dict[str, Any]) -> None:
        value = getattr(message, name)
        if value or not (may_be_empty or skips_zero):
            fields[name] = value if convert is None else convert(value)

    return read_present if field.has_presence else read


def _field_converter(field: FieldDescriptor, of_value: Callable[[FieldDescriptor], Convert | None]) -> Convert | None:
    """What converts a field's value, repeated or not; None where it stays as it is."""
    if not field.is_repeated:
        return of_value(field)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        convert = of_value(field.message_type.fields_by_name["value"])
        return dict if convert is None else _of_each_entry(convert)
    convert = of_value(field)
    return list if convert is None else _of_each(convert)


def _of_each(convert: Convert) -> Convert:
    return lambda values: [convert(value) for value in values]


def _of_each_entry(convert: Convert) -> Convert:
    return lambda entries: {key: convert(value) for key, value in entries.items()}


def _value_writer(field: FieldDescriptor) -> Convert | None:
    if field.enum_type is not None:
        return {value: number for number, value in _enum_values(field.enum_type).items()}.__getitem__
    if field.message_type is None:
        return None
    return _to_struct if field.message_type is Struct.DESCRIPTOR else _writer(field.message_type.name)


def _value_reader(field: FieldDescriptor) -> Convert | None:
    if field.enum_type is not None:
        values = _enum_values(field.enum_type)
        return lambda number: values.get(number) or str(number)
    if field.message_type is None:
        return None
    return _from_struct if field.message_type is Struct.DESCRIPTOR else _reader(field.message_type.name)


def _enum_values(enum: EnumDescriptor) -> dict[int, str]:
    """The wire's value by number: ERROR_CODE_TOO_LARGE of ErrorCode is `too_large`; the unspecified one has none."""
    prefix = _member(enum.name).upper() + "_"
    return {each.number: each.name.removeprefix(prefix).lower() for each in enum.values if each.number}


def _to_struct(value: dict[str, Any]) -> Struct:
    struct = Struct()
    struct.update(value)
    return struct


def _from_struct(struct: Struct) -> dict[str, Any]:
    return {key: _from_value(value) for key, value in struct.fields.items()}


def _from_value(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _from_struct(value.struct_value)
    if kind == "list_value":
        return [_from_value(each) for each in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        # Beyond it a double does not hold every integer (IEEE 754, binary64): such a number stays a float.
        return int(number) if number.is_integer() and abs(number) <= 2**53 else number
    return None if kind in (None, "null_value") else getattr(value, kind)
