// GGUF headers, and what is made of one that was accepted: a model, a plan, a tokenizer.

#include <algorithm>
#include <array>

#include "planner/check.hpp"
#include "planner/gguf.hpp"
#include "planner/gguf_model.hpp"
#include "planner/units.hpp"
#include "runtime/synthetic_model.hpp"
#include "runtime/tokenizer_file.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "tests/fuzz/planning_check.hpp"
#include "tests/planner/gguf_bytes.hpp"
#include "tests/planner/model_header.hpp"

namespace plimsoll::test {
namespace {

constexpr const char* kPath = "fuzz.gguf";
constexpr const char* kMessageStart = "fuzz.gguf: ";
/// More than the weights of any seed.
constexpr std::uint64_t kDataBytes = 64 * kMiB;

void check_file(const GgufFile& file) {
    PLIMSOLL_CHECK(is_power_of_two(file.alignment_bytes), kPath);
    PLIMSOLL_CHECK(file.data_offset_bytes % file.alignment_bytes == 0, kPath);
    for (const GgufTensor& tensor : file.tensors) {
        PLIMSOLL_CHECK(tensor.offset_bytes >= file.data_offset_bytes, tensor.name);
        PLIMSOLL_CHECK(tensor.offset_bytes <= file.source.size_bytes, tensor.name);
        PLIMSOLL_CHECK(tensor.size_bytes <= file.source.size_bytes - tensor.offset_bytes,
                       tensor.name);
    }
}

void use_tokenizer(const GgufFile& file) {
    const Result<Tokenizer> tokenizer = load_tokenizer(file);
    if (!tokenizer) return check_message(tokenizer.error().message, kMessageStart);
    constexpr std::string_view kText = "12 ships, \xe8\x88\xb9\n";
    (void)tokenizer->decode(tokenizer->encode_text(std::string(kText)));
}

bool use(const ByteSource& source) {
    const Result<GgufFile> file = parse_gguf(source, kPath);
    if (!file) {
        check_message(file.error().message, kMessageStart);
        return false;
    }
    check_file(*file);
    use_tokenizer(*file);
    const Result<Model> model = model_from_gguf(*file);
    if (!model) {
        check_message(model.error().message, kMessageStart);
        return false;
    }
    if (model->kind == ModelKind::main) check_planning(*model);
    return true;
}

std::string header_of(const Inventory& shape) {
    const Result<SyntheticModel> model = synthetic_model(shape, 1);
    PLIMSOLL_CHECK(model.ok(), model.error().message);
    return model->header;
}

}  // namespace

bool fuzz_one(std::string_view input) {
    // A file that ends where the input does, and one whose weights follow.
    const bool whole = use(source_of(std::string(input)));
    return use(source_of(std::string(input), kDataBytes)) || whole;
}

std::vector<std::string> seed_inputs() {
    return {header_of(small_inventory()), header_of(inventory_of("tiny-mtp"))};
}

}  // namespace plimsoll::test
