#include "kernels/check.hpp"
#include "kernels/cpu/rms.hpp"
#include "kernels/cpu/tile.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels {

std::uint64_t mtp_input_workspace_bytes(std::uint32_t n_tokens, std::uint32_t n_streams,
                                        std::uint32_t hidden) {
    return std::uint64_t{n_tokens} * (n_streams + 2) * hidden * sizeof(float);
}

namespace cpu {
namespace {

/// out = rms(rows) . projection. The normed rows go to `inputs`, where the product reads them; in
/// the fast mode they pass through `out` first and are quantised into `inputs`.
struct Projection {
    const WeightMatrix& weight;
    void* inputs;
    float* out;  // [n_rows, hidden]
    std::uint32_t n_rows;
    ActivationFormat format;

    [[nodiscard]] float* normed() const {
        return format == ActivationFormat::f32 ? static_cast<float*>(inputs) : out;
    }
    void multiply(const Workers& workers) const {
        if (format != ActivationFormat::f32)
            quantize_activations({out, inputs, n_rows, weight.n_in, format}, workers);
        MatmulParams product{};
        product.weight = weight;
        product.input = inputs;
        product.output = out;
        product.n_tokens = n_rows;
        product.input_format = format;
        matmul(product, workers);
    }
};

}  // namespace

void mtp_input(const MtpInputParams& params, const Workers& workers) {
    const std::uint64_t hidden = params.hidden;
    const std::uint32_t n_rows = params.n_tokens * params.n_streams;
    PLIMSOLL_KERNEL_CHECK(params.e_proj.n_in == hidden, "e_proj reads the embedding");
    PLIMSOLL_KERNEL_CHECK(params.h_proj.n_in == hidden, "h_proj reads a stream");
    auto* embedding = static_cast<float*>(params.workspace);
    float* embedding_inputs = embedding + params.n_tokens * hidden;
    float* stream_inputs = embedding_inputs + params.n_tokens * hidden;
    const Projection from_embedding{params.e_proj, embedding_inputs, embedding, params.n_tokens,
                                    activation_format(params.e_proj.type, params.mode)};
    const Projection from_streams{params.h_proj, stream_inputs, params.streams, n_rows,
                                  activation_format(params.h_proj.type, params.mode)};
    workers.parallel_for(params.n_tokens, 1, [&](std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t t = first; t < last; ++t) {
            const auto id = static_cast<std::uint64_t>(params.ids[t]);
            PLIMSOLL_KERNEL_CHECK(id < params.table.n_out, "token id outside the vocabulary");
            float* row = from_embedding.normed() + t * hidden;
            decode_row(params.table, id, row);
            rms_row(row, params.enorm, params.hidden, params.rms_epsilon, row);
        }
    });
    rms_norm({params.hidden_streams, params.hnorm, from_streams.normed(), n_rows, params.hidden,
              params.rms_epsilon},
             workers);
    from_embedding.multiply(workers);
    from_streams.multiply(workers);
    workers.parallel_for(n_rows, rows_for_elements(hidden),
                         [&](std::uint64_t first, std::uint64_t last) {
                             for (std::uint64_t i = first; i < last; ++i) {
                                 const float* added = embedding + i / params.n_streams * hidden;
                                 float* stream = params.streams + i * hidden;
                                 for (std::uint64_t c = 0; c < hidden; ++c) stream[c] += added[c];
                             }
                         });
}

}  // namespace cpu
}  // namespace plimsoll::kernels
