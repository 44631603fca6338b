#include "kernels/cuda/device_facts.hpp"

namespace plimsoll::kernels {
namespace {

constexpr const char* kNoCuda = "built without CUDA";

}  // namespace

GpuList list_gpus() { return {.gpus = {}, .problem = kNoCuda}; }

GpuRates measure_gpu(std::uint32_t) { return {.problem = kNoCuda}; }

}  // namespace plimsoll::kernels
