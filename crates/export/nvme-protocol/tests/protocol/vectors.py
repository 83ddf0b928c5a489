"""The vectors of group.rs, from Python's integers and hashes alone: python3 vectors.py > vectors.txt

The first line is the prime of ffdhe2048. The others have the name of a group, the exponent of one side and
the public value of the other side, and two hashes:
NAME X Y SHA256(2^X mod p) SHA256(Y^X mod p), all in hexadecimal digits. `--primes` checks the primes.
"""

import hashlib
import sys

# RFC 7919, appendix A: bits of the prime, what is added to the digits of e, bytes of an exponent.
GROUPS = [(2048, 560316, 32), (3072, 2625351, 40), (4096, 5736041, 48), (6144, 15705020, 56), (8192, 10965728, 64)]


def e_times_two_to(power):
    spare = 64
    total, term, k = 0, 1 << (power + spare), 0
    while term:
        total += term
        k += 1
        term //= k
    return total >> spare


def prime(bits, added):
    return 2**bits - 2 ** (bits - 64) + (e_times_two_to(bits - 130) + added) * 2**64 - 1


def is_probable_prime(n):
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    x = pow(2, odd, n)
    return x in (1, n - 1) or any((x := x * x % n) == n - 1 for _ in range(twos - 1))


def random(seed, length):
    return hashlib.shake_256(seed.encode()).digest(length)


for bits, added, exponent_bytes in GROUPS:
    p = prime(bits, added)
    if bits == 2048 and "--primes" not in sys.argv:
        print("prime", f"{p:x}")
    if "--primes" in sys.argv:
        print(bits, is_probable_prime(p), is_probable_prime((p - 1) // 2))
        continue
    # One of them has a shared value that begins with a zero byte.
    for number in [0, 1, "short"] if bits == 2048 else [0, 1]:
        tries = range(10**6) if number == "short" else [number]
        for attempt in tries:
            x = int.from_bytes(random(f"x{bits}{attempt}", exponent_bytes), "big")
            y = pow(2, int.from_bytes(random(f"y{bits}{attempt}", 16), "big"), p)
            shared = pow(y, x, p)
            if number != "short" or shared >> (bits - 8) == 0:
                break
        whole = lambda value: value.to_bytes(bits // 8, "big")
        sums = [hashlib.sha256(whole(value)).hexdigest() for value in (pow(2, x, p), shared)]
        print(f"ffdhe{bits}", x.to_bytes(exponent_bytes, "big").hex(), whole(y).hex(), *sums)
