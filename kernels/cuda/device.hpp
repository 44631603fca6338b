#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/launch.hpp"

/// The only place that asks CUDA for contexts, memory, copies and graphs. No CUDA types, so that
/// hosts are compiled without nvcc.
namespace plimsoll::kernels::cuda {

/// Why a call failed, in CUDA's words; an empty message where it did not. `is_lost`: the context is
/// dead, and with it everything on the device.
struct DeviceProblem {
    std::string message;
    bool is_lost = false;

    [[nodiscard]] bool is_none() const { return message.empty(); }
};

/// Bytes of device memory or of pinned host memory, given back with this object.
class DeviceMemory {
public:
    DeviceMemory() = default;
    ~DeviceMemory();
    DeviceMemory(DeviceMemory&& other) noexcept;
    DeviceMemory& operator=(DeviceMemory&& other) noexcept;

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }

private:
    friend class Device;
    std::byte* data_ = nullptr;
    std::uint64_t size_bytes_ = 0;
    bool is_pinned_host_ = false;
};

/// Launches recorded once and replayed as a whole.
class Graph {
public:
    Graph();
    ~Graph();
    Graph(Graph&&) noexcept;
    Graph& operator=(Graph&&) noexcept;

    [[nodiscard]] bool is_empty() const { return handle_ == nullptr; }
    [[nodiscard]] std::uint64_t n_nodes() const { return n_nodes_; }

private:
    friend class Device;
    void* handle_ = nullptr;
    std::uint64_t n_nodes_ = 0;
};

/// One GPU with its context, all of the program's kernels loaded there, a stream that computes and
/// one that copies. Calls that only enqueue report their failures at the next `wait`.
class Device {
public:
    /// Makes the context on GPU `index`, as CUDA counts.
    [[nodiscard]] static DeviceProblem open(std::uint32_t index, Device& out);
    Device();
    ~Device();
    Device(Device&&) noexcept;
    Device& operator=(Device&&) noexcept;

    [[nodiscard]] std::uint64_t free_bytes() const;   // now
    [[nodiscard]] std::uint64_t total_bytes() const;  // as the driver has it
    [[nodiscard]] Launch launch(StepState* state) const;

    /// One allocation of exactly so many bytes; zero bytes are none.
    [[nodiscard]] DeviceProblem allocate(std::uint64_t size_bytes, DeviceMemory& out);
    [[nodiscard]] DeviceProblem allocate_pinned(std::uint64_t size_bytes, DeviceMemory& out);
    /// Allocations made so far, of both kinds.
    [[nodiscard]] std::uint64_t n_allocations() const;

    // On the computing stream. Host memory is pinned and stays as it is until `wait`.
    void copy_to_device(void* to, const void* from_host, std::uint64_t size_bytes);
    void copy_to_host(void* to_host, const void* from, std::uint64_t size_bytes);
    /// Between device memory, or to pinned memory that the device writes to.
    void copy_within_device(void* to, const void* from, std::uint64_t size_bytes);
    void fill_zero(void* to, std::uint64_t size_bytes);
    [[nodiscard]] DeviceProblem wait();

    // On the copying stream, for loading: `slot` is one of up to kLoadSlots parts of a staging
    // area.
    static constexpr std::uint32_t kLoadSlots = 8;
    /// Copies behind everything that computes on this slot's contents now.
    void copy_slot_to_device(std::uint32_t slot, void* to, const void* from_host,
                             std::uint64_t size_bytes);
    /// What computes from here on comes behind the slot's copy.
    void compute_behind_slot(std::uint32_t slot);
    /// What has been enqueued to compute so far is what reads the slot.
    void mark_slot_used(std::uint32_t slot);
    /// Waits until the slot's copy is done: its host memory may be filled again.
    [[nodiscard]] DeviceProblem wait_for_slot_copy(std::uint32_t slot);

    // Between these, launches on the computing stream are recorded and not made.
    void begin_capture();
    [[nodiscard]] DeviceProblem end_capture(Graph& out);
    void launch(const Graph& graph);

    /// Seconds between the two calls as the device has it. The second waits.
    void start_timing();
    [[nodiscard]] double stop_timing_seconds();

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace plimsoll::kernels::cuda
