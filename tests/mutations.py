"""Random damage to a model folder, by accident or by an attacker who recomputes the checksums.

`mutate(folder, rng)` changes the folder in place and says what it did. A description that starts with "forged" tells
that checksums were made to fit, so that another model than the original may load; everything else must be noticed or
leave the model as it was.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ODD_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308),
    *("", "x", "..", "/etc/passwd", "../../x.npy", "a\0b", "é\n", "sha256", "float32", "object", "|O", ">f8", "V8"),
    *([], [[]], [0], [-1], [2**62, 2**62], [2**64], [1.0], ["3"], [0, 2**62], [1] * 40, {}, {"a": 1}, {"file": 3}),
]
BAD_HEADERS = [
    "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': [('a', '<f4'), ('b', '<i8')], 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4611686018427387904), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999999,), }",
    "{'descr': '<f4', 'fortran_order': __import__('os').abort(), 'shape': (3,), }",
    "{'descr': '<f4', 'shape': (3,), }",
    "(" * 9000,
    "-" * 60000 + "1",
    "",
]


def forged(description: str) -> bool:
    """Whether the mutation was an attacker's, with checksums that fit."""
    return description.startswith("forged")


def mutate(folder: str | os.PathLike[str], rng: random.Random) -> str:
    """Change the model folder in one random way and return what was done."""
    return rng.choice(MUTATIONS)(Path(folder), rng)


def reseal(manifest: dict[str, Any]) -> bytes:
    """The bytes of a manifest whose own checksum fits, as an attacker would write it."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    content["sha256"] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")


def reseal_array(folder: Path, name: str, data: bytes, **changes: Any) -> None:
    """Put other bytes in the place of an array, with its entry, its file name and all checksums made to fit."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    entry = manifest["arrays"][name]
    (folder / entry["file"]).unlink()
    sha256 = hashlib.sha256(data).hexdigest()
    entry.update({"file": f"{name}-{sha256[:16]}.npy", "sha256": sha256, **changes})
    (folder / f"{name}-{sha256[:16]}.npy").write_bytes(data)
    (folder / "manifest.json").write_bytes(reseal(manifest))


def npy(header: str, data: bytes = bytes(12)) -> bytes:
    """A .npy file of version 1.0 with any header at all."""
    return b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header.encode() + b"\n" + data


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def _some_file(folder: Path, rng: random.Random) -> Path:
    # Every second time the manifest: with many arrays it would hardly ever be hit.
    return folder / "manifest.json" if rng.random() < 0.5 else rng.choice(_files(folder))


def _two_files(folder: Path, rng: random.Random) -> tuple[Path, Path]:
    first, second = rng.sample(_files(folder), 2)
    return first, second


def _flip_bits(folder: Path, rng: random.Random) -> str:
    path, flips = _some_file(folder, rng), rng.choice([1, 1, 1, 2, 8])
    data = bytearray(path.read_bytes())
    for _ in range(flips):
        # Headers are short and matter most.
        position = rng.randrange(min(len(data), 128) if rng.random() < 0.3 else len(data))
        data[position] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"flipped {flips} bits in {path.name}"


def _flip_data(folder: Path, rng: random.Random) -> str:
    """One bit behind the header, which only a checksum can notice."""
    path = rng.choice([path for path in folder.glob("*.npy") if path.stat().st_size > 128] or _files(folder))
    data = bytearray(path.read_bytes())
    data[rng.randrange(min(128, len(data) - 1), len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"flipped a bit of the data in {path.name}"


def _truncate(folder: Path, rng: random.Random) -> str:
    path = _some_file(folder, rng)
    size = rng.choice([0, 1, 9, 10, 127, path.stat().st_size - 1, rng.randrange(path.stat().st_size)])
    os.truncate(path, min(size, path.stat().st_size))
    return f"cut {path.name} to {size} bytes"


def _splice(folder: Path, rng: random.Random) -> str:
    path = _some_file(folder, rng)
    data = path.read_bytes()
    at, drop, add = rng.randrange(len(data) + 1), rng.choice([0, 1, 4, 64]), rng.choice([0, 1, 4, 64])
    filling = rng.choice([bytes(add), rng.randbytes(add), data[:add], b" " * add])
    path.write_bytes(data[:at] + filling + data[at + drop :])
    return f"replaced {drop} bytes by {add} in {path.name} at {at}"


def _grow_sparse(folder: Path, rng: random.Random) -> str:
    path = _some_file(folder, rng)
    os.truncate(path, 2 ** rng.choice([27, 33, 40]))
    return f"grew {path.name} to {path.stat().st_size} bytes"


def _swap_files(folder: Path, rng: random.Random) -> str:
    first, second = _two_files(folder, rng)
    parked = folder / "parked"
    first.rename(parked)
    second.rename(first)
    parked.rename(second)
    return f"swapped {first.name} and {second.name}"


def _copy_over(folder: Path, rng: random.Random) -> str:
    first, second = _two_files(folder, rng)
    shutil.copyfile(first, second)
    return f"copied {first.name} over {second.name}"


def _rename(folder: Path, rng: random.Random) -> str:
    path = _some_file(folder, rng)
    name = rng.choice([path.name.swapcase(), path.name + "~", "." + path.name, "renamed", path.name.replace("-", "_")])
    path.rename(folder / name)
    return f"renamed {path.name} to {name}"


def _remove(folder: Path, rng: random.Random) -> str:
    path = _some_file(folder, rng)
    path.unlink()
    return f"removed {path.name}"


def _link(folder: Path, rng: random.Random) -> str:
    path = _some_file(folder, rng)
    outside = folder.parent / f"{folder.name}-outside"
    shutil.copyfile(path, outside)
    target = rng.choice([str(outside), path.name, "/dev/zero", "/dev/full", "nowhere", "/proc/self/mem", "."])
    path.unlink()
    path.symlink_to(target)
    return f"made {path.name} a link to {'a copy outside' if target == str(outside) else target}"


def _special(folder: Path, rng: random.Random) -> str:
    path, kind = _some_file(folder, rng), rng.choice(["FIFO", "folder", "socket", "full folder"])
    path.unlink()
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as end:
            end.bind(f"/proc/self/fd/{(fd := os.open(folder, os.O_RDONLY))}/{path.name}")
            os.close(fd)
    else:
        path.mkdir()
        if kind == "full folder":
            (path / "file").touch()
    return f"made {path.name} a {kind}"


def _stranger(folder: Path, rng: random.Random) -> str:
    name = rng.choice(
        ["README.md", "x.npy", "Psi-0123456789abcdef.npy", "Psi.npy.ripml-part", "manifest.json.ripml-part"]
    )
    (folder / name).write_bytes(rng.randbytes(20))
    return f"added {name}"


def _reformat(folder: Path, rng: random.Random) -> str:
    path, indent = folder / "manifest.json", rng.choice([None, 0, 7])
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=indent, ensure_ascii=rng.random() < 0.5))
    return f"reformatted the manifest with indent {indent}"


def _odd_text(folder: Path, rng: random.Random) -> str:
    path = folder / "manifest.json"
    text = path.read_bytes()
    at = rng.choice([i for i, byte in enumerate(text) if byte in b"{[,:"]) + 1
    odd = [
        b"NaN,",
        b"Infinity,",
        b"-Infinity,",
        b"1e999,",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"[" * 100_000,
        b'{"a":' * 50_000,
    ]
    odd += [b'"kind":"x",', b'"format":1,', b'"parameters":{},', b'"\\ud800":1,', b"9" * 5000 + b",", b"\0", b"/**/"]
    insertion = rng.choice(odd)
    path.write_bytes(text[:at] + insertion + text[at:])
    return f"inserted {insertion[:20]!r} into the manifest at {at}"


def _encoding(folder: Path, rng: random.Random) -> str:
    path, encoding = folder / "manifest.json", rng.choice(["utf-16", "utf-8-sig", "utf-32", "utf-7"])
    path.write_bytes(path.read_text(encoding="utf-8").encode(encoding))
    return f"wrote the manifest in {encoding}"


def _edit_json(manifest: dict[str, Any], rng: random.Random) -> str:
    """Change, remove, add or move one value anywhere in the manifest."""
    places: list[tuple[Any, Any]] = []
    stack: list[Any] = [manifest]
    while stack:
        value = stack.pop()
        if isinstance(value, dict | list):
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            places += [(value, key) for key in keys]
            stack += [value[key] for key in keys]
    owner, key = rng.choice(places)
    action = rng.choice(["set", "set", "set", "nudge", "remove", "add", "swap"])
    if action == "nudge" and isinstance(owner[key], int | float):
        owner[key] += rng.choice([-1, 1])
    elif action == "nudge" and isinstance(owner[key], str):
        owner[key] = owner[key][::-1]
    elif action == "remove":
        del owner[key]
    elif action == "add" and isinstance(owner, dict):
        owner[rng.choice(["", "..", "extra", "../x", "Psi2"])] = owner[key]
    elif action == "swap":
        other, second = rng.choice(places)
        owner[key], other[second] = copy.deepcopy(other[second]), copy.deepcopy(owner[key])  # copies: no cycles
    else:
        owner[key] = copy.deepcopy(rng.choice(ODD_VALUES))
    return f"{action} at {key!r}"


def _edit(folder: Path, rng: random.Random) -> str:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    what = _edit_json(manifest, rng)
    path.write_bytes(json.dumps(manifest).encode())
    return f"edited the manifest: {what}"


def _forge_manifest(folder: Path, rng: random.Random) -> str:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    what = ", ".join(_edit_json(manifest, rng) for _ in range(rng.choice([1, 1, 2, 3])) if manifest)
    path.write_bytes(reseal(manifest))
    return f"forged manifest: {what}"


def _forge_entry(folder: Path, rng: random.Random) -> str:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    name, key = rng.choice(sorted(manifest["arrays"])), rng.choice(["file", "dtype", "shape", "sha256"])
    manifest["arrays"][name][key] = rng.choice(ODD_VALUES)
    (folder / "manifest.json").write_bytes(reseal(manifest))
    return f"forged entry: {key} of {name}"


def _forge_header(folder: Path, rng: random.Random) -> str:
    name = rng.choice(sorted(json.loads((folder / "manifest.json").read_bytes())["arrays"]))
    header = rng.choice(BAD_HEADERS)
    reseal_array(folder, name, npy(header, rng.randbytes(rng.choice([0, 12, 100]))), dtype="float32", shape=[3])
    return f"forged header: {header[:30]}"


def _forge_array(folder: Path, rng: random.Random) -> str:
    """Damage an array's bytes and make all checksums fit."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    name = rng.choice(sorted(manifest["arrays"]))
    data = bytearray((folder / manifest["arrays"][name]["file"]).read_bytes())
    what = rng.choice(["flip", "header flip", "cut", "extend", "pickle", "version", "other dtype"])
    if what == "flip":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif what == "header flip":
        data[rng.randrange(min(128, len(data)))] ^= 1 << rng.randrange(8)
    elif what == "cut":
        del data[rng.randrange(len(data)) :]
    elif what == "extend":
        data += rng.randbytes(rng.choice([1, 8, 4096]))
    elif what == "version":
        data[6] = rng.randrange(256)
    else:
        buffer = io.BytesIO()
        odd = (
            np.array([{}, None], object)
            if what == "pickle"
            else np.zeros(3, rng.choice([">f8", "<c16", "U3", "M8[s]"]))
        )
        np.save(buffer, odd, allow_pickle=True)
        data = bytearray(buffer.getvalue())
    reseal_array(folder, name, bytes(data))
    return f"forged array: {what} of {name}"


def _forge_bomb(folder: Path, rng: random.Random) -> str:
    """A shape that asks for more memory than there is, in header and manifest alike."""
    name = rng.choice(sorted(json.loads((folder / "manifest.json").read_bytes())["arrays"]))
    shape = rng.choice(
        [[2**40], [2**62, 4], [2**62], [2**63], [2**32, 2**32], [0, 2**63], [0, 2**61], [10**30], [3] * 33]
    )
    header = f"{{'descr': '<f4', 'fortran_order': {rng.random() < 0.5}, 'shape': {tuple(shape)}, }}"
    reseal_array(folder, name, npy(header, rng.choice([b"", bytes(4096)])), dtype="float32", shape=shape)
    return f"forged bomb: {shape}"


MUTATIONS: list[Callable[[Path, random.Random], str]] = [
    *(
        _flip_bits,
        _flip_data,
        _truncate,
        _splice,
        _grow_sparse,
        _swap_files,
        _copy_over,
        _rename,
        _remove,
        _link,
        _special,
    ),
    *(_stranger, _reformat, _odd_text, _encoding, _edit),
    *(_forge_manifest, _forge_entry, _forge_header, _forge_array, _forge_bomb),
]
