"""Write docs/rpc.md: every RPC with what its .proto file says of it and a grpcurl line that works. Run by `make docs`.

The sentences are the comments in proto/; the lines are in `tools/rpc_lines.py`, and a test runs each of them.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

from dittomq._pb.ditto.access.v1 import access_pb2
from tools.rpc_lines import INTRODUCTION, LINES, SERVICES, RpcLine

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "rpc.md"

_MESSAGE, _ENUM, _SERVICE = 4, 5, 6  # fields of a FileDescriptorProto, as comments are found by
_FIELD, _VALUE, _METHOD = 2, 2, 2
_Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _ProtoFile:
    """One .proto file and its comments, by the path of what they stand above."""

    proto: FileDescriptorProto
    comments: Mapping[_Path, str]


def document() -> str:
    """The whole page."""
    files = _files()
    parts = [INTRODUCTION, *(line for name in SERVICES for line in _service(files, name)), "## Messages", ""]
    parts += [line for file in files for line in _messages(file)]
    return "\n".join(parts).rstrip() + "\n"


def _files() -> list[_ProtoFile]:
    from grpc_tools import protoc  # noqa: PLC0415 - only this needs the generator

    proto = ROOT / "proto"
    names = sorted(str(path.relative_to(proto)) for path in (proto / "ditto").rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(proto):
        out = Path(folder) / "descriptors.binpb"
        well_known = resources.files("grpc_tools") / "_proto"
        if protoc.main(["protoc", "-I.", f"-I{well_known}", "--include_source_info", f"--descriptor_set_out={out}", *names]) != 0:
            raise RuntimeError("protoc refused the files in proto/; its message is above")
        described = FileDescriptorSet.FromString(out.read_bytes())
    return [_ProtoFile(file, _comments(file)) for file in described.file]


def _comments(file: FileDescriptorProto) -> dict[_Path, str]:
    return {
        tuple(place.path): " ".join(place.leading_comments.split()) for place in file.source_code_info.location if place.leading_comments
    }


def _service(files: Sequence[_ProtoFile], full_name: str) -> Iterator[str]:
    package, _, name = full_name.rpartition(".")
    [(file, at, service)] = [
        (file, at, each)
        for file in files
        if file.proto.package == package
        for at, each in enumerate(file.proto.service)
        if each.name == name
    ]
    yield from (f"## {name}", "", f"`{full_name}`. {file.comments[_SERVICE, at]}", "")
    for number, method in enumerate(service.method):
        comment = file.comments[_SERVICE, at, _METHOD, number]
        yield from _method(method, comment, LINES[f"{full_name}/{method.name}"], f"{full_name}/{method.name}")


def _method(method: MethodDescriptorProto, comment: str, line: RpcLine, path: str) -> Iterator[str]:
    yield from (f"### {method.name}", "", comment, "")
    asked = ("a stream of " if method.client_streaming else "") + _link(method.input_type)
    answered = ("a stream of " if method.server_streaming else "") + _link(method.output_type)
    yield from (f"Takes {asked}, answers {answered}. Role: {role_of(method)}.", "")
    yield from ("```console", f"$ grpcurl -plaintext -d '{line.request}' localhost:{line.port} {path}", "```")
    yield from ([line.note, ""] if line.note else [""])


def role_of(method: MethodDescriptorProto) -> str:
    """What a caller must be allowed to do, in lower case."""
    extensions: Any = method.options.Extensions
    return access_pb2.Role.Name(extensions[access_pb2.role]).removeprefix("ROLE_").lower()


def _messages(file: _ProtoFile) -> Iterator[str]:
    for at, message in enumerate(file.proto.message_type):
        yield from (f"### {_short(f'.{file.proto.package}.{message.name}')}", "", file.comments[_MESSAGE, at], "")
        yield from _fields(file, message, (_MESSAGE, at))
    for at, enum in enumerate(file.proto.enum_type):
        yield from (f"### {_short(f'.{file.proto.package}.{enum.name}')}", "", file.comments[_ENUM, at], "")
        yield from _values(file, enum, (_ENUM, at))


def _fields(file: _ProtoFile, message: DescriptorProto, place: _Path) -> Iterator[str]:
    if not message.field:
        return
    maps = {f".{file.proto.package}.{message.name}.{entry.name}": entry for entry in message.nested_type}
    yield from ("| field | type | |", "|---|---|---|")
    for number, field in enumerate(message.field):
        yield f"| `{field.name}` | {_type(field, maps)} | {_cell(file.comments[(*place, _FIELD, number)])} |"
    yield ""


def _values(file: _ProtoFile, enum: EnumDescriptorProto, place: _Path) -> Iterator[str]:
    yield from ("| value | |", "|---|---|")
    for number, value in enumerate(enum.value):
        yield f"| `{value.name}` | {_cell(file.comments[(*place, _VALUE, number)])} |"
    yield ""


def _type(field: FieldDescriptorProto, maps: Mapping[str, DescriptorProto]) -> str:
    entry = maps.get(field.type_name)
    if entry is not None:
        key, value = entry.field
        return f"map of {_type(key, {})} to {_type(value, {})}"
    name = _link(field.type_name) if field.type_name else FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {name}"
    return f"optional {name}" if field.proto3_optional else name


def _link(type_name: str) -> str:
    if type_name.startswith(".google."):
        return type_name.rpartition(".")[2]
    short = _short(type_name)
    return f"[{type_name.rpartition('.')[2]}](#{short.lower().replace('.', '')})"


def _short(type_name: str) -> str:
    """ ".ditto.naming.v1.Node" → "naming.Node": unique on the page."""
    _, _, package, _, name = type_name.split(".")
    return f"{package}.{name}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
