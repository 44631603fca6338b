#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/layout.hpp"
#include "planner/pack.hpp"
#include "planner/plan.hpp"

namespace plimsoll {

/// One device's part of a division.
struct DeviceShare {
    std::uint32_t layer_first = 0;  // layers [layer_first, layer_last)
    std::uint32_t layer_last = 0;
    std::uint64_t experts = 0;       // resident here for good
    std::uint64_t fp16_tensors = 0;  // the first so many candidates of these layers
    bool operator==(const DeviceShare&) const = default;
};

/// A candidate answer: everything that region sizes follow from.
struct Division {
    Grant grant;
    std::vector<DeviceShare> devices;
    std::uint64_t host_experts = 0;
    bool operator==(const Division&) const = default;
};

/// A region before it has a name and an offset.
struct RegionSpec {
    RegionKind kind = RegionKind::layer_dense;
    std::int32_t layer = kNoLayer;
    std::uint64_t size_bytes = 0;
    std::uint64_t slot_bytes = 0;
    std::uint64_t slot_count = 0;
    std::uint32_t expert_first = 0;
    std::uint32_t tensor_count = 0;  // layer_fp16: of the layer's candidates
};

[[nodiscard]] RegionClass class_of(RegionKind kind);

/// A matrix that could be kept as F16 beside its quantised form.
struct Fp16Candidate {
    std::int32_t layer = 0;
    TensorRole role = TensorRole::count;
    std::uint64_t size_bytes = 0;
};

/// Sizes of every region of a division. Each number the ladder compares and each region the plan
/// lists comes from the same functions here.
class Footprint {
public:
    /// `mtp` may be null. The three outlive this object.
    Footprint(const Model& model, const Model* mtp, const MachineFacts& machine);

    [[nodiscard]] std::vector<RegionSpec> device_regions(const Division& division,
                                                         std::size_t device) const;
    [[nodiscard]] std::vector<RegionSpec> host_regions(const Division& division) const;

    [[nodiscard]] std::uint64_t device_bytes(const Division& division, std::size_t device) const;
    [[nodiscard]] std::uint64_t device_expert_bytes(const Division& division,
                                                    std::size_t device) const;
    [[nodiscard]] std::uint64_t host_bytes(const Division& division) const;
    [[nodiscard]] std::uint64_t pinned_bytes(const Division& division) const;

    /// Experts of each layer on its device, on the host, and (the rest) in the file.
    struct ExpertSplit {
        std::vector<std::uint64_t> device;
        std::vector<std::uint64_t> host;
    };
    [[nodiscard]] ExpertSplit expert_split(const Division& division) const;

    /// The schedule of a device and its packing; computed once per distinct shape.
    struct PackedSchedule {
        Schedule schedule;
        Packing packing;
    };
    [[nodiscard]] const PackedSchedule& packed_schedule(const Division& division,
                                                        std::size_t device) const;

    [[nodiscard]] std::uint64_t experts_total() const;
    [[nodiscard]] std::uint64_t experts_of(const DeviceShare& share) const;
    [[nodiscard]] std::uint64_t slot_bytes(std::uint32_t layer) const { return slot_bytes_[layer]; }
    [[nodiscard]] std::uint64_t layer_dense_bytes(std::uint32_t layer) const {
        return dense_bytes_[layer];
    }

    /// Candidates of a device's layers, best seconds saved per byte first. A copy saves the
    /// decoding of each quantised element once a chunk, whatever its format, so all are equal by
    /// that measure and the order is that of the layers.
    [[nodiscard]] std::vector<Fp16Candidate> fp16_candidates_of(const DeviceShare& share) const;

    [[nodiscard]] const Model& model() const { return model_; }
    [[nodiscard]] const Model* mtp() const { return mtp_; }
    [[nodiscard]] const MachineFacts& machine() const { return machine_; }

private:
    template <class Sink>
    void visit_device(const Division& division, std::size_t device, Sink&& sink) const;
    template <class Sink>
    void visit_host(const Division& division, Sink&& sink) const;
    template <class Sink>
    void visit_kv(const Grant& grant, std::uint32_t layer, Sink&& sink) const;
    template <class Sink>
    void visit_experts(const Division& division, const DeviceShare& share, Sink&& sink) const;
    template <class Sink>
    void visit_mtp(const Grant& grant, Sink&& sink) const;
    void spread(std::uint64_t count, std::uint32_t layer_first, std::uint32_t layer_last,
                const std::vector<std::uint64_t>& room, std::vector<std::uint64_t>& out) const;

    const Model& model_;
    const Model* mtp_;
    const MachineFacts& machine_;
    std::vector<std::uint64_t> dense_bytes_;        // by layer
    std::vector<std::uint64_t> slot_bytes_;         // by layer
    std::vector<std::vector<Fp16Candidate>> fp16_;  // by layer
    std::uint64_t embedding_bytes_ = 0;
    std::uint64_t head_dense_bytes_ = 0;
    std::uint64_t head_output_bytes_ = 0;
    std::uint64_t mtp_dense_bytes_ = 0;
    std::uint64_t mtp_slot_bytes_ = 0;
    using ShapeKey = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, bool, bool,
                                std::size_t, std::uint32_t, std::uint32_t>;
    mutable std::map<ShapeKey, PackedSchedule> packed_;  // a cache of a pure function
};

}  // namespace plimsoll
