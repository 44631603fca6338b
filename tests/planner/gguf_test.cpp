#include "planner/gguf.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>

#include "planner/gguf_model.hpp"
#include "planner/units.hpp"
#include "tests/planner/allocation_meter.hpp"
#include "tests/planner/gguf_faults.hpp"
#include "tests/planner/model_header.hpp"

namespace plimsoll::test {
namespace {

constexpr const char* kPath = "case.gguf";

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A refusal as a user must see it: of the right kind, one line, the file first.
void expect_refusal(const Error& error, const std::string& told) {
    EXPECT_EQ(error.kind, ErrorKind::bad_file) << error.message;
    EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
    EXPECT_EQ(error.message.rfind("case.gguf: ", 0), 0u) << error.message;
    EXPECT_NE(error.message.find(told), std::string::npos) << told << " in: " << error.message;
}

/// Parses what must be refused, at once and without taking memory for what it claims.
void expect_refused(const RawHeader& header, const std::string& told) {
    const ByteSource source = source_of(header);
    const auto start = std::chrono::steady_clock::now();
    watch_allocations();
    const Result<GgufFile> file = parse_gguf(source, kPath);
    const Allocations taken = stop_watching_allocations();
    EXPECT_LT(seconds_since(start), 1.0);
    EXPECT_LT(taken.total_bytes, 16 * kMiB);
    ASSERT_FALSE(file.ok());
    expect_refusal(file.error(), told);
}

/// A header with a key and a tensor, as small as they come.
RawHeader least_header() {
    RawHeader header;
    header.set_u32("general.alignment", 32);
    header.set_string("general.name", "least");
    header.tensors.push_back({"t.weight", {8, 2}, 0, 0});
    header.data_bytes = 64;
    return header;
}

TEST(Gguf, RefusesEveryFaultOfAHeaderThatHoldsNothingElse) {
    for (const GgufFault& fault : gguf_faults()) {
        SCOPED_TRACE(fault.name);
        RawHeader header;
        fault.spoil(header);
        expect_refused(header, fault.told);
    }
}

TEST(Gguf, RefusesEveryFaultGraftedOntoAValidModel) {
    const RawHeader valid = model_header(small_inventory());
    ASSERT_TRUE(parse_gguf(source_of(valid), kPath).ok());
    for (const GgufFault& fault : gguf_faults()) {
        SCOPED_TRACE(fault.name);
        RawHeader header = valid;
        fault.spoil(header);
        expect_refused(header, fault.told);
    }
}

TEST(Gguf, RefusesAFileOfNoBytes) {
    const Result<GgufFile> file = parse_gguf(source_of(std::string()), kPath);
    ASSERT_FALSE(file.ok());
    expect_refusal(file.error(), "not a GGUF file");
}

TEST(Gguf, RefusesAHeaderCutAtAnyByte) {
    const std::string whole = model_header(small_inventory()).bytes();
    for (std::size_t length = 0; length < whole.size(); ++length) {
        const Result<GgufFile> file = parse_gguf(source_of(whole.substr(0, length)), kPath);
        ASSERT_FALSE(file.ok()) << length << " of " << whole.size();
        expect_refusal(file.error(), "");
    }
}

TEST(Gguf, RefusesDataCutAtAnyByteOfTheLastTensor) {
    RawHeader header = least_header();
    ASSERT_TRUE(parse_gguf(source_of(header), kPath).ok());
    for (header.data_bytes = 0; header.data_bytes < 64; ++header.data_bytes)
        expect_refused(header, "t.weight");
}

TEST(Gguf, RefusesASourceThatCannotBeRead) {
    const RawHeader header = model_header(small_inventory());
    const std::size_t size_bytes = header.bytes().size();
    for (int reads = 0; reads < 2; ++reads) {
        const ByteSource whole = source_of(header);
        ByteSource broken = whole;
        broken.read = [&, left = reads](std::uint64_t offset, std::span<std::byte> into) mutable {
            return left-- > 0 && whole.read(offset, into);
        };
        const Result<GgufFile> file = parse_gguf(broken, kPath);
        ASSERT_FALSE(file.ok()) << size_bytes;
        expect_refusal(file.error(), "");
    }
}

TEST(Gguf, SurvivesFlippedBits) {
    constexpr std::uint32_t kSeed = 20'260'731;
    constexpr int kRounds = 20'000;
    RecordProperty("seed", static_cast<int>(kSeed));
    std::printf("seed %u\n", kSeed);
    std::mt19937 random(kSeed);
    const RawHeader valid = model_header(small_inventory());
    const std::string whole = valid.bytes();
    const auto start = std::chrono::steady_clock::now();
    int refused = 0;
    for (int round = 0; round < kRounds; ++round) {
        std::string bytes = whole;
        for (std::uint32_t flips = 1 + random() % 8; flips > 0; --flips)
            bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
        const Result<GgufFile> file = parse_gguf(source_of(bytes, valid.data_bytes), kPath);
        if (file) {
            const Result<Model> model = model_from_gguf(*file);
            if (!model) expect_refusal(model.error(), "");
            refused += model ? 0 : 1;
        } else {
            expect_refusal(file.error(), "");
            ++refused;
        }
        ASSERT_FALSE(HasFailure()) << "round " << round;
    }
    EXPECT_GT(refused, kRounds / 4) << "the canary: most flips spoil something";
    EXPECT_LT(seconds_since(start), 60.0);
}

TEST(Gguf, TellsAnOddNameInOneLine) {
    RawHeader header = least_header();
    header.tensors[0].name = "a\nb\x1b[31m" + std::string(60'000, 'x');
    header.tensors[0].type = 99;
    expect_refused(header, "a\\x0ab");
    const std::string message = parse_gguf(source_of(header), kPath).error().message;
    EXPECT_LT(message.size(), 300u);
    EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

TEST(Gguf, TakesPaddedOddAndEmptyValuesAsTheyAre) {
    RawHeader header = least_header();
    header.set_string("empty.text", "");
    header.set("empty.list", GgufValueType::array, array_bytes(GgufValueType::string, 0, ""));
    header.set("small", GgufValueType::i8, number(std::int8_t{-3}));
    header.set("wide", GgufValueType::u64, number(~std::uint64_t{0}));
    header.set("real", GgufValueType::f64, number(2.5));
    std::string nested = array_bytes(GgufValueType::boolean, 2, std::string("\0\1", 2));
    for (int depth = 2; depth <= 8; ++depth) nested = array_bytes(GgufValueType::array, 1, nested);
    header.set("nested", GgufValueType::array, nested);
    const Result<GgufFile> file = parse_gguf(source_of(header), kPath);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(std::get<std::string>(file->find("empty.text")->value), "");
    EXPECT_EQ(std::get<GgufArray>(file->find("empty.list")->value).count, 0u);
    EXPECT_EQ(std::get<std::int64_t>(file->find("small")->value), -3);
    EXPECT_EQ(std::get<std::uint64_t>(file->find("wide")->value), ~std::uint64_t{0});
    EXPECT_EQ(std::get<double>(file->find("real")->value), 2.5);
    EXPECT_EQ(file->find("absent"), nullptr);
    EXPECT_EQ(file->tensors[0].offset_bytes, file->data_offset_bytes);
    EXPECT_EQ(file->tensors[0].size_bytes, 64u);
}

TEST(Gguf, StartsTheDataAtTheAlignmentOfTheFile) {
    for (const std::uint32_t alignment : {8u, 64u, 4096u, 65'536u}) {
        RawHeader header = least_header();
        header.set_u32("general.alignment", alignment);
        const Result<GgufFile> file =
            parse_gguf(source_of(header.bytes(alignment), header.data_bytes), kPath);
        ASSERT_TRUE(file.ok()) << file.error().message;
        EXPECT_EQ(file->alignment_bytes, alignment);
        EXPECT_EQ(file->data_offset_bytes % alignment, 0u);
        EXPECT_EQ(file->data_offset_bytes + 64, file->source.size_bytes);
    }
}

TEST(Gguf, ReadsArraysOfEveryWidth) {
    RawHeader header = least_header();
    header.set("bytes", GgufValueType::array, array_bytes(GgufValueType::i8, 2, "\x7f\xff"));
    header.set("words", GgufValueType::array,
               array_bytes(GgufValueType::string, 2, counted("") + counted("b c")));
    header.set("reals", GgufValueType::array, array_bytes(GgufValueType::f32, 1, number(0.5f)));
    const Result<GgufFile> file = parse_gguf(source_of(header), kPath);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(*read_integers(*file, "bytes"), (std::vector<std::int64_t>{127, -1}));
    EXPECT_EQ(*read_floats(*file, "reals"), std::vector<double>{0.5});
    const Result<StringTable> words = read_strings(*file, "words");
    ASSERT_TRUE(words.ok());
    ASSERT_EQ(words->size(), 2u);
    EXPECT_EQ((*words)[0], "");
    EXPECT_EQ((*words)[1], "b c");
    EXPECT_NE(read_integers(*file, "reals").error().message.find("reals"), std::string::npos);
    EXPECT_NE(read_strings(*file, "bytes").error().message.find("bytes"), std::string::npos);
    EXPECT_NE(read_floats(*file, "absent").error().message.find("absent"), std::string::npos);
    EXPECT_NE(read_floats(*file, "general.name").error().message.find("general.name"),
              std::string::npos);
}

TEST(Gguf, ReadsAFullHeaderInMillisecondsWithoutItsTables) {
    const ByteSource source = source_of(model_header(inventory_of("flash-q2")));
    const auto start = std::chrono::steady_clock::now();
    watch_allocations();
    const Result<GgufFile> file = parse_gguf(source, kPath);
    const Allocations taken = stop_watching_allocations();
    const double seconds = seconds_since(start);
    ASSERT_TRUE(file.ok()) << file.error().message;
    std::printf("1,328 tensors, 129,280 words, %.1f MB of header: %.1f ms, %llu bytes allocated\n",
                static_cast<double>(file->data_offset_bytes) / 1e6, seconds * 1e3,
                static_cast<unsigned long long>(taken.total_bytes));
    EXPECT_EQ(file->tensors.size(), 1'328u);
    EXPECT_LT(seconds, 0.2);
    EXPECT_LT(taken.total_bytes, 4 * kMiB);
}

TEST(Gguf, TakesNoMoreMemoryThanALongStringHas) {
    constexpr std::uint64_t kTextBytes = 100 * kMiB;
    RawHeader header;
    header.entries.push_back({"long.text", 8, number(kTextBytes)});
    ByteSource source = source_of(header.bytes(8));
    source.size_bytes += kTextBytes;
    source.read = [head = source.read](std::uint64_t offset, std::span<std::byte> into) {
        std::memset(into.data(), 0, into.size());
        (void)head(offset, into);
        return true;
    };
    watch_allocations();
    const Result<GgufFile> file = parse_gguf(source, kPath);
    const Allocations taken = stop_watching_allocations();
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(std::get<std::string>(file->find("long.text")->value).size(), kTextBytes);
    EXPECT_LT(taken.total_bytes, kTextBytes + 2 * kMiB);
}

TEST(Gguf, RefusesWhatIsNoRegularFile) {
    for (const char* path : {"/dev/zero", "/", "/no/such/file.gguf", ""}) {
        const Result<GgufFile> file = read_gguf(path);
        ASSERT_FALSE(file.ok()) << path;
        EXPECT_EQ(file.error().kind, ErrorKind::bad_file);
    }
}

TEST(AllocationMeter, SeesWhatIsAllocated) {
    watch_allocations();
    const auto kept = std::make_unique<char[]>(5 * kMiB);
    const Allocations taken = stop_watching_allocations();
    EXPECT_NE(kept, nullptr);
    EXPECT_GE(taken.largest_bytes, 5 * kMiB);
    EXPECT_GE(taken.count, 1u);
}

}  // namespace
}  // namespace plimsoll::test
