#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "planner/op_cost.hpp"
#include "planner/plan.hpp"
#include "runtime/engine.hpp"

namespace plimsoll {

/// One frontier, measured.
struct BenchRow {
    std::uint64_t ctx_tokens = 0;
    std::uint64_t prefill_tokens = 0;  // fed to get here from what was there before
    double prefill_seconds = 0;
    std::uint64_t gen_tokens = 0;
    double gen_seconds = 0;
    std::uint64_t kvcache_bytes = 0;
};

inline constexpr const char* kBenchHeader =
    "ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,kvcache_bytes";
/// The row as CSV, without a newline; a rate of nothing is 0.
[[nodiscard]] std::string csv_row(const BenchRow& row);

/// The plan's predictions beside the rows, and the share of the bound that memory sets to decode.
[[nodiscard]] std::string prediction_table(const Plan& plan, const Model& model,
                                           const Schedule& schedule,
                                           std::span<const BenchRow> rows);

/// What a step's ops took by kind, beside what they must move and compute. `step` is what was
/// timed.
[[nodiscard]] std::string op_table_text(const std::string& title, const DeviceFacts& device,
                                        const PricedStep& step, std::span<const OpTime> times);

}  // namespace plimsoll
