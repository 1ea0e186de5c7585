#pragma once

#include <cstdint>
#include <cstring>

struct __half {
    uint16_t bits;
};

inline float __half2float(__half h) {
    const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000) << 16,
                   exponent = h.bits >> 10 & 31, fraction = h.bits & 1023;
    float v;
    if (exponent == 0) { // zero and subnormals: fraction * 2^-24
        v = static_cast<float>(fraction) * 0x1p-24f;
        uint32_t u;
        std::memcpy(&u, &v, 4);
        u |= sign;
        std::memcpy(&v, &u, 4);
        return v;
    }
    const uint32_t u =
        sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
    std::memcpy(&v, &u, 4);
    return v;
}
