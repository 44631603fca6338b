#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/program.hpp"

namespace plimsoll::test {
namespace {

using Arguments = std::vector<std::string>;
using Json = nlohmann::json;

constexpr std::uint64_t kMiB = 1ull << 20;
constexpr std::uint64_t kGiB = 1ull << 30;

/// `fit flash-q2` with its draft head, on a machine whose host memory is fixed.
Arguments fit_flash(const Arguments& more) {
    Arguments arguments = {"fit", "flash-q2", "--mtp", "flash-mtp", "--host-mem", "50GiB"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

Json fit_json(const Arguments& more, int status = 0) {
    Arguments arguments = fit_flash(more);
    arguments.push_back("--json");
    const Outcome outcome = run_plimsoll(arguments);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    return Json::parse(outcome.out);
}

const Json& feature(const Json& plan, const std::string& name) {
    for (const Json& row : plan["features"])
        if (row["name"] == name) return row;
    throw std::runtime_error("no feature " + name);
}

void expect_sums(const Json& plan) {
    for (const Json& device : plan["devices"]) {
        std::uint64_t sum = 0;
        for (const auto& [name, bytes] : device["by_class"].items())
            sum += bytes.get<std::uint64_t>();
        EXPECT_EQ(sum, device["planned_bytes"].get<std::uint64_t>());
        EXPECT_EQ(device["budget_bytes"].get<std::uint64_t>() - sum,
                  device["slack_bytes"].get<std::uint64_t>());
    }
}

TEST(Fit, A96GbCardHoldsEverythingAndOnlyTheFp16CacheShrinks) {
    for (const char* context : {"32768", "131072"}) {
        const Json plan = fit_json({"--device", "rtx-pro-6000-96gb", "--ctx", context});
        expect_sums(plan);
        EXPECT_EQ(plan["verdict"], "full");
        EXPECT_EQ(plan["experts"]["device"], plan["experts"]["total"]);
        const Json& cache = feature(plan, "fp16_cache");
        EXPECT_GE(cache["granted"].get<std::uint64_t>(), 7 * kGiB);
        EXPECT_LT(cache["granted"].get<std::uint64_t>(), cache["requested"].get<std::uint64_t>());
        EXPECT_NE(cache["reason"].get<std::string>().find(" of "), std::string::npos);
        const Json& classes = plan["devices"][0]["by_class"];
        const std::uint64_t weights = classes["dense_weights"].get<std::uint64_t>() +
                                      classes["expert_weights"].get<std::uint64_t>() +
                                      classes["embedding"].get<std::uint64_t>();
        EXPECT_NEAR(static_cast<double>(weights) / kMiB, 82'698, 8);
        for (const char* name : {"context", "prefill_chunk", "mtp", "embedding", "experts"})
            EXPECT_EQ(feature(plan, name)["granted"], feature(plan, name)["requested"]) << name;
    }
}

TEST(Fit, AMillionTokensKeepTheDraftHeadOn96GbAndEverythingOn141Gb) {
    const Json small = fit_json({"--device", "rtx-pro-6000-96gb", "--ctx", "1048576"});
    EXPECT_EQ(feature(small, "mtp")["granted"], true);
    const Json large = fit_json({"--device", "h200-141gb", "--ctx", "1048576"});
    EXPECT_EQ(large["verdict"], "full");
    EXPECT_EQ(feature(large, "fp16_cache")["granted"], feature(large, "fp16_cache")["requested"]);
}

TEST(Fit, ForcingExpertsToTheHostPlansTheRest) {
    for (const char* device : {"rtx-4090-24gb", "rtx-pro-6000-96gb"}) {
        const Json plan =
            fit_json({"--device", device, "--require", "experts=host", "--ctx", "65536"});
        EXPECT_EQ(plan["experts"]["device"], 0);
        EXPECT_EQ(plan["context_tokens"], 65'536);
        EXPECT_EQ(plan["verdict"], "spilled");
        expect_sums(plan);
    }
}

TEST(Fit, RefusesATooLargeContextWithoutChangingIt) {
    const Json plan =
        fit_json({"--device", "rtx-4090-24gb", "--vram", "3GiB", "--ctx", "1048576"}, 3);
    EXPECT_EQ(plan["verdict"], "no_fit");
    EXPECT_EQ(feature(plan, "context")["requested"], 1'048'576);
    ASSERT_FALSE(plan["refusal"].is_null());
    EXPECT_GT(plan["refusal"]["short_bytes"].get<std::uint64_t>(), 0u);
    ASSERT_FALSE(plan["refusal"]["suggestions"].empty());
}

const Arguments kEverythingRequired = {"--device",       "rtx-pro-6000-96gb", "--require",
                                       "context=131072", "--require",         "mtp",
                                       "--require",      "embedding=device",  "--require",
                                       "experts",        "--require",         "prefill_chunk=2048"};

TEST(Fit, RefusesWhatIsRequiredTogetherAndNamesIt) {
    Arguments arguments = kEverythingRequired;
    arguments.insert(arguments.end(), {"--require", "fp16_cache"});
    const Json plan = fit_json(arguments, 3);
    const auto short_bytes = plan["refusal"]["short_bytes"].get<std::uint64_t>() - 256 * kMiB;
    EXPECT_GE(short_bytes, kGiB * 11 / 10);
    EXPECT_LE(short_bytes, 2 * kGiB);
    const std::string line = run_plimsoll(fit_flash(arguments)).err;
    for (const char* name : {"fp16", "mtp", "context", "prefill", "embedding", "experts"})
        EXPECT_NE(line.find(name), std::string::npos) << name << " in " << line;
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
}

TEST(Fit, ReducesTheOneFeatureThatIsMerelyPreferred) {
    const Json plan = fit_json(kEverythingRequired);
    EXPECT_EQ(plan["verdict"], "full");
    EXPECT_LT(feature(plan, "fp16_cache")["granted"].get<std::uint64_t>(),
              feature(plan, "fp16_cache")["requested"].get<std::uint64_t>());
    for (const char* name : {"context", "prefill_chunk", "mtp", "embedding", "experts"})
        EXPECT_EQ(feature(plan, name)["source"], "cli") << name;
}

TEST(Fit, CommandLineBeatsTheProfileInAnyOrder) {
    const TemporaryFolder folder;
    const std::string profile = folder.write(
        "p.yaml", "features: {context: {tokens: 65536}, prefill_chunk: {tokens: 512}}\n");
    const Json one =
        fit_json({"--device", "rtx-4090-24gb", "--ctx", "32768", "--profile", profile});
    const Json two =
        fit_json({"--profile", profile, "--ctx", "32768", "--device", "rtx-4090-24gb"});
    EXPECT_EQ(one, two);
    EXPECT_EQ(one["context_tokens"], 32'768);
    EXPECT_EQ(feature(one, "context")["source"], "cli");
    EXPECT_EQ(one["prefill_chunk_tokens"], 512);
    EXPECT_EQ(feature(one, "prefill_chunk")["source"], "yaml");
}

TEST(Fit, EveryOptionChangesThePlanOrSaysThatItCannot) {
    const TemporaryFolder folder;
    const std::string profile = folder.write("p.yaml", "features: {context: {tokens: 65536}}\n");
    const Arguments base = {"--device", "rtx-4090-24gb"};
    const std::string before = run_plimsoll(fit_flash(base)).out;
    const std::vector<Arguments> options = {{"--device", "rtx-3090-24gb"},
                                            {"--profile", profile},
                                            {"--mtp", "flash-mtp"},
                                            {"--ctx", "65536"},
                                            {"--ctx", "max"},
                                            {"--vram", "20GiB"},
                                            {"--reserve", "1GiB"},
                                            {"--nvme", "off"},
                                            {"--nvme", folder.file(".")},
                                            {"--draft", "2"},
                                            {"--draft", "0"},
                                            {"--prefill-chunk", "1024"},
                                            {"--sessions", "2"},
                                            {"--rounding", "off"},
                                            {"--precise"},
                                            {"--require", "embedding=device"},
                                            {"--require", "mtp"}};
    for (const Arguments& option : options) {
        if (option[0] == "--mtp") continue;  // in the base already
        Arguments arguments = option[0] == "--device" ? Arguments{} : base;
        arguments.insert(arguments.end(), option.begin(), option.end());
        const Outcome outcome = run_plimsoll(fit_flash(arguments));
        EXPECT_NE(outcome.out + outcome.err, before) << option[0] << " acts on nothing";
    }
    EXPECT_NE(
        run_plimsoll({"fit", "flash-q2", "--host-mem", "50GiB", "--device", "rtx-4090-24gb"}).out,
        before);
    EXPECT_NE(run_plimsoll({"fit", "flash-q2", "--mtp", "flash-mtp", "--host-mem", "60GiB",
                            "--device", "rtx-4090-24gb"})
                  .out,
              before);
}

TEST(Fit, ASavedPlanShownAgainIsTheSameByteForByte) {
    const TemporaryFolder folder;
    const std::string first = folder.file("a.yaml"), second = folder.file("b.yaml");
    const Outcome made = run_plimsoll(fit_flash({"--device", "rtx-4090-24gb", "-o", first}));
    EXPECT_EQ(made.status, 0) << made.err;
    const Outcome again = run_plimsoll({"fit", "--plan", first, "-o", second});
    EXPECT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(read_file(first), read_file(second));
    EXPECT_GT(read_file(first).size(), 1'000u);
}

TEST(Fit, StrictStillPrintsThePlanAndExitsWithFour) {
    const Outcome outcome = run_plimsoll(fit_flash({"--device", "rtx-4090-24gb", "--strict"}));
    EXPECT_EQ(outcome.status, 4);
    EXPECT_NE(outcome.out.find("experts"), std::string::npos);
    EXPECT_NE(outcome.err.find("strict"), std::string::npos);
}

TEST(Fit, UsageErrorsAreOneLineThatNamesTheOption) {
    const std::vector<std::pair<Arguments, std::string>> bad = {
        {{"--ctx", "many"}, "--ctx"},
        {{"--vram", "-1"}, "--vram"},
        {{"--device", "rtx-9999"}, "rtx-9999"},
        {{"--nvme", "/no/such/folder"}, "--nvme"},
        {{"--draft", "99"}, "--draft"},
        {{"--require", "speed"}, "speed"},
        {{"--profile", "/no/file.yaml"}, "/no/file.yaml"},
        {{"--ctx", "2000000"}, "2000000"},
        {{"--sessions", "0"}, "--sessions"},
        {{"--frobnicate"}, "--frobnicate"}};
    for (const auto& [arguments, named] : bad) {
        const Outcome outcome = run_plimsoll(fit_flash(arguments));
        EXPECT_EQ(outcome.status, 2) << named;
        EXPECT_NE(outcome.err.find(named), std::string::npos) << outcome.err;
        EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    }
}

TEST(Fit, AnswersForEveryCard) {
    const Outcome outcome = run_plimsoll(fit_flash({"--all-devices"}));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    for (const char* card : {"rtx-3060-12gb", "rtx-4090-24gb", "rtx-pro-6000-96gb", "h200-141gb"})
        EXPECT_NE(outcome.out.find(card), std::string::npos) << card;
}

TEST(Fit, DrawsAPictureThatIsAnSvgDocument) {
    const TemporaryFolder folder;
    const std::string path = folder.file("plan.svg");
    EXPECT_EQ(run_plimsoll(fit_flash({"--device", "rtx-4090-24gb", "--svg", path})).status, 0);
    const std::string svg = read_file(path);
    EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
    EXPECT_NE(svg.find("</svg>"), std::string::npos);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("width=\"-"), std::string::npos);
}

TEST(Fit, IsQuick) {
    const auto start = std::chrono::steady_clock::now();
    run_plimsoll(fit_flash({"--device", "rtx-pro-6000-96gb", "--ctx", "131072"}));
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    EXPECT_LT(taken.count(), 1.0)
        << "with the start of the program; a sanitizer build has room too";
}

TEST(PlanCommand, ComparesTwoSavedPlans) {
    const TemporaryFolder folder;
    const std::string a = folder.file("a.yaml"), b = folder.file("b.yaml");
    run_plimsoll(fit_flash({"--device", "rtx-4090-24gb", "-o", a}));
    run_plimsoll(fit_flash({"--device", "rtx-4090-24gb", "--ctx", "32768", "-o", b}));
    const Outcome same = run_plimsoll({"plan", "diff", a, a});
    EXPECT_EQ(same.status, 0);
    const Outcome differs = run_plimsoll({"plan", "diff", a, b});
    EXPECT_EQ(differs.status, 0) << differs.err;
    EXPECT_NE(differs.out.find("32,768"), std::string::npos) << differs.out;
    EXPECT_EQ(run_plimsoll({"plan", "show", a}).status, 0);
    EXPECT_EQ(run_plimsoll({"plan", "draw", a}).status, 0);
    EXPECT_EQ(run_plimsoll({"plan", "show", folder.write("x.yaml", "plan: 1\n")}).status, 2);
}

}  // namespace
}  // namespace plimsoll::test
