#include <algorithm>
#include <string>

#include "kernels/cuda/ops.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

/// Experts of each token, all different; every fourth token takes the first ones, so that lists are
/// uneven and some may be empty.
std::vector<std::int32_t> random_experts(Random& random, std::uint32_t n_tokens,
                                         std::uint32_t n_experts, std::uint32_t k) {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> all(n_experts);
    for (std::uint32_t e = 0; e < n_experts; ++e) all[e] = static_cast<std::int32_t>(e);
    for (std::uint32_t t = 0; t < n_tokens; ++t) {
        if (t % 4 == 0) std::sort(all.begin(), all.end());
        for (std::uint32_t i = 0; t % 4 != 0 && i < k; ++i)
            std::swap(all[i], all[i + random.below(n_experts - i)]);
        ids.insert(ids.end(), all.begin(), all.begin() + k);
    }
    return ids;
}

/// Lists of group_by_expert on the device.
struct DeviceGroups {
    DeviceArray<std::int32_t> offsets;
    DeviceArray<std::int32_t> assignments;
    DeviceArray<std::int32_t> tiles;
    DeviceGroups(std::uint32_t n_assignments, std::uint32_t n_experts)
        : offsets(n_experts + 1),
          assignments(n_assignments),
          tiles(1 + 2 * cuda::expert_tiles_max(n_assignments, n_experts)) {}
};

struct HostGroups {
    std::vector<std::int32_t> offsets;
    std::vector<std::int32_t> assignments;
};

HostGroups group_on_host(const std::vector<std::int32_t>& ids, std::uint32_t n_experts,
                         std::uint32_t k) {
    HostGroups groups{std::vector<std::int32_t>(n_experts + 1),
                      std::vector<std::int32_t>(ids.size())};
    cpu::group_by_expert({ids.data(), groups.offsets.data(), groups.assignments.data(),
                          static_cast<std::uint32_t>(ids.size()) / k, n_experts, k});
    return groups;
}

void expect_tiles(const std::vector<std::int32_t>& tiles, const HostGroups& groups,
                  const std::string& what) {
    std::vector<std::int32_t> expected{0};
    for (std::size_t e = 0; e + 1 < groups.offsets.size(); ++e)
        for (std::int32_t at = groups.offsets[e]; at < groups.offsets[e + 1];
             at += static_cast<std::int32_t>(cuda::kExpertTileRows)) {
            ++expected[0];
            expected.push_back(static_cast<std::int32_t>(e));
            expected.push_back(at);
        }
    ASSERT_LE(expected.size(), tiles.size()) << what;
    expect_equal(
        std::vector(tiles.begin(), tiles.begin() + static_cast<std::ptrdiff_t>(expected.size())),
        expected, what);
}

TEST(GroupByExpert, ListsAreTheCpus) {
    PLIMSOLL_NEEDS_GPU();
    Random random(3);
    struct Shape {
        std::uint32_t n_tokens, n_experts, k;
    };
    for (const Shape& shape :
         {Shape{0, 8, 2}, Shape{1, 8, 2}, Shape{5, 256, 6}, Shape{33, 3, 3}, Shape{300, 17, 4},
          Shape{700, 256, 6}, Shape{100, 1, 1}, Shape{513, 1000, 5}}) {
        const std::string what = "T " + std::to_string(shape.n_tokens) + " experts " +
                                 std::to_string(shape.n_experts) + " used " +
                                 std::to_string(shape.k);
        const std::vector<std::int32_t> ids =
            random_experts(random, shape.n_tokens, shape.n_experts, shape.k);
        const HostGroups expected = group_on_host(ids, shape.n_experts, shape.k);
        const DeviceArray<std::int32_t> device_ids(ids);
        DeviceGroups groups(shape.n_tokens * shape.k, shape.n_experts);
        DeviceStep step;
        cuda::group_by_expert({{device_ids.data(), groups.offsets.data(), groups.assignments.data(),
                                shape.n_tokens, shape.n_experts, shape.k},
                               groups.tiles.data()},
                              step.launch());
        step.wait();
        EXPECT_TRUE(groups.offsets.guard_intact() && groups.assignments.guard_intact() &&
                    groups.tiles.guard_intact())
            << what;
        expect_equal(groups.offsets.download(), expected.offsets, what);
        expect_equal(groups.assignments.download(), expected.assignments, what);
        expect_tiles(groups.tiles.download(), expected, what);
    }
}

struct Case {
    WeightType gate_up;
    WeightType down;
    std::uint32_t hidden;
    std::uint32_t ff_dim;
    std::uint32_t n_tokens;
    std::uint32_t n_experts;  // 1 and k 0: the shared expert
    std::uint32_t k;
    cuda::Arithmetic arithmetic;
    bool accumulate;
};

std::string describe(const Case& c) {
    return "types " + std::to_string(static_cast<int>(c.gate_up)) + " " +
           std::to_string(static_cast<int>(c.down)) + " hidden " + std::to_string(c.hidden) +
           " ff " + std::to_string(c.ff_dim) + " T " + std::to_string(c.n_tokens) + " experts " +
           std::to_string(c.n_experts) + " used " + std::to_string(c.k) + " arithmetic " +
           std::to_string(static_cast<int>(c.arithmetic)) + " accumulate " +
           std::to_string(c.accumulate);
}

/// Random experts of a case and the lists of its tokens.
struct Experts {
    std::vector<RandomWeight> gate, up, down;
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
    std::vector<float> input;  // halves widened in fast arithmetic

    Experts(Random& random, const Case& c) {
        for (std::uint32_t e = 0; e < c.n_experts; ++e) {
            gate.emplace_back(random, c.gate_up, c.hidden, c.ff_dim);
            up.emplace_back(random, c.gate_up, c.hidden, c.ff_dim);
            down.emplace_back(random, c.down, c.ff_dim, c.hidden);
        }
        if (c.k > 0) ids = random_experts(random, c.n_tokens, c.n_experts, c.k);
        weights = uniform_values(random, ids.size(), 0.5f);
        input = extreme_values(random, std::size_t{c.n_tokens} * c.hidden);
        if (c.arithmetic == cuda::Arithmetic::fast) input = f32_of(f16_of(input));
    }
};

std::vector<float> run_on_host(const Case& c, const Experts& experts) {
    std::vector<ExpertRun> runs;
    const HostGroups groups = c.k > 0 ? group_on_host(experts.ids, c.n_experts, c.k) : HostGroups{};
    for (std::uint32_t e = 0; e < c.n_experts; ++e) {
        ExpertRun run{experts.gate[e].matrix, experts.up[e].matrix, experts.down[e].matrix, 0,
                      c.n_tokens};
        if (c.k > 0) {
            run.assignment_first = static_cast<std::uint32_t>(groups.offsets[e]);
            run.assignment_last = static_cast<std::uint32_t>(groups.offsets[e + 1]);
        }
        runs.push_back(run);
    }
    const std::uint32_t n_assignments = c.n_tokens * std::max(1u, c.k);
    std::vector<float> workspace(std::size_t{n_assignments} * c.ff_dim);
    std::vector<float> output(std::size_t{c.n_tokens} * c.hidden, 0.125f);
    ExpertFfnParams params{};
    params.runs = runs;
    params.assignments = c.k > 0 ? groups.assignments.data() : nullptr;
    params.expert_weights = c.k > 0 ? experts.weights.data() : nullptr;
    params.input = experts.input.data();
    params.output = output.data();
    params.workspace = workspace.data();
    params.n_experts_used = std::max(1u, c.k);
    params.n_tokens = c.n_tokens;
    params.hidden = c.hidden;
    params.ff_dim = c.ff_dim;
    params.clamp = 10.0f;
    params.mode = ActivationMode::precise;
    params.accumulate = c.accumulate;
    cpu::expert_ffn(params, Workers(2));
    return output;
}

/// Gate, up and down of each expert in turn, as the runtime lays experts out.
struct DeviceExperts {
    explicit DeviceExperts(const Case& c, const Experts& experts)
        : part_bytes{align(experts.gate[0].bytes.size()), align(experts.up[0].bytes.size()),
                     align(experts.down[0].bytes.size())},
          stride_bytes(part_bytes[0] + part_bytes[1] + part_bytes[2] + 256),
          bytes(stride_bytes * c.n_experts) {
        for (std::uint32_t e = 0; e < c.n_experts; ++e) {
            std::size_t at = e * stride_bytes;
            const RandomWeight* parts[] = {&experts.gate[e], &experts.up[e], &experts.down[e]};
            for (std::size_t part = 0; part < 3; ++part) {
                const std::vector<std::byte> planes =
                    planes_of(parts[part]->matrix.type, parts[part]->bytes);
                bytes.upload(planes.data(), planes.size(), at);
                if (e == 0) {
                    matrices[part] = parts[part]->matrix;
                    matrices[part].data = static_cast<const std::byte*>(bytes.data()) + at;
                }
                at += part_bytes[part];
            }
        }
    }
    static std::size_t align(std::size_t n) { return (n + 255) / 256 * 256; }

    std::size_t part_bytes[3];
    std::size_t stride_bytes;
    DeviceBytes bytes;
    WeightMatrix matrices[3];
};

std::vector<float> run_on_device(const Case& c, const Experts& experts) {
    const bool fast = c.arithmetic == cuda::Arithmetic::fast;
    const bool is_shared = c.k == 0;
    const std::uint32_t n_assignments = c.n_tokens * std::max(1u, c.k);
    const DeviceExperts device(c, experts);
    const DeviceArray<std::int32_t> ids(experts.ids);
    const DeviceArray<float> weights(experts.weights);
    const DeviceArray<float> input_f32(experts.input);
    const DeviceArray<std::uint16_t> input_f16(f16_of(experts.input));
    DeviceArray<float> output(std::size_t{c.n_tokens} * c.hidden);
    if (c.accumulate) output.upload(std::vector<float>(output.size(), 0.125f));
    DeviceBytes workspace(cuda::expert_ffn_workspace_bytes(n_assignments, c.hidden, c.ff_dim,
                                                           is_shared, c.arithmetic));
    DeviceGroups groups(n_assignments, c.n_experts);
    DeviceStep step;
    if (!is_shared)
        cuda::group_by_expert({{ids.data(), groups.offsets.data(), groups.assignments.data(),
                                c.n_tokens, c.n_experts, c.k},
                               groups.tiles.data()},
                              step.launch());
    cuda::ExpertFfnGpuParams params{};
    params.gate = device.matrices[0];
    params.up = device.matrices[1];
    params.down = device.matrices[2];
    params.expert_stride_bytes = device.stride_bytes;
    if (!is_shared) {
        params.expert_offsets = groups.offsets.data();
        params.assignments = groups.assignments.data();
        params.tiles = groups.tiles.data();
        params.expert_weights = weights.data();
    }
    params.input = fast ? static_cast<const void*>(input_f16.data()) : input_f32.data();
    params.output = output.data();
    params.workspace = workspace.data();
    params.n_experts = c.n_experts;
    params.n_experts_used = std::max(1u, c.k);
    params.n_tokens = c.n_tokens;
    params.hidden = c.hidden;
    params.ff_dim = c.ff_dim;
    params.clamp = 10.0f;
    params.arithmetic = c.arithmetic;
    params.accumulate = c.accumulate;
    cuda::expert_ffn(params, step.launch());
    step.wait();
    EXPECT_TRUE(workspace.guard_intact() && output.guard_intact()) << describe(c);
    return output.download();
}

void expect_experts(const Case& c) {
    Random random(17 + c.n_tokens + c.hidden);
    const Experts experts(random, c);
    const bool fast = c.arithmetic == cuda::Arithmetic::fast;
    const Limits limits = fast ? Limits{.cosine_min = 0.9999, .relative_max = 1e-2}
                               : Limits{.cosine_min = 0.9999999, .relative_max = 2e-5};
    expect_close(run_on_device(c, experts), run_on_host(c, experts), limits, describe(c));
}

constexpr cuda::Arithmetic kBoth[] = {cuda::Arithmetic::fast, cuda::Arithmetic::precise};

TEST(ExpertFfn, RoutedExpertsMeetTheCpu) {
    PLIMSOLL_NEEDS_GPU();
    for (const cuda::Arithmetic arithmetic : kBoth)
        for (const bool accumulate : {false, true})
            for (const std::uint32_t n_tokens : {1u, 40u, 150u}) {
                expect_experts({WeightType::iq2_xxs, WeightType::q2_k, 512, 256, n_tokens, 5, 3,
                                arithmetic, accumulate});
                expect_experts({WeightType::q4_k, WeightType::q4_k, 256, 512, n_tokens, 4, 1,
                                arithmetic, accumulate});
            }
}

TEST(ExpertFfn, AnyTypeAndRaggedWidths) {
    PLIMSOLL_NEEDS_GPU();
    for (const cuda::Arithmetic arithmetic : kBoth)
        for (const WeightType type : kAllTypes) {
            const std::uint32_t width = info_of(type).block_elements == 256 ? 768 : 96;
            expect_experts({type, type, 256, width, 30, 3, 2, arithmetic, false});
        }
}

TEST(ExpertFfn, TheSharedExpertTakesEveryTokenInOrder) {
    PLIMSOLL_NEEDS_GPU();
    for (const cuda::Arithmetic arithmetic : kBoth)
        for (const std::uint32_t n_tokens : {1u, 64u, 200u})
            for (const bool accumulate : {false, true})
                expect_experts({WeightType::q8_0, WeightType::q8_0, 160, 224, n_tokens, 1, 0,
                                arithmetic, accumulate});
}

TEST(ExpertFfn, PreciseBitsOfATokenDoNotDependOnTheChunk) {
    PLIMSOLL_NEEDS_GPU();
    Case c{WeightType::iq2_xxs,
           WeightType::q2_k,
           256,
           256,
           70,
           4,
           2,
           cuda::Arithmetic::precise,
           false};
    Random random(5);
    Experts experts(random, c);
    const std::vector<float> together = run_on_device(c, experts);
    const Experts all = experts;
    for (const std::uint32_t token : {0u, 33u, 69u}) {
        c.n_tokens = 1;
        experts.ids.assign(all.ids.begin() + token * c.k, all.ids.begin() + (token + 1) * c.k);
        experts.weights.assign(all.weights.begin() + token * c.k,
                               all.weights.begin() + (token + 1) * c.k);
        experts.input.assign(all.input.begin() + token * c.hidden,
                             all.input.begin() + (token + 1) * c.hidden);
        expect_equal(run_on_device(c, experts),
                     std::vector(together.begin() + token * c.hidden,
                                 together.begin() + (token + 1) * c.hidden),
                     "token " + std::to_string(token));
    }
}

}  // namespace
}  // namespace plimsoll::kernels
