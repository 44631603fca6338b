#include "kernels/cpu/leaf_impl.hpp"

namespace plimsoll::kernels::cpu {

const Leaf& leaf_avx2() {
    static constexpr Leaf kLeaf = make_leaf("avx2");
    return kLeaf;
}

}  // namespace plimsoll::kernels::cpu
