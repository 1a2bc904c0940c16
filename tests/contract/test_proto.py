"""turnscore.proto mirrors the wire types: the same names and meanings, numbers that never change, code as committed."""

import json
import re
import tomllib
from pathlib import Path
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

import pytest
import turnscore_wire
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc
from pydantic import BaseModel, JsonValue
from turnscore_wire.v1 import turnscore_pb2

ROOT = Path(__file__).parents[2]
NUMBERS = Path(__file__).with_name("proto_numbers.json")
PROTO = "turnscore_wire/v1/turnscore.proto"
FILE = turnscore_pb2.DESCRIPTOR
ONLY_OVER_HTTP = {"HealthReply"}
ONLY_OVER_GRPC = {"ModelsRequest", "Status"}
SCALARS = {
    FieldDescriptor.TYPE_STRING: str, FieldDescriptor.TYPE_BOOL: bool, FieldDescriptor.TYPE_DOUBLE: float,
    FieldDescriptor.TYPE_INT32: int, FieldDescriptor.TYPE_INT64: int,
}  # fmt: skip


def wire_types():
    found = {name: getattr(turnscore_wire, name) for name in turnscore_wire.__all__}
    models = {name: each for name, each in found.items() if isinstance(each, type) and issubclass(each, BaseModel)}
    return {name: each for name, each in models.items() if name not in ONLY_OVER_HTTP}


WIRE = wire_types()
CHOICES = {name for name, each in FILE.message_types_by_name.items() if each.oneofs and name not in WIRE}


def kind_in_wire(annotation):
    """A field's type in the words of `kind_in_proto`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind_in_wire(arguments[0])
    if origin in (Union, UnionType):
        kinds = [kind_in_wire(each) for each in arguments if each is not type(None)]
        return kinds[0] if len(kinds) == 1 else ("one of", *sorted(kinds))
    if origin is list:
        return ("list", kind_in_wire(arguments[0]))
    if origin is dict:
        return "object" if arguments[1] is JsonValue else ("map", kind_in_wire(arguments[1]))
    if origin is Literal:
        return ("enum", *sorted(arguments))
    if issubclass(annotation, turnscore_wire.ErrorCode):
        return ("enum", *sorted(annotation))
    return annotation.__name__ if issubclass(annotation, BaseModel) else annotation


def kind_in_proto(field):
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return ("map", value_kind(field.message_type.fields_by_name["value"]))
    return ("list", value_kind(field)) if field.is_repeated else value_kind(field)


def value_kind(field):
    if field.enum_type is not None:
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", field.enum_type.name).upper() + "_"
        return ("enum", *sorted(each.name.removeprefix(prefix).lower() for each in field.enum_type.values[1:]))
    if field.message_type is None:
        return SCALARS[field.type]
    if field.message_type.full_name == "google.protobuf.Struct":
        return "object"
    if field.message_type.name in CHOICES:
        return ("one of", *sorted(each.message_type.name for each in field.message_type.fields))
    return field.message_type.name


def test_every_wire_type_has_its_message_and_no_message_stands_alone():
    assert set(FILE.message_types_by_name) - CHOICES == set(WIRE) | ONLY_OVER_GRPC


@pytest.mark.parametrize("name", WIRE)
def test_a_message_has_its_wire_types_fields(name):
    fields = {each.name: kind_in_proto(each) for each in FILE.message_types_by_name[name].fields}
    assert fields == {field: kind_in_wire(each.annotation) for field, each in WIRE[name].model_fields.items()}


@pytest.mark.parametrize("name", WIRE)
def test_what_may_be_null_has_presence_and_what_is_left_out_means_the_default(name):
    for field in FILE.message_types_by_name[name].fields:
        wire = WIRE[name].model_fields[field.name]
        nullable = type(None) in get_args(wire.annotation)
        if field.is_repeated:
            assert not field.has_presence
        elif field.message_type is None:
            assert field.has_presence == (nullable or not wire.is_required()), field.full_name


def numbers():
    """Every number that travels: of fields, and of enumerations' values."""
    messages = list(FILE.message_types_by_name.values())
    enums = list(FILE.enum_types_by_name.values())
    return {
        **{each.name: {field.name: field.number for field in each.fields} for each in messages},
        **{each.name: {value.name: value.number for value in each.values} for each in enums},
    }


def test_no_number_ever_changes():
    kept = json.loads(NUMBERS.read_text())
    assert numbers() == kept, f"add what is new to {NUMBERS.name}; what is there stays"


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """The file with its comments."""
    output = tmp_path_factory.mktemp("proto") / "descriptor"
    options = [f"-I{ROOT / 'clients'}", "--include_source_info", f"--descriptor_set_out={output}"]
    assert protoc.main(["protoc", *options, f"-I{Path(protoc.__file__).parent / '_proto'}", PROTO]) == 0
    return FileDescriptorSet.FromString(output.read_bytes()).file[0]


def comments(file):
    """Every message's, field's and enumeration's comment as one line, by its name."""
    paths = {tuple(each.path): " ".join(each.leading_comments.split()) for each in file.source_code_info.location}
    found = {}
    for index, message in enumerate(file.message_type):
        found[message.name] = paths.get((4, index), "")
        for place, field in enumerate(message.field):
            found[f"{message.name}.{field.name}"] = paths.get((4, index, 2, place), "")
    for index, enum in enumerate(file.enum_type):
        found[enum.name] = paths.get((5, index), "")
    return found


@pytest.mark.parametrize("name", WIRE)
def test_message_and_wire_type_are_documented_alike(name, described):
    told, wire = comments(described), WIRE[name]
    assert told[name] == " ".join((wire.__doc__ or "").split())
    for field, each in wire.model_fields.items():
        assert told[f"{name}.{field}"] == " ".join((each.description or "").split()), field


def test_the_error_codes_are_documented_alike(described):
    assert comments(described)["ErrorCode"] == turnscore_wire.ErrorCode.__doc__


def test_the_pinned_libraries_load_the_generated_code():
    extra = tomllib.loads((ROOT / "clients" / "pyproject.toml").read_text())["project"]["optional-dependencies"]["grpc"]
    folder = ROOT / "clients" / "turnscore_wire" / "v1"
    protobuf = ".".join(re.findall(r"^    (\d+),$", (folder / "turnscore_pb2.py").read_text(), re.MULTILINE))
    [grpcio] = re.findall(r"GRPC_GENERATED_VERSION = '(.*)'", (folder / "turnscore_pb2_grpc.py").read_text())
    assert f"protobuf>={protobuf},<8" in extra
    assert f"grpcio>={grpcio},<2" in extra
