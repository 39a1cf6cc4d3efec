"""Reads and writes GGUF with the package `gguf`, for tests/python_gguf.rs.

read FILE            prints what is in a file as JSON
write FILE [big]     writes a file and prints what should be in it, in the same way
"""

import hashlib
import json
import sys

import gguf
import numpy as np


def plain(value):
    """Values as JSON has them; floats by their bits, so that nothing is lost."""
    if isinstance(value, (list, np.ndarray)):
        return [plain(v) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (np.floating, float)):
        return float(value)
    if isinstance(value, np.integer):
        return int(value)
    return value


def entry(name, shape, kind, data):
    """A tensor: rows of values, as f32."""
    values = gguf.quants.dequantize(data, kind).astype("<f4")
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    return {"name": name, "dims": [int(d) for d in shape], "type": kind.name, "values": digest}


def read(path):
    reader = gguf.GGUFReader(path)
    fields = {}
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            fields[name] = {"types": [t.name for t in field.types], "value": plain(field.contents())}
    tensors = [entry(t.name, t.shape, t.tensor_type, t.data) for t in reader.tensors]
    return {"fields": fields, "tensors": tensors}


def write(path, big):
    order = gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(path, "llama", endianess=order)
    writer.add_uint8("t.u8", 200)
    writer.add_int8("t.i8", -100)
    writer.add_uint16("t.u16", 60000)
    writer.add_int16("t.i16", -30000)
    writer.add_uint32("t.u32", 4_000_000_000)
    writer.add_int32("t.i32", -2_000_000_000)
    writer.add_uint64("t.u64", 1 << 40)
    writer.add_int64("t.i64", -(1 << 40))
    writer.add_float32("t.f32", 0.1)
    writer.add_float64("t.f64", 0.1)
    writer.add_bool("t.bool", True)
    writer.add_string("t.str", "text \u65e5\u672c")
    writer.add_array("t.ints", [1, -2, 3])
    writer.add_array("t.floats", [0.5, 0.25])
    writer.add_array("t.texts", ["a", "", "\u00e9"])
    random = np.random.default_rng(1)
    kinds = ["F32", "F16"] if big else ["F32", "F16", "BF16", "Q4_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0"]
    tensors = []
    for name in kinds:
        kind = gguf.GGMLQuantizationType[name]
        values = random.standard_normal((3, 256)).astype(np.float32)
        data = {"F32": values, "F16": values.astype(np.float16)}.get(name)
        if data is None:
            data = gguf.quants.quantize(values, kind)
        tensors.append(entry(f"{name}.weight", (256, 3), kind, data))
        # The writer turns bytes round in place.
        writer.add_tensor(f"{name}.weight", data.copy(), raw_dtype=None if name in ("F32", "F16") else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {"fields": read(path)["fields"], "tensors": tensors}


if __name__ == "__main__":
    result = read(sys.argv[2]) if sys.argv[1] == "read" else write(sys.argv[2], "big" in sys.argv[3:])
    print(json.dumps(result))
