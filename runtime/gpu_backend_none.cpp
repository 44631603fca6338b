#include "runtime/engine_backend.hpp"

namespace plimsoll {

Result<std::unique_ptr<EngineBackend>> make_gpu_backend(const EngineSource&) {
    return Error{ErrorKind::usage,
                 "this program is built without CUDA: build it where nvcc is found, or use "
                 "--device cpu"};
}

}  // namespace plimsoll
