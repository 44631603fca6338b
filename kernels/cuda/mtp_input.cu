#include "kernels/cuda/decode_f32.cuh"
#include "kernels/cuda/ops.hpp"

namespace plimsoll::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

/// Rows of the workspace: the embedding's product [T, hidden] f32, then the normed embeddings
/// [T, hidden] and the normed streams [T, n_streams, hidden], both f16 or f32.
struct NormArguments {
    WeightPlanes table;
    WeightType table_type;
    const float* enorm;
    const float* hnorm;
    const std::int32_t* ids;
    const float* hidden_streams;
    void* embeddings;
    void* streams;
    std::uint32_t n_tokens;
    std::uint32_t hidden;
    float rms_epsilon;
    bool is_f16;
};

/// Elements k..k+7 of an embedding.
__device__ void table_eight(const NormArguments& arguments, std::uint64_t row, std::uint32_t k,
                            float (&out)[8]) {
    switch (arguments.table_type) {
        case WeightType::f16:
            return decode_eight_f32<WeightType::f16>(arguments.table, row, arguments.hidden, k,
                                                     out);
        case WeightType::bf16:
            return decode_eight_f32<WeightType::bf16>(arguments.table, row, arguments.hidden, k,
                                                      out);
        case WeightType::q8_0:
            return decode_eight_f32<WeightType::q8_0>(arguments.table, row, arguments.hidden, k,
                                                      out);
        default:
            return decode_eight_f32<WeightType::f32>(arguments.table, row, arguments.hidden, k,
                                                     out);
    }
}

__device__ double block_sum(double x) {
    __shared__ double sums[kThreads / kWarp];
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
    if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = x;
    __syncthreads();
    double sum = 0;
    for (const double part : sums) sum += part;
    return sum;
}

/// One row a block: the embeddings of all tokens, then all streams.
__global__ void __launch_bounds__(kThreads) norm_rows_kernel(const NormArguments arguments) {
    wait_for_previous_kernel();
    const bool is_embedding = blockIdx.x < arguments.n_tokens;
    const std::uint64_t row = is_embedding ? blockIdx.x : blockIdx.x - arguments.n_tokens;
    const std::uint64_t id = is_embedding ? static_cast<std::uint64_t>(arguments.ids[row]) : 0;
    const auto load = [&](std::uint32_t k, float(&values)[8]) {
        if (is_embedding)
            table_eight(arguments, id, k, values);
        else
            for (std::uint32_t i = 0; i < 8; ++i)
                values[i] = arguments.hidden_streams[row * arguments.hidden + k + i];
    };
    double squares = 0;
    for (std::uint32_t k = 8 * threadIdx.x; k < arguments.hidden; k += 8 * kThreads) {
        float values[8];
        load(k, values);
        for (const float value : values) squares += static_cast<double>(value) * value;
    }
    const double mean = block_sum(squares) / arguments.hidden;
    const auto scale = static_cast<float>(1.0 / sqrt(mean + arguments.rms_epsilon));
    const float* weight = is_embedding ? arguments.enorm : arguments.hnorm;
    void* out = is_embedding ? arguments.embeddings : arguments.streams;
    for (std::uint32_t k = 8 * threadIdx.x; k < arguments.hidden; k += 8 * kThreads) {
        float values[8];
        load(k, values);
        const std::uint64_t at = row * arguments.hidden + k;
        for (std::uint32_t i = 0; i < 8; ++i) {
            const float normed = __fmul_rn(__fmul_rn(values[i], scale), weight[k + i]);
            if (arguments.is_f16)
                static_cast<__half*>(out)[at + i] = __float2half_rn(saturate_f16(normed));
            else
                static_cast<float*>(out)[at + i] = normed;
        }
    }
    allow_next_kernel();
}

/// streams[t][s] += added[t], a row of a stream a block.
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(const float* added, float* streams, std::uint32_t n_streams,
                    std::uint32_t hidden) {
    wait_for_previous_kernel();
    const float* from = added + std::uint64_t{blockIdx.x / n_streams} * hidden;
    float* to = streams + std::uint64_t{blockIdx.x} * hidden;
    for (std::uint32_t i = threadIdx.x; i < hidden; i += kThreads) to[i] += from[i];
    allow_next_kernel();
}

}  // namespace

void mtp_input(const MtpInputParams& params, Arithmetic arithmetic, const Launch& launch) {
    const std::uint32_t hidden = params.hidden;
    const std::uint32_t n_rows = params.n_tokens * params.n_streams;
    PLIMSOLL_KERNEL_CHECK(params.table.n_in == hidden, "the table has the hidden state's width");
    PLIMSOLL_KERNEL_CHECK(params.e_proj.n_in == hidden, "e_proj reads the embedding");
    PLIMSOLL_KERNEL_CHECK(params.h_proj.n_in == hidden, "h_proj reads a stream");
    PLIMSOLL_KERNEL_CHECK(hidden % 8 == 0, "rows are aligned to 16 bytes");
    if (n_rows == 0) return;
    const bool is_f16 = arithmetic == Arithmetic::fast;
    const std::uint64_t n_embedded = std::uint64_t{params.n_tokens} * hidden;
    auto* embedded = static_cast<float*>(params.workspace);
    auto* normed = reinterpret_cast<unsigned char*>(embedded + n_embedded);
    void* normed_streams = normed + n_embedded * (is_f16 ? 2 : 4);
    const NormArguments norm{planes_of(params.table),
                             params.table.type,
                             params.enorm,
                             params.hnorm,
                             params.ids,
                             params.hidden_streams,
                             normed,
                             normed_streams,
                             params.n_tokens,
                             hidden,
                             params.rms_epsilon,
                             is_f16};
    launch_kernel(norm_rows_kernel, {dim3(params.n_tokens + n_rows), dim3(kThreads)}, launch, norm);

    ProductParams projection{};
    projection.input_type = is_f16 ? ElementType::f16 : ElementType::f32;
    projection.arithmetic = arithmetic;
    projection.weight = params.e_proj;
    projection.input = normed;
    projection.output = embedded;
    projection.n_tokens = params.n_tokens;
    product(projection, launch);
    projection.weight = params.h_proj;
    projection.input = normed_streams;
    projection.output = params.streams;
    projection.n_tokens = n_rows;
    product(projection, launch);
    launch_kernel(add_rows_kernel, {dim3(n_rows), dim3(kThreads)}, launch, embedded, params.streams,
                  params.n_streams, hidden);
}

}  // namespace plimsoll::kernels::cuda
