#include <algorithm>
#include <cstring>

#include "planner/units.hpp"
#include "runtime/forward_ops.hpp"
#include "runtime/products.hpp"

namespace plimsoll {
namespace {

using R = BufferRole;
namespace k = kernels;

/// The output head through its staging region, a tile of vocabulary rows after the other. A row's
/// product does not depend on its tile.
void head_by_tiles(const ForwardStep& step) {
    constexpr std::uint64_t kCopyBytes = 256 * kKiB;
    const Bindings& bindings = step.setting.bindings;
    const k::WeightMatrix& output = bindings.output;
    const std::uint64_t row_bytes = k::weight_row_bytes(output.type, output.n_in);
    for (std::uint32_t row = 0; row < output.n_out; row += bindings.head_tile_rows) {
        const std::uint32_t n_rows = std::min(bindings.head_tile_rows, output.n_out - row);
        const std::byte* from = static_cast<const std::byte*>(output.data) + row * row_bytes;
        std::byte* to = bindings.staging_head.data();
        step.workers().parallel_for(n_rows * row_bytes, kCopyBytes,
                                    [&](std::uint64_t first, std::uint64_t last) {
                                        std::memcpy(to + first, from + first, last - first);
                                    });
        k::MatmulParams product{};
        product.weight = {to, output.type, output.n_in, n_rows};
        product.input = input_rows(step, kHeadIn, output.type);
        product.input_format = k::activation_format(output.type, step.setting.mode);
        product.output = bindings.logits + row;
        product.output_stride = output.n_out;
        product.n_tokens = step.n_tokens;
        k::cpu::matmul(product, step.workers());
    }
}

}  // namespace

void embed(const ForwardStep& step) {
    k::cpu::embed({step.setting.bindings.embedding, step.token_ids, step.streams, step.n_tokens,
                   step.hyper().n_streams},
                  step.workers());
}

void head_mix(const ForwardStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const HeadBinding& head = *step.head;
    k::cpu::hc_head(
        {head.fn, head.base, head.scale, head.norm, step.streams, step.floats(R::head_in),
         step.n_tokens, hyper.n_streams, hyper.hidden_size, hyper.rms_epsilon, hyper.hc_epsilon},
        step.workers());
}

void quantize_head_in(const ForwardStep& step) {
    quantize_for(step, kHeadIn, step.hyper().hidden_size, {step.setting.bindings.output.type});
}

void head(const ForwardStep& step) {
    const Bindings& bindings = step.setting.bindings;
    if (!bindings.staging_head.empty())
        head_by_tiles(step);
    else
        multiply(step, bindings.output, kHeadIn, bindings.logits);
}

void mtp_input(const ForwardStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const DraftHead& draft = step.setting.bindings.draft_head.front();
    k::cpu::mtp_input(
        {step.setting.bindings.embedding, draft.e_proj, draft.h_proj, draft.enorm, draft.hnorm,
         step.token_ids, step.streams, step.floats(R::mtp_streams), step.floats(R::mtp_norms),
         step.n_tokens, hyper.n_streams, hyper.hidden_size, hyper.rms_epsilon, step.setting.mode},
        step.workers());
}

}  // namespace plimsoll
