#include "tools/plan_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "planner/units.hpp"
#include "tools/plan_style.hpp"
#include "tools/plan_table.hpp"
#include "tools/plan_view.hpp"

namespace plimsoll {
namespace {

// Pixels. A picture of one width, as high as what it shows.
constexpr double kWidth = 960, kMargin = 24, kLabelWidth = 84, kBarHeight = 34, kLine = 20;
constexpr double kInner = kWidth - 2 * kMargin - kLabelWidth;
constexpr double kGap = 14;

// Of workspace buffers, told apart by neighbouring shades.
constexpr std::string_view kBufferShades[] = {"#dd8a1f", "#e3a552", "#c9772b", "#edc07f",
                                              "#b5651d"};

/// The document while it grows downward.
struct Picture {
    std::string body;
    double y = kMargin;
};

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&quot;"; break;
            default: out += c;
        }
    }
    return out;
}

struct Box {
    double x = 0, y = 0, width = 0, height = 0;
};

void draw_box(std::string& out, const Box& box, std::string_view fill, std::string_view title) {
    fmt::format_to(std::back_inserter(out),
                   "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
                   "fill=\"{}\"><title>{}</title></rect>\n",
                   box.x, box.y, box.width, box.height, fill, escaped(title));
}

void draw_text(std::string& out, double x, double y, std::string_view kind, std::string_view text) {
    fmt::format_to(std::back_inserter(out),
                   "<text x=\"{:.2f}\" y=\"{:.2f}\" class=\"{}\">{}</text>\n", x, y, kind,
                   escaped(text));
}

void heading(Picture& picture, std::string_view text) {
    picture.y += kGap;
    draw_text(picture.body, kMargin, picture.y + 14, "heading", text);
    picture.y += kLine + 6;
}

/// One bar a tier, all on one scale, so that a host of 128 GB looks its size beside a card of 24.
void draw_tiers(Picture& picture, const std::vector<Tier>& tiers) {
    std::uint64_t longest_bytes = 1;
    for (const Tier& tier : tiers) longest_bytes = std::max(longest_bytes, tier.total_bytes);
    const double scale = kInner / static_cast<double>(longest_bytes);
    for (const Tier& tier : tiers) {
        if (tier.is_file) continue;
        draw_text(picture.body, kMargin, picture.y + kBarHeight / 2 + 4, "label", tier.name);
        double x = kMargin + kLabelWidth;
        for (const TierPart& part : parts_of(tier)) {
            const double width = scale * static_cast<double>(part.size_bytes);
            draw_box(picture.body, {x, picture.y, width, kBarHeight}, part.style->hex,
                     fmt::format("{}: {}", part.style->label, format_bytes(part.size_bytes)));
            x += width;
        }
        picture.y += kBarHeight + kGap;
    }
}

/// Colour, name and size of each part, in as many columns as fit.
void draw_legend(Picture& picture, const std::vector<Tier>& tiers) {
    std::vector<TierPart> sums;
    for (const Tier& tier : tiers) {
        if (tier.is_file) continue;
        for (const TierPart& part : parts_of(tier)) {
            const auto at = std::find_if(sums.begin(), sums.end(), [&](const TierPart& sum) {
                return sum.style == part.style;
            });
            if (at == sums.end())
                sums.push_back(part);
            else
                at->size_bytes += part.size_bytes;
        }
    }
    constexpr std::size_t kColumns = 4;
    const double column_width = (kWidth - 2 * kMargin) / kColumns;
    for (std::size_t at = 0; at < sums.size(); ++at) {
        const double x = kMargin + column_width * static_cast<double>(at % kColumns);
        const double y = picture.y + kLine * static_cast<double>(at / kColumns);
        draw_box(picture.body, {x, y + 3, 12, 12}, sums[at].style->hex, sums[at].style->label);
        draw_text(picture.body, x + 18, y + 13, "small",
                  fmt::format("{} {}", sums[at].style->label, format_bytes(sums[at].size_bytes)));
    }
    picture.y += kLine * static_cast<double>(ceil_div(sums.size(), kColumns));
}

struct LayerExperts {
    std::uint64_t device = 0, host = 0, nvme = 0;
};

std::vector<LayerExperts> experts_by_layer(const Plan& plan) {
    std::vector<LayerExperts> layers(plan.n_layers);
    const auto count = [&](const Arena& arena, std::uint64_t LayerExperts::*member) {
        for (const Region& region : arena.regions)
            if (region.kind == RegionKind::layer_experts)
                layers[static_cast<std::size_t>(region.layer)].*member += region.slot_count;
    };
    for (const DevicePlan& device : plan.devices) count(device.arena, &LayerExperts::device);
    count(plan.host.arena, &LayerExperts::host);
    for (const NvmeLayer& row : plan.nvme.layers) layers[row.layer].nvme += row.expert_count;
    return layers;
}

/// A column a layer, the experts on devices at the bottom, then the host's, then those left in the
/// file.
void draw_experts(Picture& picture, const Plan& plan) {
    constexpr double kHeight = 96;
    const std::vector<LayerExperts> layers = experts_by_layer(plan);
    const double width = kInner / static_cast<double>(layers.size());
    const double left = kMargin + kLabelWidth;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        const LayerExperts& experts = layers[layer];
        const std::uint64_t total = experts.device + experts.host + experts.nvme;
        double bottom = picture.y + kHeight;
        const auto stack = [&](std::uint64_t count, std::string_view fill, std::string_view where) {
            if (count == 0) return;
            const double height = kHeight * static_cast<double>(count) / static_cast<double>(total);
            bottom -= height;
            draw_box(picture.body,
                     {left + width * static_cast<double>(layer), bottom, width - 1, height}, fill,
                     fmt::format("layer {}: {} experts {}", layer, count, where));
        };
        stack(experts.device, style_of(RegionClass::expert_weights).hex, "on the device");
        stack(experts.host, "#b9d7ee", "on the host");
        stack(experts.nvme, "#e8eaed", "in the file");
    }
    draw_text(picture.body, kMargin, picture.y + 12, "small", "all");
    draw_text(picture.body, kMargin, picture.y + kHeight, "small", "none");
    picture.y += kHeight + kLine;
    draw_text(picture.body, left, picture.y - 4, "small",
              fmt::format("layer 0 to {}; bottom up: on the device, on the host, in the file",
                          plan.n_layers - 1));
}

/// Time across, bytes upward: every buffer a rectangle, so that what shares bytes shows at a
/// glance.
void draw_workspace(Picture& picture, const DevicePlan& device) {
    constexpr double kHeight = 220;
    std::size_t last_op = 1;
    for (const WorkspaceBuffer& buffer : device.workspace)
        last_op = std::max<std::size_t>(last_op, buffer.lifetime.last_op);
    const double per_op = kInner / static_cast<double>(last_op);
    const double per_byte =
        kHeight / static_cast<double>(std::max<std::uint64_t>(1, device.workspace_packed_bytes));
    const double left = kMargin + kLabelWidth, bottom = picture.y + kHeight;
    draw_box(picture.body, {left, picture.y, kInner, kHeight}, "#faf6ef", "unused at that op");
    std::size_t shade = 0;
    for (const WorkspaceBuffer& buffer : device.workspace) {
        const double height = per_byte * static_cast<double>(buffer.size_bytes);
        const double top = bottom - per_byte * static_cast<double>(buffer.offset_bytes) - height;
        const auto first = static_cast<double>(buffer.lifetime.first_op);
        const auto span = static_cast<double>(buffer.lifetime.last_op) - first;
        draw_box(picture.body, {left + per_op * first, top, per_op * span, height},
                 kBufferShades[shade++ % std::size(kBufferShades)],
                 fmt::format("{}: {}, ops {} to {}", buffer.name, format_mib(buffer.size_bytes),
                             buffer.lifetime.first_op, buffer.lifetime.last_op));
    }
    draw_text(picture.body, kMargin, picture.y + 12, "small",
              format_mib(device.workspace_packed_bytes));
    draw_text(picture.body, kMargin, bottom, "small", "0");
    picture.y = bottom + kLine;
    draw_text(picture.body, left, picture.y - 4, "small",
              fmt::format("op 0 to {} of a step", last_op));
}

std::string document(const Picture& picture) {
    constexpr std::string_view kStyle =
        "text{font-family:system-ui,sans-serif;fill:#22272e;font-size:13px}"
        ".title{font-size:17px;font-weight:600}.heading{font-size:14px;font-weight:600}"
        ".small{font-size:12px;fill:#57606a}rect{stroke:#ffffff;stroke-width:0.4}";
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" "
        "height=\"{1:.0f}\">\n<style>{2}</style>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{3}</svg>\n",
        kWidth, picture.y + kMargin, kStyle, picture.body);
}

}  // namespace

std::string plan_svg(const Plan& plan) {
    Picture picture;
    draw_text(picture.body, kMargin, picture.y + 14, "title", plan_title(plan));
    picture.y += kLine + 4;
    if (plan.refusal) {
        draw_text(picture.body, kMargin, picture.y + 14, "label",
                  fmt::format("{} is short by {}", plan.refusal->pool,
                              format_mib(plan.refusal->short_bytes)));
        picture.y += kLine;
        return document(picture);
    }
    draw_text(
        picture.body, kMargin, picture.y + 12, "small",
        fmt::format("{} tokens of context, chunk {}, about {:.1f} tokens/s",
                    format_count(plan.grant.context_tokens), format_count(plan.grant.chunk_tokens),
                    plan.predicted.decode_tokens_per_s));
    picture.y += kLine;
    const std::vector<Tier> tiers = tiers_of(plan);
    heading(picture, "Memory, one scale");
    draw_tiers(picture, tiers);
    draw_legend(picture, tiers);
    heading(picture, "Experts by layer");
    draw_experts(picture, plan);
    for (const DevicePlan& device : plan.devices) {
        heading(picture, fmt::format("Workspace of {}, by lifetime", device.facts.name));
        draw_workspace(picture, device);
    }
    return document(picture);
}

}  // namespace plimsoll
