#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""perturb.py KIND IN.safetensors OUT.safetensors: a copy of a sample file with one fault.

Faults of meaning, which `kvkiln check` must call FAIL (the file stays well-formed): scale, length, rotate, nibbles, untouched,
nan. Damage, which it must refuse: see DAMAGE. Harmless: extra (an unknown tensor), bare (inputs only, nothing comparable).
"""
import json
import math
import struct
import sys


def read(path):
    with open(path, "rb") as file:
        raw = file.read()
    size = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8:8 + size]), bytearray(raw[8 + size:])


def write(path, header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text) if length is None else length) + text + bytes(data))


def span(header, name):
    return header[name]["data_offsets"]


def unpack(dtype, raw):
    if dtype == "F16":
        return list(struct.unpack(f"<{len(raw) // 2}e", raw))
    return [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]


def pack(dtype, numbers):
    if dtype == "F16":
        return struct.pack(f"<{len(numbers)}e", *numbers)
    out = b""
    for x in numbers:  # to nearest even
        bits = struct.unpack("<I", struct.pack("<f", x))[0]
        out += struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    return out


def hadamard(row):
    order = len(row) & -len(row)
    mask = 1
    while mask < order:
        row = [row[i] + row[i ^ mask] if not i & mask else row[i ^ mask] - row[i] for i in range(len(row))]
        mask *= 2
    return [x / math.sqrt(order) for x in row]


# ---- faults of meaning ----

def scale(header, data):
    meta = header["__metadata__"]
    meta["softmax_scale"] = repr(float(meta["softmax_scale"]) * 1.02)


def length(header, data):
    first, last = span(header, "seq_lens")
    lengths = list(struct.unpack(f"<{(last - first) // 4}i", data[first:last]))
    lengths[-1] -= 1
    data[first:last] = struct.pack(f"<{len(lengths)}i", *lengths)
    for name in ("dequant_key", "dequant_value"):  # their shape follows from the lengths
        if name in header:
            remove(header, data, name)


def rotate(header, data):
    """The kernel's rotation of this query gives back the unrotated one."""
    size = int(header["__metadata__"]["head_size"])
    for name in ("decode_query", "unified_query"):
        if name not in header:
            continue
        first, last = span(header, name)
        numbers = unpack(header[name]["dtype"], data[first:last])
        rotated = []
        for i in range(0, len(numbers), size):
            rotated += hadamard(numbers[i:i + size])
        data[first:last] = pack(header[name]["dtype"], rotated)


def nibbles(header, data):
    first, last = span(header, "cache")
    data[first:last] = bytes((b >> 4 | b << 4) & 255 for b in data[first:last])


def untouched(header, data):
    """A page that is in no table: the cache claims that one of its bytes was written."""
    first, last = span(header, "cache")
    pages = header["cache"]["shape"][0]
    start, end = span(header, "block_table")
    used = set(struct.unpack(f"<{(end - start) // 4}i", data[start:end]))
    free = next(page for page in range(pages) if page not in used)
    data[first + free * ((last - first) // pages)] ^= 1


def nan(header, data):
    name = "decode_out" if "decode_out" in header else "unified_out"
    first = span(header, name)[0]
    data[first:first + 2] = b"\xff\x7f"


def remove(header, data, name):
    first, last = span(header, name)
    del header[name]
    del data[first:last]
    for entry in header.values():
        if "data_offsets" in entry and entry["data_offsets"][0] >= last:
            entry["data_offsets"] = [x - (last - first) for x in entry["data_offsets"]]


def bare(header, data):
    for name in list(header):
        if name != "__metadata__" and name not in ("cache", "block_table", "seq_lens"):
            remove(header, data, name)


def extra(header, data):
    header["mystery"] = {"dtype": "U8", "shape": [3], "data_offsets": [len(data), len(data) + 3]}
    data += b"abc"


MEANING = {"scale": scale, "length": length, "rotate": rotate, "nibbles": nibbles, "untouched": untouched, "nan": nan,
           "bare": bare, "extra": extra}

# ---- damage: (header, data) -> (header or bytes, data, claimed length or None) ----


def changed(name, field, value):
    def damage(header, data):
        header[name][field] = value(header[name][field]) if callable(value) else value
        return header, data, None
    return damage


def metadata(name, value):
    def damage(header, data):
        if value is None:
            del header["__metadata__"][name]
        else:
            header["__metadata__"][name] = value
        return header, data, None
    return damage


def integers(name, index, value):
    def damage(header, data):
        at = span(header, name)[0] + 4 * index
        data[at:at + 4] = struct.pack("<i", value)
        return header, data, None
    return damage


def duplicate(header, data):
    text = json.dumps(header)
    return (text[:-1] + ', "key": ' + json.dumps(header["key"]) + "}").encode(), data, None


DAMAGE = {
    "truncated": lambda h, d: (h, d[:len(d) // 2], None),
    "tail": lambda h, d: (h, d + b"xyz", None),
    "huge_header": lambda h, d: (h, d, 1 << 60),
    "long_header": lambda h, d: (h, d, 16 << 20),
    "no_json": lambda h, d: (b"{" + b"x" * 200, d, None),
    "deep_json": lambda h, d: (b"[" * 100000, d, None),
    "not_utf8": lambda h, d: (b'{"\xff\xfe": 1}', d, None),
    "list": lambda h, d: (b"[1, 2]", d, None),
    "empty_header": lambda h, d: (b"", d, None),
    "duplicate": duplicate,
    "overlap": changed("value", "data_offsets", lambda o: [o[0] - 2, o[1] - 2]),
    "backwards": changed("value", "data_offsets", lambda o: [o[1], o[0]]),
    "negative": changed("value", "data_offsets", lambda o: [-8, o[1]]),
    "beyond": changed("value", "data_offsets", lambda o: [o[0], 1 << 62]),
    "dtype": changed("key", "dtype", "F32"),
    "unknown_dtype": changed("key", "dtype", "F12"),
    "other_dtype": changed("seq_lens", "dtype", "F32"),
    "shape": changed("key", "shape", lambda s: [s[0] + 1] + s[1:]),
    "shape_order": changed("key", "shape", lambda s: [s[1], s[0], s[2]]),
    "shape_overflow": changed("key", "shape", [1 << 40, 1 << 40, 1 << 40]),
    "shape_negative": changed("key", "shape", [-171, 2, 128]),
    "shape_text": changed("key", "shape", "171"),
    "no_preset": metadata("preset", None),
    "unknown_preset": metadata("preset", "turboquant_9bit"),
    "unknown_layout": metadata("layout", "sideways"),
    "head_size": metadata("head_size", "120"),
    "head_size_text": metadata("head_size", "many"),
    "head_size_zero": metadata("head_size", "0"),
    "heads": metadata("num_kv_heads", "3"),
    "heads_huge": metadata("num_query_heads", "99999999999999999999"),
    "block_size": metadata("block_size", "7"),
    "slot_size": metadata("slot_size", "1"),
    "dtype_meta": metadata("dtype", "float64"),
    "scale_text": metadata("softmax_scale", "fast"),
    "scale_nan": metadata("softmax_scale", "nan"),
    "table_page": integers("block_table", 0, 1 << 30),
    "table_negative": integers("block_table", 0, -5),
    "length_long": integers("seq_lens", 0, 1 << 20),
    "length_negative": integers("seq_lens", 1, -1),
    "slot_beyond": integers("slot_mapping", 3, 1 << 28),
    "slot_twice": integers("slot_mapping", 3, None),
}


def slot_twice(header, data):
    at = span(header, "slot_mapping")[0]
    data[at + 12:at + 16] = data[at:at + 4]
    return header, data, None


DAMAGE["slot_twice"] = slot_twice


def main():
    kind, source, target = sys.argv[1:4]
    header, data = read(source)
    if kind in MEANING:
        MEANING[kind](header, data)
        write(target, header, data)
    else:
        write(target, *DAMAGE[kind](header, data))


if __name__ == "__main__":
    main()
