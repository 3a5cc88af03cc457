"""Requests made of a fuzzer's bytes: an example, with fields set to what nobody expects, or its bytes damaged."""

import random
from typing import Any, Protocol

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTEGERS = (0, 1, -1, 127, 4_096, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), 2**64 - 1)
_TEXTS = ("", "\0", "../../etc/passwd", "%RETRY%billing", "a/0", "a" * 300, "\u202e💥", "{}", "-1", "1.4611686018427387903-100.a")
_MOST_ELEMENTS = 40
_LONG = 20_000
_MORE_BYTES = 200
_INTEGER_BITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def with_more(data: bytes) -> bytes:
    """The fuzzer's bytes, which choose first, before others that follow from them: it need not find long inputs for every choice."""
    return random.Random(data).randbytes(_MORE_BYTES) + data  # a FuzzedDataProvider takes numbers from the end


class Choices(Protocol):
    """The part of atheris.FuzzedDataProvider that is used."""

    def ConsumeIntInRange(self, low: int, high: int) -> int: ...  # its name

    def ConsumeBytes(self, count: int) -> bytes: ...

    def ConsumeUnicodeNoSurrogates(self, count: int) -> str: ...

    def ConsumeFloat(self) -> float: ...


def request_bytes(example: Message, choices: Choices) -> bytes:
    """A request like the example, up to four fields of which are something else, or whose bytes are not what they were."""
    request = type(example)()
    request.CopyFrom(example)
    for _ in range(choices.ConsumeIntInRange(0, 4)):
        _change(request, choices)
    data = request.SerializeToString()
    match choices.ConsumeIntInRange(0, 7):  # 0 where no bytes are left to choose by
        case 7:
            return choices.ConsumeBytes(choices.ConsumeIntInRange(0, 64))
        case 6:
            at = choices.ConsumeIntInRange(0, len(data))
            return data[:at] + choices.ConsumeBytes(4) + data[at + choices.ConsumeIntInRange(0, 4) :]
        case _:
            return data


def _change(message: Any, choices: Choices) -> None:
    """Set, clear or grow one field of it, or of a message within."""
    fields = message.DESCRIPTOR.fields
    if not fields:
        return
    field = fields[choices.ConsumeIntInRange(0, len(fields) - 1)]
    if choices.ConsumeIntInRange(0, 9) == 9:
        message.ClearField(field.name)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(message, field.name)[_text(choices)] = _text(choices)
    elif field.is_repeated if hasattr(field, "is_repeated") else field.label == FieldDescriptor.LABEL_REPEATED:
        _grow(getattr(message, field.name), field, choices)
    elif field.message_type is not None:
        getattr(message, field.name).SetInParent()
        _change(getattr(message, field.name), choices)
    else:
        setattr(message, field.name, _value(field, choices))


def _grow(elements: Any, field: FieldDescriptor, choices: Choices) -> None:
    for _ in range(choices.ConsumeIntInRange(1, 3)):
        if field.message_type is not None:
            _change(elements.add(), choices)
        else:
            elements.append(_value(field, choices))
    if choices.ConsumeIntInRange(0, 9) == 9:
        elements.extend(list(elements) * _MOST_ELEMENTS)


def _value(field: FieldDescriptor, choices: Choices) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            is_text = field.type == FieldDescriptor.TYPE_STRING
            return _text(choices) if is_text else choices.ConsumeBytes(choices.ConsumeIntInRange(0, 40)) * choices.ConsumeIntInRange(1, 3)
        case FieldDescriptor.CPPTYPE_BOOL:
            return bool(choices.ConsumeIntInRange(0, 1))
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return choices.ConsumeFloat()
        case FieldDescriptor.CPPTYPE_ENUM:
            return choices.ConsumeIntInRange(-1, 60)
        case kind:
            low, high = _INTEGER_BITS[kind]
            known = [each for each in _INTEGERS if low <= each <= high]
            at = choices.ConsumeIntInRange(0, len(known))
            return known[at] if at < len(known) else choices.ConsumeIntInRange(low, high)


def _text(choices: Choices) -> str:
    at = choices.ConsumeIntInRange(0, len(_TEXTS) + 1)
    if at < len(_TEXTS):
        return _TEXTS[at]
    text = choices.ConsumeUnicodeNoSurrogates(choices.ConsumeIntInRange(0, 30))
    return text if at == len(_TEXTS) else (text or "x") * (_LONG // max(1, len(text)))
