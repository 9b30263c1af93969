# SPDX-License-Identifier: Apache-2.0
"""Reads what a loader reads of an AMD code object: dynamic symbols, kernel descriptors, metadata."""
import collections
import struct

Symbol = collections.namedtuple("Symbol", "value size info section")
PT_DYNAMIC, PT_NOTE, NT_AMDGPU_METADATA = 2, 4, 32
DT_HASH, DT_STRTAB, DT_SYMTAB = 4, 5, 6


def unpack(data, at=0):
    """One MessagePack value and where it ends; the types that the metadata uses."""
    def sized(width):
        return int.from_bytes(data[at + 1:at + 1 + width], "big"), at + 1 + width
    tag = data[at]
    if tag < 0x80:
        return tag, at + 1
    if tag < 0x90:
        return mapping(data, at + 1, tag & 15)
    if tag < 0xa0:
        return sequence(data, at + 1, tag & 15)
    if tag < 0xc0:
        return text(data, at + 1, tag & 31)
    if tag >= 0xe0:
        return tag - 256, at + 1
    if tag in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[tag], at + 1
    if 0xcc <= tag <= 0xcf:
        return sized(1 << tag - 0xcc)
    if 0xd9 <= tag <= 0xdb:
        return text(data, *reversed(sized(1 << tag - 0xd9)))
    if tag in (0xdc, 0xdd):
        return sequence(data, *reversed(sized(2 << tag - 0xdc)))
    if tag in (0xde, 0xdf):
        return mapping(data, *reversed(sized(2 << tag - 0xde)))
    raise ValueError(f"MessagePack tag {tag:#x}")


def text(data, at, length):
    return data[at:at + length].decode(), at + length


def sequence(data, at, length):
    out = []
    for _ in range(length):
        value, at = unpack(data, at)
        out.append(value)
    return out, at


def mapping(data, at, length):
    out = {}
    for _ in range(length):
        key, at = unpack(data, at)
        out[key], at = unpack(data, at)
    return out, at


class Image:
    """An ELF shared object for amdhsa."""

    def __init__(self, data):
        if data[:4] != b"\x7fELF" or struct.unpack_from("<HH", data, 16) != (3, 224):
            raise ValueError("not a linked AMD code object")
        self.data = data
        self.abi_version = data[8]
        offset, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
        self.segments = [struct.unpack_from("<IIQQQQQQ", data, offset + 56 * i) for i in range(count)]
        self.dynamic = dict(struct.unpack_from("<QQ", data, at) for at in self._dynamic_entries())
        self.metadata = self._metadata()

    def _dynamic_entries(self):
        for kind, _, offset, _, _, size, _, _ in self.segments:
            if kind == PT_DYNAMIC:
                return range(offset, offset + size, 16)
        raise ValueError("no dynamic segment")

    def _metadata(self):
        for kind, _, offset, _, _, size, _, _ in self.segments:
            if kind == PT_NOTE and size:
                name, length, note = struct.unpack_from("<III", self.data, offset)
                if note == NT_AMDGPU_METADATA:
                    begin = offset + 12 + (name + 3) // 4 * 4
                    return unpack(self.data[begin:begin + length])[0]
        raise ValueError("no metadata note")

    def at(self, address):
        """File offset of an address."""
        for kind, _, offset, base, _, size, _, _ in self.segments:
            if kind == 1 and base <= address < base + size:
                return offset + address - base
        raise ValueError(f"address {address:#x} is not loaded")

    def symbol(self, name):
        table, names = self.at(self.dynamic[DT_SYMTAB]), self.at(self.dynamic[DT_STRTAB])
        count = struct.unpack_from("<I", self.data, self.at(self.dynamic[DT_HASH]) + 4)[0]
        for i in range(1, count):
            string, info, _, section, value, size = struct.unpack_from("<IBBHQQ", self.data, table + 24 * i)
            begin = names + string
            if self.data[begin:self.data.index(b"\0", begin)].decode() == name:
                return Symbol(value, size, info, section)
        raise ValueError(f"no symbol {name}")

    def descriptor(self, name):
        """(static LDS, scratch, argument bytes, address of the code) in the kernel descriptor."""
        where = self.symbol(name + ".kd").value
        group, private, arguments = struct.unpack_from("<III", self.data, self.at(where))
        distance = struct.unpack_from("<q", self.data, self.at(where) + 16)[0]
        return group, private, arguments, where + distance
