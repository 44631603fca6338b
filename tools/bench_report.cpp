#include "tools/bench_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/units.hpp"
#include "tools/text_layout.hpp"

namespace plimsoll {
namespace {

double per_second(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

double prefill_rate(const BenchRow& row) {
    return per_second(static_cast<double>(row.prefill_tokens), row.prefill_seconds);
}

double decode_rate(const BenchRow& row) {
    return per_second(static_cast<double>(row.gen_tokens), row.gen_seconds);
}

/// Seconds that the device's rates allow at least; a rate of 0 is unknown and bounds nothing.
double bound_seconds(const DeviceFacts& device, double bytes, double flops) {
    return std::max(per_second(bytes, device.memory_bandwidth_bytes_per_s),
                    per_second(flops, device.fp16_flops_per_s));
}

double bound_seconds(const DeviceFacts& device, const StepCost& cost) {
    return bound_seconds(device, cost.memory_bytes, cost.flops);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

/// Nothing where nothing was measured.
std::string rate_or_dash(double rate) { return rate > 0 ? format_rate(rate) : "-"; }
std::string share_or_dash(double rate, double seconds) {
    return rate > 0 ? percent(rate * seconds) : "-";
}

struct KindSum {
    std::uint32_t count = 0;
    double seconds = 0;
    OpCost cost;

    KindSum& operator+=(const KindSum& other) {
        count += other.count;
        seconds += other.seconds;
        cost += other.cost;
        return *this;
    }
};
using KindSums = std::array<KindSum, static_cast<std::size_t>(OpKind::count)>;

KindSums sums_of(const PricedStep& step, std::span<const OpTime> times) {
    KindSums sums;
    for (const OpTime& time : times)
        sums[static_cast<std::size_t>(time.kind)] +=
            {1, time.seconds, op_cost(step, time.kind, time.layer)};
    return sums;
}

constexpr const char* kOpRow = "{:<24}{:>6}{:>11}{:>9}{:>11}{:>9}{:>10}{:>10}{:>10}\n";

std::string op_row(std::string_view name, const KindSum& sum, double total_seconds,
                   const DeviceFacts& device) {
    const auto fixed = [](double value, int digits) {
        return fmt::format("{:.{}f}", value, digits);
    };
    return fmt::format(
        kOpRow, name, sum.count, fixed(sum.seconds * 1e6, 1),
        percent(per_second(sum.seconds, total_seconds)), fixed(sum.cost.bytes / 1e6, 2),
        fixed(per_second(sum.cost.bytes, sum.seconds) / 1e9, 1), fixed(sum.cost.flops / 1e9, 3),
        fixed(per_second(sum.cost.flops, sum.seconds) / 1e12, 2),
        percent(per_second(bound_seconds(device, sum.cost.bytes, sum.cost.flops), sum.seconds)));
}

}  // namespace

std::string csv_row(const BenchRow& row) {
    return fmt::format("{},{},{:.2f},{},{:.2f},{}", row.ctx_tokens, row.prefill_tokens,
                       prefill_rate(row), row.gen_tokens, decode_rate(row), row.kvcache_bytes);
}

StepPair steps_of(const BenchRow& row, std::uint64_t chunk_tokens) {
    return {.context_tokens = row.ctx_tokens,
            .chunk_tokens = std::min(chunk_tokens, row.prefill_tokens)};
}

std::string rate_table(const DeviceFacts& device, std::span<const BenchRow> rows,
                       std::span<const StepPairCost> costs) {
    constexpr const char* kRow = "{:>10}{:>11}{:>11}{:>11}{:>12}{:>11}{:>11}\n";
    std::string text = fmt::format(kRow, "context", "prefill", "predicted", "roofline", "decode",
                                   "predicted", "roofline");
    for (std::size_t at = 0; at < rows.size(); ++at) {
        const BenchRow& row = rows[at];
        const StepPairCost& cost = costs[at];
        // A row's rate is of all its chunks, the costs of its last one.
        const auto chunk_tokens = static_cast<double>(cost.prefill_tokens);
        text += fmt::format(
            kRow, format_count(row.ctx_tokens), rate_or_dash(prefill_rate(row)),
            format_rate(chunk_tokens / cost.prefill.seconds),
            share_or_dash(prefill_rate(row), bound_seconds(device, cost.prefill) / chunk_tokens),
            rate_or_dash(decode_rate(row)), format_rate(1 / cost.decode.seconds),
            share_or_dash(decode_rate(row), bound_seconds(device, cost.decode)));
    }
    return text;
}

std::string share_lines(const DeviceFacts& device, std::span<const BenchRow> rows,
                        std::span<const StepPairCost> costs) {
    double bytes = 0, flops = 0, decode_seconds = 0, prefill_seconds = 0;
    // What waits for a link says little of a device.
    const auto streams = [](const StepPairCost& cost) { return cost.decode.link_bytes > 0; };
    if (std::any_of(costs.begin(), costs.end(), streams)) return "";
    for (std::size_t at = 0; at < rows.size(); ++at) {
        bytes += costs[at].decode.memory_bytes * static_cast<double>(rows[at].gen_tokens);
        decode_seconds += rows[at].gen_seconds;
        flops += costs[at].prefill.flops / static_cast<double>(costs[at].prefill_tokens) *
                 static_cast<double>(rows[at].prefill_tokens);
        prefill_seconds += rows[at].prefill_seconds;
    }
    std::string text;
    const double bandwidth = device.memory_bandwidth_bytes_per_s;
    if (const double rate = per_second(bytes, decode_seconds); rate > 0 && bandwidth > 0)
        text += fmt::format("decode moves {:.1f} of {:.1f} GB/s: decode_bandwidth_share: {:.3f}\n",
                            rate / 1e9, bandwidth / 1e9, rate / bandwidth);
    const double peak = device.fp16_flops_per_s;
    if (const double rate = per_second(flops, prefill_seconds); rate > 0 && peak > 0)
        text += fmt::format(
            "prefill computes {:.1f} of {:.1f} TFLOP/s: prefill_compute_share: {:.3f}\n",
            rate / 1e12, peak / 1e12, rate / peak);
    return text;
}

std::string op_time_table(const std::string& title, const DeviceFacts& device,
                          const PricedStep& step, std::span<const OpTime> times) {
    const KindSums sums = sums_of(step, times);
    KindSum total;
    for (const KindSum& sum : sums) total += sum;
    std::string text = title + "\n" +
                       fmt::format(kOpRow, "op", "calls", "us", "of all", "MB", "GB/s", "GFLOP",
                                   "TFLOP/s", "roofline");
    for (std::size_t kind = 0; kind < sums.size(); ++kind)
        if (sums[kind].count != 0)
            text +=
                op_row(op_kind_name(static_cast<OpKind>(kind)), sums[kind], total.seconds, device);
    return text + op_row("all", total, total.seconds, device);
}

}  // namespace plimsoll
