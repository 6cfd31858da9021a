"""The Arrow schema of all segments, and the fixed bytes at the start and end of every segment file.

The schema message and the footer skeleton are pinned here as bytes (written by pyarrow 26, `zlib` + base85), so that a
comparison detects a flipped bit in them, and a newer pyarrow with another flatbuffer layout changes nothing on disk.
Tests ensure that pyarrow reads them as `SCHEMA`. Source: Arrow columnar format, "IPC File Format".
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import pyarrow as pa

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.utf8(), nullable=False), pa.field("value", pa.binary())]))

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE, nullable=False),
    ]
)
"""Columns of a segment: `offset` int64, `timestamp` ms UTC, `key` and `value` binary (null allowed), `headers` list."""

MAGIC = b"ARROW1"
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"

_SCHEMA_MESSAGE = (
    "c-oCnF>b;@5FEo93^LLc6fP(zQt$-INcjShQqWl95GYun*dWpIfIK4)prGUlc|abKH{>$wTO=zqS!?%h_hx6;<GuG^5nv(KM~V(&"
    "B)rig!yL>KMxzmY2X^eq=-<4bwSM{Wo<}-l7-@|VNZzHdT)uE`B_^CX_kxWE8S7)kw&;(Fmwa8hLe_X8_C4T@?3w91beBWE**l&m"
    "Vx~0?v2E~(wdt?!h!6SSe{g*gW66+Ek8Z7kRgLcZZrrB+fNR*HFSv&Wu1Bxdg)6JP*wwm<+Cg1W$|%?K><M8u{>(<pHuMtf(6`HF"
    ">8ik&up{sx5-ooL<Ss;#"
)
_FOOTER = (
    "c-oDTJx&8L5QX1{P2!*+O_5@Y6ciLWK#G(|Tp>slG%MjK5m^zj3ld!pz%e)g1tmww0XPB$XTZD}8)X$5#(Mt!{Kgs!fFVZc!EqEy"
    "Bgd5enazNV`poPAt`o-z_Tku+bcyd$8}bG9#rbR6fBOzW(~a1TTi&|vQ%hgo`1=}@5W;m(HajV}f0|fLeV%w-uNq%z{wuQ2k<W$e"
    "BAp|><*{5pc#c~#Gvm;emXF2}b?cw-!t;-Rc<smt9ULpyx2g%msK57qy>n~8dwj#Ov}&v|pqf?X>!z$WR@b5Zi;KR-sn_NF0x>rZ"
    "a-$=ydTI2iyTzjRP4siT5&e*9Eq?&cl|f4"
)


def _unpack(text: str) -> bytes:
    return zlib.decompress(base64.b85decode(text))


PREAMBLE = MAGIC + b"\x00\x00" + _unpack(_SCHEMA_MESSAGE)
"""The first bytes of every segment: magic, padding, schema message. The first record message follows."""

_EMPTY_FOOTER = _unpack(_FOOTER)


def _record_batches_field() -> int:
    """Return the position of the uoffset of `Footer.recordBatches` (slot 3 of its vtable) in the footer's skeleton."""
    (root,) = struct.unpack_from("<I", _EMPTY_FOOTER, 0)
    (to_vtable,) = struct.unpack_from("<i", _EMPTY_FOOTER, root)
    (slot,) = struct.unpack_from("<H", _EMPTY_FOOTER, root - to_vtable + 4 + 2 * 3)
    assert slot
    return int(root + slot)


_RECORD_BATCHES_FIELD = _record_batches_field()


def footer(blocks: object) -> bytes:
    """Return the end of a sealed segment: end-of-stream marker, footer, its length, magic.

    `blocks` int64[N, 3] (or array-like): position of the message in the file, length of its metadata with the 8-byte prefix,
    length of its body, in bytes. The vector of blocks is appended to pyarrow's empty footer and linked from it.
    """
    # Arrow's struct is int64, int32, four bytes of padding, int64: the same bytes, as these numbers are below 2^31.
    entries = np.asarray(blocks, dtype="<i8").reshape(-1, 3)
    buffer = bytearray(_EMPTY_FOOTER)
    buffer += bytes(-(len(buffer) + 4) % 8)
    struct.pack_into("<I", buffer, _RECORD_BATCHES_FIELD, len(buffer) - _RECORD_BATCHES_FIELD)
    buffer += struct.pack("<I", len(entries))
    length = struct.pack("<i", len(buffer) + entries.nbytes)
    return b"".join((END_OF_STREAM, buffer, entries.tobytes(), length, MAGIC))
