#include "planner/request.hpp"

#include <gtest/gtest.h>

#include <string>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

Result<Request> with_profile(const std::string& text) {
    return apply_profile(default_request(), text, "profile.yaml");
}

/// The message of a profile that must be refused.
std::string problem_of(const std::string& text) {
    const Result<Request> request = with_profile(text);
    EXPECT_FALSE(request) << "accepted: " << text;
    return request ? "" : request.error().message;
}

TEST(Profile, SetsWhatItNamesAndNothingElse) {
    const Result<Request> request = with_profile(R"(
model: flash-q2
features:
  context: {tokens: 65536, min: 8192}
  mtp: {mode: require, drafts: 2}
  fp16_cache: {mode: prefer, max_bytes: 4GiB}
  embedding: {tier: host}
memory: {reserve_bytes: 1GiB, host_percent: 50, nvme: "off"}
sampling: {temperature: 0.7, top_k: 40}
)");
    ASSERT_TRUE(request) << request.error().message;
    EXPECT_EQ(request->context.value, (Range{.target = 65'536, .minimum = 8'192}));
    EXPECT_EQ(request->context.source, Source::yaml);
    EXPECT_EQ(request->mtp.value, Wish::require);
    EXPECT_EQ(request->drafts.value, 2u);
    EXPECT_EQ(request->fp16_cache_max_bytes.value, 4 * kGiB);
    EXPECT_EQ(request->embedding.value, Placement::host);
    EXPECT_EQ(request->reserve_bytes.value, kGiB);
    EXPECT_EQ(request->nvme.value, "off");
    EXPECT_EQ(request->sampling.temperature, 0.7);
    EXPECT_EQ(request->prefill_chunk, default_request().prefill_chunk);
}

TEST(Profile, CommandLineBeatsItInEitherOrder) {
    Request first = default_request();
    ASSERT_TRUE(apply_require(first, "context=32768"));
    const Result<Request> then_profile =
        apply_profile(first, "features: {context: {tokens: 65536}}", "p.yaml");
    ASSERT_TRUE(then_profile);
    EXPECT_EQ(then_profile->context.value.target, 32'768u);

    Result<Request> profile_first = with_profile("features: {context: {tokens: 65536}}");
    ASSERT_TRUE(profile_first);
    ASSERT_TRUE(apply_require(*profile_first, "context=32768"));
    EXPECT_EQ(profile_first->context, then_profile->context);
}

struct BadProfile {
    const char* text;
    const char* names;  // what the message must name
    int line;
};

TEST(Profile, RefusesFaultsWithTheLine) {
    const BadProfile kBad[] = {
        {"model: flash-q2\nfetures: {}\n", "fetures", 2},
        {"features:\n  context: {tokns: 5}\n", "tokns", 2},
        {"features:\n  context: {tokens: many}\n", "tokens", 2},
        {"features:\n  context: {tokens: -5}\n", "tokens", 2},
        {"features:\n  context: {tokens: 9223372036854775808}\n", "tokens", 2},
        {"features:\n  context: {tokens: 4096, min: 8192}\n", "min", 2},
        {"model: a\nmodel: b\n", "model", 2},
        {"memory:\n\treserve_bytes: 1GiB\n", "tab", 2},
        {"a: &x [1]\nb: *x\n", "anchor", 1},
        {"memory:\n  spill: maybe\n", "spill", 2},
        {"memory:\n  reserve_bytes: -1\n", "reserve_bytes", 2},
        {"features: [1, 2]\n", "features", 1},
        {"ladder:\n  - mtp\n", "ladder", 2},
        {"ladder:\n  - mtp\n  - mtp\n", "twice", 3},
        {"sampling: {top_p: 2}\n", "top_p", 1},
        {"- a\n- b\n", "profile", 1},
    };
    for (const BadProfile& bad : kBad) {
        const std::string problem = problem_of(bad.text);
        EXPECT_NE(problem.find("profile.yaml:" + std::to_string(bad.line) + ":"), std::string::npos)
            << bad.text << "\n-> " << problem;
        EXPECT_NE(problem.find(bad.names), std::string::npos) << bad.text << "\n-> " << problem;
        EXPECT_EQ(problem.find('\n'), std::string::npos) << "one line: " << problem;
    }
}

TEST(Profile, RefusesAnEmptyFile) { EXPECT_NE(problem_of("").find("empty"), std::string::npos); }

TEST(Profile, RefusesAnAliasBombAtItsFirstAnchor) {
    std::string text = "a: &a [x,x,x,x,x,x,x,x,x]\n";
    for (char c = 'b'; c < 'j'; ++c)
        text += std::string(1, c) + ": &" + c + " [*" + char(c - 1) + ",*" + char(c - 1) + "]\n";
    EXPECT_NE(problem_of(text).find("profile.yaml:1:"), std::string::npos);
}

TEST(Require, RefusesUnknownFeaturesAndValues) {
    Request request = default_request();
    for (const char* text :
         {"contxt", "context=", "context=0", "context=-1", "context=many", "mtp=maybe",
          "experts=nvme", "fp16_cache=half", "", "=5", "context=99999999999999999999"}) {
        const Status status = apply_require(request, text);
        EXPECT_FALSE(status) << text;
        if (!status) {
            EXPECT_EQ(status.error().kind, ErrorKind::usage);
        }
    }
    EXPECT_EQ(request, default_request()) << "a refused requirement changes nothing";
}

TEST(CheckRequest, NamesContradictions) {
    Request request = default_request();
    request.kv_format.set(KvFormat::packed, Source::cli);
    request.rounding.set(false, Source::cli);
    const Status status = check_request(request);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("kv_format"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
