#pragma once

#include <cstdint>
#include <string>

#include "planner/plan.hpp"

namespace plimsoll::test {

/// DeepSeek-V4-Flash as its published q2 and q4 files hold it, and its draft head; built once.
const Model& flash_q2();
const Model& flash_q4();
const Model& flash_mtp();

/// A card of the case book: sizes in MiB, free after context and before the reserve.
struct Card {
    const char* name;
    std::uint64_t total_mib;
    std::uint64_t free_mib;
    std::uint64_t host_mib;
    std::size_t count = 1;
};
inline constexpr Card kP8{"p8", 8'188, 7'600, 32'000};
inline constexpr Card kP12{"p12", 12'227, 11'600, 32'000};
inline constexpr Card kP24{"p24", 24'126, 23'700, 131'072};
inline constexpr Card kP5090x2{"p5090x2", 32'607, 31'900, 131'072, 2};
inline constexpr Card kP96{"p96", 97'250, 96'800, 51'200};
inline constexpr Card kP141{"p141", 143'156, 142'630, 131'072};

MachineFacts machine_of(const Card& card);

/// Defaults with the draft head named, as `fit flash-q2 --mtp flash-mtp` asks.
Request request_with_mtp();

/// The plan, or a test failure.
Plan plan_or_fail(const Model& model, const Model* mtp, const MachineFacts& machine,
                  const Request& request);

/// What `is_worse` compares, recomputed here from the plan alone: fits, dense bytes, context, chunk
/// up to 2,048, experts on devices, MTP, embedding on the device, chunk, fp16 bytes.
std::vector<std::uint64_t> rank_of_plan(const Plan& plan);

std::uint64_t class_bytes(const Plan& plan, RegionClass cls);
const Feature& feature(const Plan& plan, std::string_view name);

}  // namespace plimsoll::test
