#include "kernels/cpu/leaf.hpp"

#include <cstring>

#include "kernels/check.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels::cpu {
namespace {

struct Candidate {
    const char* name;
    bool (*supported)();
    const Leaf& (*table)();
};

/// Best first.
constexpr Candidate kCandidates[] = {
#if defined(__x86_64__)
    {"avx512",
     [] {
         return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx2");
     },
     leaf_avx512},
    // Every processor with AVX2 has F16C, which Clang 14 cannot ask for.
    {"avx2", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") != 0; },
     leaf_avx2},
#endif
    {"portable", [] { return true; }, leaf_portable},
};

const Leaf& best_leaf() {
    for (const Candidate& candidate : kCandidates)
        if (candidate.supported()) return candidate.table();
    return leaf_portable();
}

}  // namespace

const Leaf& leaf() {
    static const Leaf& best = best_leaf();
    return best;
}

const Leaf* find_leaf(const char* isa_name) {
    for (const Candidate& candidate : kCandidates)
        if (std::strcmp(candidate.name, isa_name) == 0 && candidate.supported())
            return &candidate.table();
    return nullptr;
}

void (*find_dot(WeightType type, ActivationFormat format))(const DotTile&) {
    const Leaf& table = leaf();
    for (std::uint32_t i = 0; i < table.n_dot_kernels; ++i)
        if (table.dot_kernels[i].type == type && table.dot_kernels[i].format == format)
            return table.dot_kernels[i].run;
    PLIMSOLL_KERNEL_CHECK(false, "no product for this weight type and activation format");
    return nullptr;
}

const char* isa_name() { return leaf().isa_name; }

}  // namespace plimsoll::kernels::cpu
