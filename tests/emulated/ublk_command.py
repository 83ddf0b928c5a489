#!/usr/bin/env python3
"""One command to the kernel's driver ublk_drv, past whoever serves the device.

    ublk_command.py stop|delete|recover|end-recovery|start N

Prints the driver's answer: 0, or a negative error number. It shares no code with the program that is tested.
"""
import ctypes
import mmap
import os
import struct
import sys

NUMBERS = {"start": 0xC0207506, "stop": 0xC0207507, "delete": 0x80207514, "recover": 0xC0207510,
           "end-recovery": 0xC0207511}
SETUP_SQE128 = 1 << 10
URING_CMD = 46
SETUP, ENTER = 425, 426
SQES_AT = 0x10000000


def answer(number, device):
    libc = ctypes.CDLL(None, use_errno=True)
    params = ctypes.create_string_buffer(120)
    struct.pack_into("<I", params, 8, SETUP_SQE128)
    ring = libc.syscall(SETUP, 1, params)
    assert ring >= 0, os.strerror(ctypes.get_errno())
    sq_entries, cq_entries = struct.unpack_from("<II", params, 0)
    sq = struct.unpack_from("<10I", params, 40)
    cq = struct.unpack_from("<10I", params, 80)
    rings = mmap.mmap(ring, max(sq[6] + 4 * sq_entries, cq[5] + 16 * cq_entries))
    entries = mmap.mmap(ring, 128 * sq_entries, offset=SQES_AT)
    control = os.open("/dev/ublk-control", os.O_RDWR)
    entry = struct.pack("<BBHiQQII", URING_CMD, 0, 0, control, number, 0, 0, 0).ljust(48, b"\0")
    # Device, no queue, no memory; the process that serves it.
    entry += struct.pack("<IHHQQ", device, 0xFFFF, 0, 0, os.getpid())
    entries[0:128] = entry.ljust(128, b"\0")
    rings[sq[6]:sq[6] + 4] = struct.pack("<I", 0)
    tail = struct.unpack_from("<I", rings, sq[1])[0]
    rings[sq[1]:sq[1] + 4] = struct.pack("<I", tail + 1)
    assert libc.syscall(ENTER, ring, 1, 1, 1, None, 0) == 1, os.strerror(ctypes.get_errno())
    head = struct.unpack_from("<I", rings, cq[0])[0]
    at = cq[5] + 16 * (head % cq_entries)
    return struct.unpack_from("<Qi", rings, at)[1]


if __name__ == "__main__":
    print(answer(NUMBERS[sys.argv[1]], int(sys.argv[2])))
