#pragma once

#include <cstdint>
#include <vector>

#include "tests/runtime/engine_runs.hpp"
#include "tests/runtime/model_files.hpp"

namespace plimsoll::test {

/// How two sets of logits compare, row by row.
struct Agreement {
    double largest_difference = 0;
    double within_1e2 = 0;   // share of rows whose largest difference is at most 1e-2
    double within_half = 0;  // the same for 0.5
    double cosine_median = 0;
    double cosine_low = 0;    // 5 % quantile
    double top1 = 0;          // share of rows with the same best token
    double top1_decided = 0;  // of those where the reference's best is 0.5 above its second
};

/// `rows` names the positions of `expected`; `actual` has every position from 0 on, and only
/// positions that it has are compared.
Agreement compare(const std::vector<float>& expected, const std::vector<std::uint64_t>& rows,
                  const std::vector<float>& actual, std::uint32_t vocab);

/// What must hold; measured limits of a correct program (see README.md of the data).
enum class Limits { exact, rounded, packed, quantised };

/// Both heads of a case, the draft head only where there are logits of it.
void expect_within(Limits limits, const GoldenCase& golden, const Logits& logits);

}  // namespace plimsoll::test
