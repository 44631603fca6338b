#include "tools/bench_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/units.hpp"
#include "tools/text_layout.hpp"

namespace plimsoll {
namespace {

double rate(std::uint64_t tokens, double seconds) {
    return tokens == 0 || seconds <= 0 ? 0 : static_cast<double>(tokens) / seconds;
}

struct KindSum {
    std::uint32_t count = 0;
    double seconds = 0;
    OpCost cost;
};
using KindSums = std::array<KindSum, static_cast<std::size_t>(OpKind::count)>;

KindSums sums_of(const PricedStep& step, std::span<const OpTime> times) {
    KindSums sums;
    for (const OpTime& time : times) {
        KindSum& sum = sums[static_cast<std::size_t>(time.kind)];
        const OpCost cost = op_cost(step, time.kind, time.layer);
        ++sum.count;
        sum.seconds += time.seconds;
        sum.cost.bytes += cost.bytes;
        sum.cost.flops += cost.flops;
    }
    return sums;
}

/// Seconds that the device's peak rates allow.
double bound_seconds(const DeviceFacts& device, const OpCost& cost) {
    const double memory = device.memory_bandwidth_bytes_per_s > 0
                              ? cost.bytes / device.memory_bandwidth_bytes_per_s
                              : 0;
    const double compute = device.fp16_flops_per_s > 0 ? cost.flops / device.fp16_flops_per_s : 0;
    return std::max(memory, compute);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string row_text(std::string_view name, const KindSum& sum, double total_seconds,
                     const DeviceFacts& device) {
    return fmt::format("{:<24}{:>6}{:>12.1f}{:>9}{:>9.0f}{:>9.1f}{:>11}\n", name, sum.count,
                       sum.seconds * 1e6, percent(sum.seconds / total_seconds),
                       sum.cost.bytes / sum.seconds / 1e9, sum.cost.flops / sum.seconds / 1e12,
                       percent(bound_seconds(device, sum.cost) / sum.seconds));
}

/// Bytes that one token at a position must move.
double decode_bytes(const Plan& plan, const Model& model, const Schedule& schedule,
                    std::uint64_t position) {
    const bool is_gpu = schedule.phase(PhaseKind::decode_embed).present;
    const PricedStep step{
        schedule, model, plan.grant.kv_format, is_gpu ? 1 : plan.grant.chunk_tokens, 1, position};
    double bytes = 0;
    const auto add = [&](PhaseKind kind, std::int32_t layer) {
        const Phase& phase = schedule.phase(kind);
        for (std::uint32_t op = phase.first_op; op < phase.last_op; ++op)
            bytes += op_cost(step, schedule.ops[op].kind, layer).bytes;
    };
    for (std::uint32_t layer = 0; layer < model.hyper.n_layers; ++layer) {
        const std::uint32_t ratio = model.hyper.compress_ratios[layer];
        add(is_gpu ? decode_layer_phase(ratio) : layer_phase(ratio),
            static_cast<std::int32_t>(layer));
    }
    add(is_gpu ? PhaseKind::decode_head : PhaseKind::head, kNoLayer);
    return bytes;
}

}  // namespace

std::string csv_row(const BenchRow& row) {
    return fmt::format("{},{},{:.2f},{},{:.2f},{}", row.ctx_tokens, row.prefill_tokens,
                       rate(row.prefill_tokens, row.prefill_seconds), row.gen_tokens,
                       rate(row.gen_tokens, row.gen_seconds), row.kvcache_bytes);
}

std::string prediction_table(const Plan& plan, const Model& model, const Schedule& schedule,
                             std::span<const BenchRow> rows) {
    const DeviceFacts& device = plan.devices.front().facts;
    std::string text = fmt::format("{:>10}{:>12}{:>12}{:>12}{:>12}{:>16}\n", "context", "prefill",
                                   "predicted", "decode", "predicted", "of the bound");
    for (const BenchRow& row : rows) {
        const double decode = rate(row.gen_tokens, row.gen_seconds);
        const double bound = device.memory_bandwidth_bytes_per_s /
                             decode_bytes(plan, model, schedule, row.ctx_tokens);
        text +=
            fmt::format("{:>10}{:>12}{:>12}{:>12}{:>12}{:>16}\n", format_count(row.ctx_tokens),
                        format_rate(rate(row.prefill_tokens, row.prefill_seconds)),
                        format_rate(plan.predicted.prefill_tokens_per_s), format_rate(decode),
                        format_rate(plan.predicted.decode_tokens_per_s), percent(decode / bound));
    }
    return text +
           "tokens/s; the bound is reading each token's bytes once at the device file's "
           "memory bandwidth\n";
}

std::string op_table_text(const std::string& title, const DeviceFacts& device,
                          const PricedStep& step, std::span<const OpTime> times) {
    const KindSums sums = sums_of(step, times);
    KindSum total;
    for (const KindSum& sum : sums) {
        total.count += sum.count;
        total.seconds += sum.seconds;
        total.cost.bytes += sum.cost.bytes;
        total.cost.flops += sum.cost.flops;
    }
    std::string text = fmt::format("{}\n{:<24}{:>6}{:>12}{:>9}{:>9}{:>9}{:>11}\n", title, "op",
                                   "calls", "us", "of all", "GB/s", "TFLOP/s", "roofline");
    for (std::size_t kind = 0; kind < sums.size(); ++kind)
        if (sums[kind].count != 0)
            text += row_text(op_kind_name(static_cast<OpKind>(kind)), sums[kind], total.seconds,
                             device);
    return text + row_text("all", total, total.seconds, device);
}

}  // namespace plimsoll
