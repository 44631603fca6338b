#pragma once

#include "kernels/cuda/product_arguments.cuh"

namespace plimsoll::kernels::cuda {

/// The product in float32, input and all; `group_tiles` is not read.
void launch_precise_product(WeightType type, const ProductArguments& arguments,
                            std::uint32_t n_groups, const Launch& launch);

}  // namespace plimsoll::kernels::cuda
