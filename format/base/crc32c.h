/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_CRC32C_H
#define FORMAT_BASE_CRC32C_H

/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78, initial and final inversion), as in RFC 3720 B.4. */

#include <stddef.h>
#include <stdint.h>

/* CRC of the bytes so far (crc, 0 to begin with) followed by len bytes of buf. Check value: "123456789" -> 0xE3069283. */
uint32_t crc32c(uint32_t crc, const void *buf, size_t len);

/* CRC of A followed by B, from the CRC of each and B's length in bytes. O(log len_b). */
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

/* CRC of the bytes so far followed by len zero bytes. O(log len). */
uint32_t crc32c_zeros(uint32_t crc, uint64_t len);

/*
 * The CRC of a file that is written in parts, by several and in any order: what a part (its CRC, its length, and how many bytes
 * of the file are behind it) adds to a sum; the sums of all parts, exclusive-ored; and the CRC of the file of size bytes that
 * has these parts and zeros everywhere else. Parts must not overlap. O(log size).
 */
uint32_t crc32c_part(uint32_t crc, uint64_t len, uint64_t behind);
uint32_t crc32c_of_parts(uint32_t sum, uint64_t size);

#endif
