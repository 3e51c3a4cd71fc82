"""Reader of BTF (Documentation/bpf/btf.rst): struct layouts, variables, enum values and function prototypes. Pure.

Serves three uses: setting `const volatile` globals, checking that a probe's numpy records equal the C structs
of its object, and asking the running kernel which types and functions it has.
"""

import struct
from array import array
from dataclasses import dataclass

_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_ENUMERATOR = struct.Struct("<Ii")
_PARAMETER = struct.Struct("<II")
_MAGIC = 0xEB9F

(
    INT,
    PTR,
    ARRAY,
    STRUCT,
    UNION,
    ENUM,
    FWD,
    TYPEDEF,
    VOLATILE,
    CONST,
    RESTRICT,
    FUNC,
    FUNC_PROTO,
    VAR,
    DATASEC,
) = range(1, 16)
FLOAT, DECL_TAG, TYPE_TAG, ENUM64 = range(16, 20)

_TRAILING = {INT: 4, ARRAY: 12, VAR: 4, DECL_TAG: 4}
_PER_MEMBER = {STRUCT: 12, UNION: 12, ENUM: 8, FUNC_PROTO: 8, DATASEC: 12, ENUM64: 12}


class BtfError(ValueError):
    """The bytes are not BTF this reader understands."""


@dataclass(frozen=True, slots=True)
class _Type:
    name: str
    kind: int
    count: int
    flag: bool
    size_or_type: int
    at: int  # offset of the trailing data


@dataclass(frozen=True, slots=True)
class StructMember:
    """One member of a struct."""

    name: str
    offset_bytes: int
    size_bytes: int


class Btf:
    """A parsed BTF blob (little endian)."""

    def __init__(self, data: bytes) -> None:
        """Index all types; raises BtfError on a foreign or torn blob."""
        try:
            magic, _version, _flags, header, type_off, type_len, str_off, str_len = _HEADER.unpack_from(data)
        except struct.error as error:
            raise BtfError(f"too short for a BTF header: {len(data)} bytes") from error
        if magic != _MAGIC:
            raise BtfError(f"magic is {magic:#x}, not {_MAGIC:#x}")
        if len(data) < header + str_off + str_len:
            raise BtfError(f"torn: {len(data)} bytes of {header + str_off + str_len}")
        self._data = data
        self._strings = data[header + str_off : header + str_off + str_len]
        self._names, self._infos, self._offsets = array("I", [0]), array("I", [0]), array("I", [0])
        self._index(header + type_off, header + type_off + type_len)

    def _index(self, at: int, end: int) -> None:
        """Three flat arrays for some hundred thousand types: a Python object each would cost tens of megabytes."""
        names, infos, offsets = self._names, self._infos, self._offsets
        while at < end:
            name, info, _ = _TYPE.unpack_from(self._data, at)
            names.append(name)
            infos.append(info)
            offsets.append(at)
            kind, count = (info >> 24) & 0x1F, info & 0xFFFF
            at += _TYPE.size + _TRAILING.get(kind, 0) + _PER_MEMBER.get(kind, 0) * count

    def _type(self, index: int) -> _Type:
        if index == 0:
            return _Type("void", 0, 0, False, 0, 0)
        at = self._offsets[index]
        name, info, size_or_type = _TYPE.unpack_from(self._data, at)
        return _Type(
            self._string(name), (info >> 24) & 0x1F, info & 0xFFFF, bool(info >> 31), size_or_type, at + _TYPE.size
        )

    def _string(self, offset: int) -> str:
        return self._strings[offset : self._strings.index(b"\0", offset)].decode()

    def _find(self, name: str, kind: int) -> int | None:
        """Index of the type of this name and kind."""
        offset = self._strings.find(b"\0" + name.encode() + b"\0") + 1
        at = -1
        while offset:
            try:
                at = self._names.index(offset, at + 1)
            except ValueError:
                return None
            if (self._infos[at] >> 24) & 0x1F == kind:
                return at
        return None

    def has_function(self, name: str) -> bool:
        """Return whether the kernel's BTF has this function (fentry could name it)."""
        return self._find(name, FUNC) is not None

    def has_tracepoint(self, name: str) -> bool:
        """Return whether a BTF-typed raw tracepoint of this name exists."""
        return self._find(f"btf_trace_{name}", TYPEDEF) is not None

    def tracepoint_arguments(self, name: str) -> tuple[str, ...]:
        """Types of a tracepoint's arguments, `struct task_struct *` or `int` style; empty if there is none."""
        index = self._find(f"btf_trace_{name}", TYPEDEF)
        if index is None:
            return ()
        prototype = self._type(self._type(self._type(index).size_or_type).size_or_type)
        rows = range(1, prototype.count)  # the first one is the tracepoint's private data
        return tuple(self._spelled(_PARAMETER.unpack_from(self._data, prototype.at + 8 * row)[1]) for row in rows)

    def _spelled(self, index: int) -> str:
        item = self._type(index)
        if item.kind == PTR:
            return f"{self._spelled(item.size_or_type)} *"
        if item.kind in (CONST, VOLATILE, RESTRICT, TYPE_TAG):
            return self._spelled(item.size_or_type)
        prefix = {STRUCT: "struct ", UNION: "union ", ENUM: "enum "}.get(item.kind, "")
        return prefix + item.name

    def enum_names(self, name: str) -> dict[int, str]:
        """Value to name of an enumeration, empty if there is none."""
        index = self._find(name, ENUM)
        if index is None:
            return {}
        item = self._type(index)
        entries = (_ENUMERATOR.unpack_from(self._data, item.at + 8 * row) for row in range(item.count))
        return {value: self._string(text) for text, value in entries}

    def struct(self, name: str) -> list[StructMember] | None:
        """Members of a struct in order, None if there is no such struct. Bit-fields are rounded to bytes."""
        index = self._find(name, STRUCT)
        return None if index is None else self._members(index)

    def has_field(self, struct_name: str, field: str) -> bool:
        """Return whether a struct has the field at top level, anonymous members included."""
        index = self._find(struct_name, STRUCT)
        return index is not None and self._has_field(index, field)

    def field_type(self, struct_name: str, field: str) -> str:
        """Type of a struct's own field, spelled as in `tracepoint_arguments`; empty if there is no such field."""
        index = self._find(struct_name, STRUCT)
        item = self._type(index or 0)
        for row in range(item.count):
            name, kind, _ = _TYPE.unpack_from(self._data, item.at + 12 * row)
            if self._string(name) == field:
                return self._spelled(kind)
        return ""

    def _has_field(self, index: int, field: str) -> bool:
        item = self._type(index)
        for row in range(item.count):
            name, kind, _ = _TYPE.unpack_from(self._data, item.at + 12 * row)
            if self._string(name) == field:
                return True
            if not name and self._type(kind).kind in (STRUCT, UNION) and self._has_field(kind, field):
                return True
        return False

    def _members(self, index: int) -> list[StructMember]:
        item, members = self._type(index), []
        for row in range(item.count):
            name, kind, offset = _TYPE.unpack_from(self._data, item.at + 12 * row)
            bits = offset & 0xFFFFFF if item.flag else offset
            members.append(StructMember(self._string(name), bits // 8, self.size(kind)))
        return members

    def struct_size(self, name: str) -> int | None:
        """Size of a struct in bytes, None if there is no such struct."""
        index = self._find(name, STRUCT)
        return None if index is None else self._type(index).size_or_type

    def size(self, index: int) -> int:
        """Size of a type in bytes; 0 where it has none."""
        item = self._type(index)
        if item.kind in (INT, STRUCT, UNION, ENUM, ENUM64, FLOAT, DATASEC):
            return item.size_or_type
        if item.kind == PTR:
            return 8
        if item.kind == ARRAY:
            element, _, count = _TYPE.unpack_from(self._data, item.at)
            return self.size(int(element)) * int(count)
        if item.kind in (TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG, VAR):
            return self.size(item.size_or_type)
        return 0

    def variables(self, section: str) -> dict[str, tuple[int, int]]:
        """Name to (offset, size) of each variable in a data section such as `.rodata`."""
        index = self._find(section, DATASEC)
        if index is None:
            return {}
        item, found = self._type(index), {}
        for row in range(item.count):
            kind, offset, size = _TYPE.unpack_from(self._data, item.at + 12 * row)
            found[self._type(kind).name] = (offset, size)
        return found
