#include "kernels/cpu/leaf_impl.hpp"

namespace plimsoll::kernels::cpu {

const Leaf& leaf_portable() {
    static constexpr Leaf kLeaf = make_leaf("portable");
    return kLeaf;
}

}  // namespace plimsoll::kernels::cpu
