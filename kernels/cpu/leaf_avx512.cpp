#include "kernels/cpu/leaf_impl.hpp"

namespace plimsoll::kernels::cpu {

const Leaf& leaf_avx512() {
    static constexpr Leaf kLeaf = make_leaf("avx512");
    return kLeaf;
}

}  // namespace plimsoll::kernels::cpu
