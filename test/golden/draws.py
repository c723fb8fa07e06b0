# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kiln's random numbers, written again from their definition: initial weights, order of samples, what data draw."""

import math

import numpy as np

WORD = 0xFFFFFFFF


def philox(counter, key):
    """Philox4x32-10 on four arrays of 32-bit words (kept in 64 bits)."""
    c0, c1, c2, c3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(10):
        first, second = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (second >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            second & np.uint64(WORD),
            (first >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            first & np.uint64(WORD),
        )
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def stream(seed, name):
    """Key and upper half of the counter: the seed, and FNV-1a of the name."""
    digest = 0xCBF29CE484222325
    for byte in name.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return (seed & WORD, seed >> 32), (digest & WORD, digest >> 32)


def unit_interval(low, high):
    return ((high << np.uint64(32) | low) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def random_blocks(seed, name, count):
    """Two numbers in [0, 1) for each pair of elements."""
    key, (low, high) = stream(seed, name)
    index = np.arange((count + 1) // 2, dtype=np.uint64)
    bits = philox((index & np.uint64(WORD), index >> np.uint64(32), np.uint64(low), np.uint64(high)), key)
    return unit_interval(bits[0], bits[1]), unit_interval(bits[2], bits[3])


def uniform(seed, name, shape, bound):
    count = math.prod(shape)
    first, second = random_blocks(seed, name, count)
    return (np.stack([first, second], 1).reshape(-1)[:count] * 2 * bound - bound).reshape(shape)


def normal(seed, name, shape, deviation):
    count = math.prod(shape)
    first, second = random_blocks(seed, name, count)
    radius, angle = np.sqrt(-2 * np.log(1 - first)), 2 * np.pi * second
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return (pairs.reshape(-1)[:count] * deviation).reshape(shape)


def permute(seed, epoch, index, size):
    """Where a sample goes in an epoch: six Feistel rounds on the least even number of bits, walked until inside."""
    if size <= 1:
        return 0
    key, (low, high) = stream(seed, "sample order")
    half = ((size - 1).bit_length() + 1) // 2
    while True:
        left, right = index >> half, index & ((1 << half) - 1)
        for number in range(6):
            counter = (right, number ^ (epoch >> 32 << 3 & WORD), low ^ (epoch & WORD), high)
            left, right = right, left ^ (int(philox(counter, key)[0]) & ((1 << half) - 1))
        index = left << half | right
        if index < size:
            return index
