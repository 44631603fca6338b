#include "tools/plan_reads.hpp"

#include "planner/layout.hpp"

namespace plimsoll {
namespace {

constexpr TensorRole kExpertRoles[] = {TensorRole::ffn_gate_exps, TensorRole::ffn_up_exps,
                                       TensorRole::ffn_down_exps};

class Reads {
public:
    explicit Reads(const Model& model) : model_(model) {}

    void add_region(const Region& region) {
        if (region.kind == RegionKind::layer_experts)
            add_experts(region.layer, region.expert_first, region.slot_count);
        else if (region.kind == RegionKind::mtp_experts)
            add_experts(0, 0, region.slot_count);
        else if (is_dense(region.kind))
            for (const TensorPlace& place : dense_layout(model_, region.kind, region.layer))
                ranges_.push_back({place.tensor->file_offset_bytes, place.tensor->size_bytes});
    }

    void add_experts(std::int32_t layer, std::uint64_t first, std::uint64_t count) {
        for (const TensorRole role : kExpertRoles) {
            const Tensor& tensor = *model_.find(role, layer);
            const std::uint64_t expert_bytes = tensor.size_bytes / tensor.dims[2];
            ranges_.push_back(
                {tensor.file_offset_bytes + first * expert_bytes, count * expert_bytes});
        }
    }

    [[nodiscard]] std::vector<FileRange> take() { return std::move(ranges_); }

private:
    static bool is_dense(RegionKind kind) {
        return kind == RegionKind::layer_dense || kind == RegionKind::head_dense ||
               kind == RegionKind::head_output || kind == RegionKind::embedding ||
               kind == RegionKind::mtp_dense;
    }

    const Model& model_;
    std::vector<FileRange> ranges_;
};

bool is_of_draft_head(RegionKind kind) {
    return kind == RegionKind::mtp_dense || kind == RegionKind::mtp_experts;
}

}  // namespace

std::vector<FileRange> plan_reads(const Plan& plan, const Model& model) {
    Reads reads(model);
    const auto add_arena = [&](const Arena& arena) {
        for (const Region& region : arena.regions)
            if (is_of_draft_head(region.kind) == (model.kind == ModelKind::mtp))
                reads.add_region(region);
    };
    for (const DevicePlan& device : plan.devices) add_arena(device.arena);
    add_arena(plan.host.arena);
    if (model.kind == ModelKind::main)
        for (const NvmeLayer& layer : plan.nvme.layers)
            reads.add_experts(static_cast<std::int32_t>(layer.layer), layer.expert_first,
                              layer.expert_count);
    return reads.take();
}

}  // namespace plimsoll
