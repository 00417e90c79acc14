"""Declared messages: both codecs agree on what is sent, and malformed ones are refused."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
from effort import FUZZ
from kept import ROOT, kept, run
from luthier.emulator import agreement
from luthier.wire.structures import File, Message, ProtocolError, pack
from random_messages import random_message

MESSAGES = agreement.declared_messages()
REQUESTS = [declared for declared in MESSAGES if declared.REQUEST]
REPLIES = [declared for declared in MESSAGES if any(request.REPLY is declared for request in REQUESTS)]
each_message = pytest.mark.parametrize("declared", MESSAGES, ids=lambda declared: declared.__name__)


def messages_of(declared: type[Message], count: int) -> Iterator[tuple[Message, bytes, list[int]]]:
    """Yield random messages, and how they are sent."""
    chance = random.Random(declared.__name__)
    for _ in range(count):
        message = random_message(declared, chance)
        yield message, *pack(message)


def test_requests_have_numbers_of_their_own() -> None:
    assert sorted(declared.REQUEST for declared in REQUESTS) == list(range(1, len(REQUESTS) + 1))


# In Python ------------------------------------------------------------------------------------------------------------


@each_message
def test_messages_come_back(declared: type[Message]) -> None:
    for message, data, files in messages_of(declared, 20):
        assert declared.unpack(data, files) == message
        assert len(msgspec.msgpack.decode(data)) == len(declared.types())  # of any reader of MessagePack


@each_message
def test_malformed_messages_are_refused(declared: type[Message]) -> None:
    """Whatever comes is a message of that kind, or is refused in a sentence."""
    chance = random.Random(declared.__name__)
    for _, data, files in messages_of(declared, 5):
        parts = [data[:size] for size in {*range(min(len(data), 64)), len(data) - 1}]
        for wrong in (*parts, data + b"\0", b"", b"\xff" * 50, b"\xdd\xff\xff\xff\xff" * 9, b"\x91" * 5000):
            with pytest.raises(ProtocolError, match="message"):
                declared.unpack(wrong, files)
        for number in ([], [0]):
            if number != files:
                with pytest.raises(ProtocolError, match=r"files that|without its file"):
                    declared.unpack(data, number)
        for _ in range(300):
            changed = bytearray(data)
            for _ in range(chance.randrange(1, 4)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            with suppress(ProtocolError):
                assert isinstance(declared.unpack(bytes(changed), files), declared)


@pytest.mark.parametrize("number", [-1, -(1 << 63)])
@each_message
def test_negative_numbers_are_refused(declared: type[Message], number: int) -> None:
    names = [name for name, type in declared.types().items() if type is int]
    for name in names:
        ((_, data, files),) = messages_of(declared, 1)
        fields = msgspec.msgpack.decode(data)
        fields[list(declared.types()).index(name)] = number
        with pytest.raises(ProtocolError, match="unsigned"):
            declared.unpack(msgspec.msgpack.encode(fields), files)


# In C++ ---------------------------------------------------------------------------------------------------------------

PROGRAM = r"""
#include "wire.h"
#include "failure.h"
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <random>
#include <unistd.h>

using namespace luthier;

template <typename Message> void write(std::ofstream &out, const Message &message) {
  Writer writer;
  writer.put(message);
  const uint64_t head[] = {Message::kRequest, writer.text().size(), writer.file() >= 0};
  out << bytes_of(head) << writer.text();
}

// The text of a message in which Python compares it.
std::string text(uint64_t value) { return std::to_string(value); }
std::string text(bool value) { return value ? "True" : "False"; }
std::string text(const std::string &value) {
  std::string digits = "'";
  for (const unsigned char byte : value)
    (digits += "0123456789abcdef"[byte >> 4]) += "0123456789abcdef"[byte & 15];
  return digits + "'";
}
std::string text(wire::File value) {
  close(value.fd);
  return "file";
}
template <typename Element> std::string text(const std::vector<Element> &list);
template <typename Message> std::string text(const Message &message) {
  std::string all = "[";
  Message::fields(message, [&](const auto &...field) { ((all += text(field) + ", "), ...); });
  return all + "]";
}
template <typename Element> std::string text(const std::vector<Element> &list) {
  std::string all = "[";
  for (const Element &element : list)
    all += text(element) + ", ";
  return all + "]";
}

template <typename Message> bool read(const std::string &data, std::string &found) {
  try {
    Reader reader(data, open("/dev/null", O_RDONLY));
    Message message{};
    reader.get(message);
    found = text(message);
    return true;
  } catch (const Failure &) {
    return false;
  }
}

// Reads a message, refuses what is shorter, and survives what is changed.
template <typename Message> void check(std::string data, std::ofstream &out, int rounds) {
  std::string found;
  if (!read<Message>(data, found))
    found = "refused";
  out << found << '\n';
  for (size_t size = 0; size < data.size(); size += 1 + size / 16)
    if (std::string shorter; read<Message>(data.substr(0, size), shorter))
      out << "not refused: " << size << '\n';
  std::mt19937 random(data.size());
  for (int round = 0; round < rounds; ++round) {
    std::string changed = data;
    changed[random() % changed.size()] = static_cast<char>(random());
    changed[random() % std::min<size_t>(changed.size(), 12)] = static_cast<char>(random());
    read<Message>(changed, found);
  }
}

int main(int, char **paths) {
  using namespace luthier::wire;
  std::ofstream requests(paths[1], std::ios::binary), replies(paths[3]);
  std::ifstream file(paths[2], std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(file), {});
  const int rounds = std::stoi(paths[4]);
  size_t at = 0;
  const auto next = [&] {
    uint64_t size;
    std::memcpy(&size, all.data() + at, sizeof size);
    at += sizeof size + size;
    return all.substr(at - size, size);
  };
@BODY@
}
"""
ROUNDS = 4
SENT = {declared: list(messages_of(declared, ROUNDS)) for declared in [*REQUESTS, *REPLIES]}


def literal(value: Any, type: Any) -> str:
    """Return a value of a request as C++ spells it."""
    if type is bool:
        return str(value).lower()
    if type is File:
        return f"File{{{value}}}"
    if type is int:
        return f"uint64_t{{{value}u}}"
    if type is str or (isinstance(value, bytes) and get_origin(type) is None):
        data = value.encode() if type is str else bytes(value)
        name = "std::string" if type is str else "std::string_view"
        return f'{name}("{"".join(f"{chr(92)}{byte:03o}" for byte in data)}", {len(data)})'
    if get_origin(type) is Annotated:
        row = get_args(type)[1]
        rows = [row(*values) for values in row.read_rows(value).tolist()]
        return f"Rows<{row.__name__}>{{{', '.join(literal(one, row) for one in rows)}}}"
    if get_origin(type) is tuple:
        item = get_args(type)[0]
        return f"{{{', '.join(literal(one, item) for one in value)}}}"
    fields = zip(msgspec.structs.astuple(value), type.types().values(), strict=True)
    return f"{type.__name__}{{{', '.join(literal(*field) for field in fields)}}}"


def text(value: Any) -> str:
    """Return the text that the program has for a value of a reply."""
    if isinstance(value, File):
        return "file"
    if isinstance(value, str | bytes):
        return f"'{(value.encode() if isinstance(value, str) else bytes(value)).hex()}'"
    if isinstance(value, Message):
        value = msgspec.structs.astuple(value)
    return f"[{''.join(f'{text(one)}, ' for one in value)}]" if isinstance(value, tuple) else str(value)


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[str]]:
    """Return the requests of a program generated from the declarations, and the messages that it reads."""
    body = [f"  write(requests, {literal(one, kind)});" for kind in REQUESTS for one, _, _ in SENT[kind]]
    body += [f"  check<{kind.__name__}>(next(), replies, rounds);" for kind in REPLIES for _ in SENT[kind]]
    source = PROGRAM.replace("@BODY@", "\n".join(body))
    native = ROOT / "runtime" / "native" / "wire"

    def build(output: Path) -> None:
        output.with_name("messages.cpp").write_text(source)
        output.with_name(agreement.HEADER).write_text(agreement.header())
        flags = ["-std=c++20", "-g", "-fsanitize=address,undefined", f"-I{output.parent}", f"-I{native}"]
        run(["c++", *flags, str(output.with_name("messages.cpp")), str(native / "wire.cpp"), "-o", str(output)])

    key = source, agreement.header(), *((native / name).read_text() for name in ("wire.h", "wire.cpp"))
    folder = tmp_path_factory.mktemp("messages")
    sent = [data for kind in REPLIES for _, data, _ in SENT[kind]]
    (folder / "sent").write_bytes(b"".join(struct.pack("<Q", len(data)) + data for data in sent))
    paths = [folder / name for name in ("requests", "sent", "read")]
    # AddressSanitizer and the limit of addresses of other tests exclude each other; what cannot be allocated throws.
    environment = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=0", "UBSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(
        [kept(key, build, "messages"), *paths, str(500 * FUZZ)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return paths[0].read_bytes(), paths[2].read_text().splitlines()


def test_python_reads_what_cpp_sends(exchanged: tuple[bytes, list[str]]) -> None:
    data, at = exchanged[0], 0
    for declared in REQUESTS:
        for message, _, files in SENT[declared]:
            number, size, file = struct.unpack_from("<3Q", data, at)
            at += 24 + size
            assert (number, file) == (declared.REQUEST, len(files))
            assert declared.unpack(data[at - size : at], files) == message
    assert at == len(data)


def test_cpp_reads_what_python_sends(exchanged: tuple[bytes, list[str]]) -> None:
    """And refuses what is shorter, and survives what is changed, under AddressSanitizer."""
    assert exchanged[1] == [text(message) for declared in REPLIES for message, _, _ in SENT[declared]]
