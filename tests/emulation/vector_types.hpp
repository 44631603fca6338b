#pragma once

/// CUDA's built-in vector types: plain structs with the alignment that device code relies on.

#define PLIMSOLL_VECTOR_TYPES(type, name, align2, align4)                       \
    struct name##1 {                                                            \
        type x;                                                                 \
    };                                                                          \
    struct alignas(align2) name##2 {                                            \
        type x, y;                                                              \
    };                                                                          \
    struct name##3 {                                                            \
        type x, y, z;                                                           \
    };                                                                          \
    struct alignas(align4) name##4 {                                            \
        type x, y, z, w;                                                        \
    };                                                                          \
    inline name##1 make_##name##1(type x) { return {x}; }                       \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }            \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

PLIMSOLL_VECTOR_TYPES(signed char, char, 2, 4)
PLIMSOLL_VECTOR_TYPES(unsigned char, uchar, 2, 4)
PLIMSOLL_VECTOR_TYPES(short, short, 4, 8)
PLIMSOLL_VECTOR_TYPES(unsigned short, ushort, 4, 8)
PLIMSOLL_VECTOR_TYPES(int, int, 8, 16)
PLIMSOLL_VECTOR_TYPES(unsigned int, uint, 8, 16)
PLIMSOLL_VECTOR_TYPES(long long, longlong, 16, 16)
PLIMSOLL_VECTOR_TYPES(unsigned long long, ulonglong, 16, 16)
PLIMSOLL_VECTOR_TYPES(float, float, 8, 16)
PLIMSOLL_VECTOR_TYPES(double, double, 16, 16)
#undef PLIMSOLL_VECTOR_TYPES

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1)
        : x(x_), y(y_), z(z_) {}
};
