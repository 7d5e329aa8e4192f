"""A filesystem as some appliances have it: names in any case are one, no links, no locks.

It lives in the memory of the process that runs this file and speaks FUSE with the kernel (Linux,
include/uapi/linux/fuse.h, protocol 7.31), so that a program meets it as any other filesystem.

    python -m tests.fetch.folding_filesystem MOUNTPOINT
"""

import ctypes
import errno
import os
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import pack, unpack_from

ROOT = 1
REQUEST_BYTES = 40
LARGEST_WRITE = 128 * 1024
BIG_WRITES, FLOCK_LOCKS = 1 << 5, 1 << 10
SET_SIZE, SET_MTIME, SET_MTIME_NOW = 8, 32, 256
FREE_BLOCKS = 2**18


@dataclass
class Node:
    """A file or a folder; children are found by their name in small letters."""

    mode: int
    data: bytearray = field(default_factory=bytearray)
    children: dict[str, tuple[str, int]] = field(default_factory=dict)
    mtime_ns: int = field(default_factory=time.time_ns)


class Folding:
    """The operations; each returns the body of an answer, or raises OSError."""

    def __init__(self) -> None:
        self.nodes = {ROOT: Node(stat.S_IFDIR | 0o755)}

    def answer(self, opcode: int, number: int, body: bytes) -> bytes | None:
        """Return the body of the answer, None where none is wanted."""
        if opcode in (2, 36, 42):  # forget, interrupt, batch forget
            return None
        known: dict[int, Callable[[int, bytes], bytes]] = {
            1: self.lookup, 3: self.attributes, 4: self.set_attributes, 8: self.mknod,
            9: self.mkdir, 10: self.unlink, 11: self.rmdir, 12: self.rename, 14: self.opened,
            15: self.read, 16: self.write, 17: self.statfs, 18: self.nothing, 20: self.nothing,
            25: self.nothing, 26: self.init, 27: self.opened, 28: self.readdir,
            29: self.nothing, 30: self.nothing, 35: self.create, 38: self.nothing,
            45: self.rename_2,
        }  # fmt: skip
        if opcode in (6, 13):  # symlink, link
            raise OSError(errno.EPERM, "no links here")
        if opcode in (31, 32, 33):  # flock comes as these
            raise OSError(errno.ENOLCK, "no locks here")
        if opcode not in known:
            raise OSError(errno.ENOSYS, "not spoken")
        return known[opcode](number, body)

    def init(self, _: int, body: bytes) -> bytes:
        ahead = unpack_from("<I", body, 8)[0]
        flags = BIG_WRITES | FLOCK_LOCKS
        return pack("<IIIIHHIIHHI28x", 7, 31, ahead, flags, 16, 12, LARGEST_WRITE, 1, 0, 0, 0)

    def nothing(self, *_: object) -> bytes:
        return b""

    def opened(self, number: int, _: bytes) -> bytes:
        return pack("<QII", number, 0, 0)

    def lookup(self, number: int, body: bytes) -> bytes:
        found = self.nodes[number].children.get(_folded(body))
        if found is None:
            raise OSError(errno.ENOENT, "no such file")
        return self._entry(found[1])

    def attributes(self, number: int, _: bytes) -> bytes:
        return bytes(16) + self._attributes(number)

    def set_attributes(self, number: int, body: bytes) -> bytes:
        valid, size, mtime, nanoseconds = (
            unpack_from("<I", body)[0], *unpack_from("<Q", body, 16),
            *unpack_from("<Q", body, 40), *unpack_from("<I", body, 60),
        )  # fmt: skip
        node = self.nodes[number]
        if valid & SET_SIZE:
            node.data = node.data[:size].ljust(size, b"\0")
            node.mtime_ns = time.time_ns()
        if valid & SET_MTIME:
            node.mtime_ns = time.time_ns() if valid & SET_MTIME_NOW else mtime * 10**9 + nanoseconds
        return self.attributes(number, b"")

    def mknod(self, number: int, body: bytes) -> bytes:
        return self._made(number, body[16:], stat.S_IFREG | 0o644)

    def mkdir(self, number: int, body: bytes) -> bytes:
        return self._made(number, body[8:], stat.S_IFDIR | 0o755)

    def create(self, number: int, body: bytes) -> bytes:
        made = self._made(number, body[16:], stat.S_IFREG | 0o644)
        return made + self.opened(unpack_from("<Q", made)[0], b"")

    def unlink(self, number: int, body: bytes) -> bytes:
        self.nodes[number].children.pop(_folded(body))
        return b""

    def rmdir(self, number: int, body: bytes) -> bytes:
        if self.nodes[self.nodes[number].children[_folded(body)][1]].children:
            raise OSError(errno.ENOTEMPTY, "not empty")
        return self.unlink(number, body)

    def rename(self, number: int, body: bytes) -> bytes:
        return self._moved(number, unpack_from("<Q", body)[0], body[8:])

    def rename_2(self, number: int, body: bytes) -> bytes:
        return self._moved(number, unpack_from("<Q", body)[0], body[16:])

    def read(self, number: int, body: bytes) -> bytes:
        offset, size = unpack_from("<QI", body, 8)
        return bytes(self.nodes[number].data[offset : offset + size])

    def write(self, number: int, body: bytes) -> bytes:
        offset, size = unpack_from("<QI", body, 8)
        node = self.nodes[number]
        if len(node.data) < offset:
            node.data.extend(bytes(offset - len(node.data)))
        node.data[offset : offset + size] = body[40 : 40 + size]
        node.mtime_ns = time.time_ns()
        return pack("<II", size, 0)

    def statfs(self, *_: object) -> bytes:
        return pack(
            "<QQQQQIIII24x", FREE_BLOCKS, FREE_BLOCKS, FREE_BLOCKS, 0, 0, 4096, 255, 4096, 0
        )

    def readdir(self, number: int, body: bytes) -> bytes:
        offset, size = unpack_from("<QI", body, 8)
        listed = b""
        children = list(self.nodes[number].children.values())
        for place, (name, child) in list(enumerate(children, 1))[offset:]:
            kind = stat.S_IFMT(self.nodes[child].mode) >> 12
            raw = name.encode()
            entry = pack("<QQII", child, place, len(raw), kind) + raw
            entry = entry.ljust((len(entry) + 7) // 8 * 8, b"\0")
            if len(listed) + len(entry) > size:
                break
            listed += entry
        return listed

    def _made(self, parent: int, body: bytes, mode: int) -> bytes:
        number = max(self.nodes) + 1
        self.nodes[number] = Node(mode)
        name = body.split(b"\0")[0].decode()
        self.nodes[parent].children[name.casefold()] = (name, number)
        return self._entry(number)

    def _moved(self, parent: int, target: int, body: bytes) -> bytes:
        old, new = (part.decode() for part in body.split(b"\0")[:2])
        _, number = self.nodes[parent].children.pop(old.casefold())
        self.nodes[target].children[new.casefold()] = (new, number)
        return b""

    def _entry(self, number: int) -> bytes:
        return pack("<QQQQII", number, 0, 0, 0, 0, 0) + self._attributes(number)

    def _attributes(self, number: int) -> bytes:
        node = self.nodes[number]
        seconds, nanoseconds = divmod(node.mtime_ns, 10**9)
        size = len(node.data)
        return pack(
            "<QQQQQQIIIIIIIIII", number, size, size // 512, seconds, seconds, seconds,
            nanoseconds, nanoseconds, nanoseconds, node.mode, 1, 0, 0, 0, 4096, 0,
        )  # fmt: skip


def _folded(body: bytes) -> str:
    return body.split(b"\0")[0].decode().casefold()


def serve(mountpoint: str) -> None:
    """Mount and answer until it is unmounted."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"folding", mountpoint.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "cannot mount")
    folding = Folding()
    while True:
        try:
            request = os.read(device, LARGEST_WRITE + 4096)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            raise
        _, opcode, unique, number = unpack_from("<IIQQ", request)
        try:
            body, problem = folding.answer(opcode, number, request[REQUEST_BYTES:]), 0
        except OSError as error:
            body, problem = b"", -(error.errno or errno.EIO)
        if body is not None:
            os.write(device, pack("<IiQ", 16 + len(body), problem, unique) + body)


if __name__ == "__main__":
    serve(sys.argv[1])
