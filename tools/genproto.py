"""Generate dittomq/_pb from proto/. Run by the build and by `make proto`; the output is never committed.

The generator is grpcio-tools 1.66 on purpose: its stubs run with protobuf 5, 6 and 7.
Imports between generated modules are rewritten to live below `dittomq._pb`, and each `_pb2_grpc` module gets
a `.pyi` beside it, because gRPC's generator writes none: stubs on `grpc.aio` channels, servicers of coroutines.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto

ROOT = Path(__file__).resolve().parent.parent
_OUR_IMPORT = re.compile(r"^(from|import) (ditto|etcd)\.", re.MULTILINE)


def generate(root: Path = ROOT) -> None:
    """Make `root`/dittomq/_pb equal to what `root`/proto says.

    The new folder replaces the old one at once, and only when something changed: running programs are not disturbed.
    """
    out = root / "dittomq" / "_pb"
    scratch_parent = root / "build"
    scratch_parent.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="proto-", dir=scratch_parent))
    try:
        new = scratch / "new"
        _write_modules(root / "proto", new)
        if _contents(new) != _contents(out):
            if out.exists():
                out.rename(scratch / "old")
            new.rename(out)
    finally:
        shutil.rmtree(scratch)


def _write_modules(proto: Path, out: Path) -> None:
    from grpc_tools import protoc  # noqa: PLC0415 - only the build needs the generator

    out.mkdir(parents=True)
    descriptors = out.parent / "descriptors.binpb"
    protos = sorted(str(path.relative_to(proto)) for path in proto.rglob("*.proto"))
    well_known = str(resources.files("grpc_tools") / "_proto")
    outputs = [f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}", f"--descriptor_set_out={descriptors}"]
    if protoc.main(["protoc", f"-I{proto}", f"-I{well_known}", *outputs, *protos]) != 0:
        raise RuntimeError("protoc refused the files in proto/; its message is above")
    for module in out.rglob("*.py*"):
        text = _OUR_IMPORT.sub(r"\1 dittomq._pb.\2.", module.read_text(encoding="utf-8"))
        module.write_text(text, encoding="utf-8")
    for path, text in _typed_stubs(FileDescriptorSet.FromString(descriptors.read_bytes())):
        (out / path).write_text(text, encoding="utf-8")
    for folder in [out, *(path for path in out.rglob("*") if path.is_dir())]:
        (folder / "__init__.py").touch()


def _typed_stubs(files: FileDescriptorSet) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of one `_pb2_grpc.pyi` for each .proto file."""
    messages = [(file, message.name) for file in files.file for message in file.message_type]
    type_names = {f".{file.package}.{name}": f"{_module(file)}.{name}" for file, name in messages}
    for file in files.file:
        imports = {f"import {_module(other)}" for other in files.file if other.name in {file.name, *file.dependency}}
        heads = ["from collections.abc import AsyncIterator, Awaitable", "from typing import Any", "import grpc.aio", *sorted(imports)]
        services = [line for service in file.service for line in _service(service, type_names)]
        yield file.name.replace(".proto", "_pb2_grpc.pyi"), "\n".join([*heads, *services, ""])


def _module(file: FileDescriptorProto) -> str:
    return "dittomq._pb." + file.name.removesuffix(".proto").replace("/", ".") + "_pb2"


def _service(service: ServiceDescriptorProto, type_names: dict[str, str]) -> Iterator[str]:
    name = service.name
    yield f"class {name}Stub:"
    yield "    def __init__(self, channel: grpc.aio.Channel) -> None: ..."
    for method in service.method:
        shape = ("Stream" if method.client_streaming else "Unary") + ("Stream" if method.server_streaming else "Unary")
        types = f"{type_names[method.input_type]}, {type_names[method.output_type]}"
        yield f"    {method.name}: grpc.aio.{shape}MultiCallable[{types}]"
    yield f"class {name}Servicer:"
    for method in service.method:
        yield _handler(method, type_names[method.input_type], type_names[method.output_type])
    yield f"def add_{name}Servicer_to_server(servicer: {name}Servicer, server: grpc.aio.Server) -> None: ..."


def _handler(method: MethodDescriptorProto, request: str, response: str) -> str:
    asked = f"request_iterator: AsyncIterator[{request}]" if method.client_streaming else f"request: {request}"
    # A handler that streams is an async generator, or a coroutine that calls context.write.
    answer = f"AsyncIterator[{response}] | Awaitable[None]" if method.server_streaming else f"Awaitable[{response}]"
    return f"    def {method.name}(self, {asked}, context: grpc.aio.ServicerContext[Any, Any], /) -> {answer}: ..."


def _contents(folder: Path) -> dict[str, bytes]:
    """Return every generated file below `folder` with its bytes, caches left out."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


if __name__ == "__main__":
    generate()
