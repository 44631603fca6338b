#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.hpp"
#include "planner/plan.hpp"
#include "runtime/arena.hpp"
#include "runtime/tensor_load.hpp"

namespace plimsoll {

/// Weights of a layer outside its routed experts; null where its kind has none. Shapes are those of
/// the ops' parameters (kernels/ops.hpp).
struct LayerWeights {
    kernels::WeightMatrix hc_attn_fn, hc_ffn_fn;
    kernels::WeightMatrix q_a, q_b, kv, output_a, output_b;
    kernels::WeightMatrix compressor_kv, compressor_gate, compressor_ape;
    kernels::WeightMatrix indexer_q_b, indexer_proj;
    kernels::WeightMatrix indexer_compressor_kv, indexer_compressor_gate, indexer_compressor_ape;
    kernels::WeightMatrix router;
    kernels::WeightMatrix shared_gate, shared_up, shared_down;
    const float* hc_attn_scale = nullptr;  // [3]
    const float* hc_attn_base = nullptr;   // [n_streams * (n_streams + 2)]
    const float* hc_ffn_scale = nullptr;
    const float* hc_ffn_base = nullptr;
    const float* attn_norm = nullptr;                // [hidden]
    const float* q_a_norm = nullptr;                 // [q_lora_rank]
    const float* kv_norm = nullptr;                  // [head_dim]
    const float* sinks = nullptr;                    // [n_heads]
    const float* compressor_norm = nullptr;          // [head_dim]
    const float* indexer_compressor_norm = nullptr;  // [indexer_head_dim]
    const float* ffn_norm = nullptr;                 // [hidden]
    const float* router_bias = nullptr;              // [n_experts]
    const std::int32_t* router_table = nullptr;      // [vocab, n_experts_used]
};

/// What a layer remembers of the tokens before: regions of the plan, of session 0.
struct LayerCache {
    kernels::KvRows window;
    kernels::KvRows rows;        // compressed
    kernels::IndexerRows index;  // compressed
    void* state = nullptr;       // kernels::compressor_state_bytes
    void* index_state = nullptr;
};

/// Where the routed experts of a layer are. A slot holds gate, up and down, each aligned.
struct LayerExperts {
    kernels::WeightMatrix gate, up, down;  // shapes and types; data is null
    std::uint64_t up_offset_bytes = 0;     // in a slot
    std::uint64_t down_offset_bytes = 0;
    std::uint64_t slot_bytes = 0;
    std::span<std::byte> device_slots;  // ids [0, n) in slot order
    std::span<std::byte> host_slots;    // ids [host_first, host_first + n)
    std::uint32_t host_first = 0;
    std::uint32_t first_item = 0;  // number of the layer's expert 0 among all experts
    std::size_t pool = 0;          // of Bindings::pools, where host_slots are not empty
    bool is_draft_head = false;
};

/// A weight of the layer once more, as float16 rows [n_out, n_in]: the plan's fp16 cache.
struct Fp16Copy {
    const void* of = nullptr;  // the weight's data
    std::byte* data = nullptr;
};

struct LayerBinding {
    LayerWeights weights;
    std::vector<Fp16Copy> fp16_copies;
    LayerCache cache;
    LayerExperts experts;
    kernels::RopeTable rope;
    std::uint32_t ratio = 0;
    float swiglu_clamp = 0;
    /// A streamed layer's tensors on the host, which come to `Bindings::staging_dense` before its
    /// ops run; empty where they stay on the device.
    std::span<const std::byte> streamed_from;
};

/// Mixes the streams into the head's input.
struct HeadBinding {
    kernels::WeightMatrix fn;  // [n_streams, n_streams * hidden]
    const float* base = nullptr;
    const float* scale = nullptr;
    const float* norm = nullptr;
};

struct DraftHead {
    LayerBinding layer;
    HeadBinding head;
    kernels::WeightMatrix e_proj, h_proj;
    const float* enorm = nullptr;
    const float* hnorm = nullptr;
    float* hidden = nullptr;  // [n_streams, hidden] of the last token fed
};

/// Start of every buffer of a phase, null where it has none.
using PhaseBuffers = std::array<std::byte*, kBufferRoleCount>;

struct ExpertPool {
    std::span<std::byte> bytes;
    std::uint64_t slot_bytes = 0;
};

/// Typed pointers into the arenas of a plan: all that running its schedule needs to know of memory.
struct Bindings {
    kernels::WeightMatrix embedding;  // wherever it is
    kernels::WeightMatrix output;     // on the host where `staging_head` is not null
    std::span<std::byte> staging_head;
    std::uint32_t head_tile_rows = 0;  // rows of `output` that staging_head takes
    std::span<std::byte> staging_dense;
    std::span<std::byte> staging_ring;    // pinned host memory beside a GPU; empty on the CPU
    std::span<std::byte> gemm_workspace;  // cuBLAS's; empty on the CPU
    std::span<std::byte> workspace;       // all of it; what it holds is by phase in `buffers`
    HeadBinding head;
    std::vector<LayerBinding> layers;
    std::vector<DraftHead> draft_head;  // one, or none
    std::vector<ExpertPool> pools;
    std::array<PhaseBuffers, kPhaseKindCount> buffers{};
    float* logits = nullptr;  // [logits_rows, vocab] of session 0
    std::uint32_t logits_rows = 0;
    /// Radians a position of each pair of dims; RopeTables point here.
    std::vector<double> plain_frequencies, yarn_frequencies;
};

/// A quantised matrix to be decoded into the fp16 cache once it is loaded.
struct Fp16Fill {
    kernels::WeightMatrix weight;
    std::byte* destination = nullptr;
};

struct BoundModel {
    Bindings bindings;
    std::vector<TensorLoad> loads;  // what the regions must be filled with first
    std::vector<Fp16Fill> fp16_fills;
};

/// Takes every region of a plan of one device and finds each tensor's place in it. The models are
/// those that the plan was made from; they and the arenas outlive the result. Error, kind bad_file,
/// for a shape that the kernels are not built for.
[[nodiscard]] Result<BoundModel> bind_model(const Plan& plan, const Schedule& schedule,
                                            const Model& model, const Model* mtp,
                                            ArenaMemory& device, ArenaMemory& host);

}  // namespace plimsoll
