#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "planner/cost.hpp"
#include "planner/machine.hpp"
#include "planner/op_cost.hpp"
#include "runtime/engine.hpp"
#include "tools/bench_walk.hpp"

namespace plimsoll {

inline constexpr const char* kBenchHeader =
    "ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,kvcache_bytes";
/// The row as CSV, without a newline; a rate of nothing is 0.
[[nodiscard]] std::string csv_row(const BenchRow& row);

/// The steps of a row whose costs `rate_table` takes: its last chunk, and a token at its context.
[[nodiscard]] StepPair steps_of(const BenchRow& row, std::uint64_t chunk_tokens);

/// Measured rates beside predicted ones, and the share of the rate at which the device's memory and
/// tensor rates alone would bound a step. `costs` are those of `steps_of` the rows.
[[nodiscard]] std::string rate_table(const DeviceFacts& device, std::span<const BenchRow> rows,
                                     std::span<const StepPairCost> costs);

/// What the rows reach of the device's rates in all, by the names that a device file has for it.
/// Nothing of a plan whose steps wait for the host.
[[nodiscard]] std::string share_lines(const DeviceFacts& device, std::span<const BenchRow> rows,
                                      std::span<const StepPairCost> costs);

/// What a step's ops took by kind, beside what they must move and compute. `step` is what was
/// timed.
[[nodiscard]] std::string op_time_table(const std::string& title, const DeviceFacts& device,
                                        const PricedStep& step, std::span<const OpTime> times);

}  // namespace plimsoll
