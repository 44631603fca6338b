#include "tests/runtime/model_files.hpp"

#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "runtime/synthetic.hpp"
#include "runtime/synthetic_model.hpp"

namespace plimsoll::test {
namespace {

std::string golden_path(const std::string& file) {
    return std::string(PLIMSOLL_TEST_DATA) + "/golden/" + file;
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) throw std::runtime_error("cannot read " + path);
    return text.str();
}

std::vector<float> read_floats(const std::string& path) {
    const std::string bytes = read_file(path);
    std::vector<float> out(bytes.size() / sizeof(float));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(out.data()));
    return out;
}

template <class T>
T value_of(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    return std::move(*result);
}

void write_model(const Inventory& shape, std::uint64_t seed, const std::string& path) {
    const SyntheticModel model = value_of(synthetic_model(shape, seed));
    std::string bytes(model.file_bytes, '\0');
    std::copy(model.header.begin(), model.header.end(), bytes.begin());
    for (const Tensor& tensor : model.tensors)
        SyntheticTensor(seed, tensor, model.hyper.n_experts)
            .fill(0, std::as_writable_bytes(
                         std::span(bytes).subspan(tensor.file_offset_bytes, tensor.size_bytes)));
    std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "plimsoll-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

GoldenCase read_golden_case(const std::string& name) {
    const nlohmann::json json = nlohmann::json::parse(read_file(golden_path(name + ".json")));
    GoldenCase out;
    out.name = name;
    out.vocab_size = json.at("config").at("vocab_size");
    out.rounding = json.at("rounding");
    out.is_sparse = json.at("config").at("indexer_top_k") < 512;
    out.tokens = json.at("tokens").get<std::vector<TokenId>>();
    out.rows = json.at("rows").get<std::vector<std::uint64_t>>();
    out.mtp_rows = json.at("mtp_rows").get<std::vector<std::uint64_t>>();
    out.logits = read_floats(golden_path(name + ".logits.f32"));
    out.mtp_logits = read_floats(golden_path(name + ".mtp.f32"));
    return out;
}

const CaseModels& models_of_case(std::string name) { return models_of_case(std::move(name), {}); }

const CaseModels& models_of_case(std::string name, CaseChange change) {
    static const TemporaryFolder folder;
    static std::map<std::pair<std::string, CaseChange>, CaseModels> made;
    const auto key = std::pair(name, change);
    if (const auto found = made.find(key); found != made.end()) return found->second;
    // The order of a recipe's entries matters, so that it must survive.
    auto json = nlohmann::ordered_json::parse(read_file(golden_path(name + ".json")));
    if (change.vocab_size != 0) json["config"]["vocab_size"] = change.vocab_size;
    nlohmann::ordered_json recipe;
    for (const auto& [part, type] : change.storage) recipe[part] = type;
    for (const auto& [part, type] : json["recipe"].items()) recipe[part] = type;
    json["recipe"] = recipe;
    const SyntheticCase shapes = value_of(parse_case(json.dump(), name));
    const std::string stem = folder.path_of(name + "-" + std::to_string(made.size()));
    write_model(shapes.main, shapes.seed, stem + ".gguf");
    write_model(shapes.mtp, shapes.seed, stem + "-mtp.gguf");
    CaseModels models{value_of(load_model(stem + ".gguf", "")),
                      value_of(load_model(stem + "-mtp.gguf", ""))};
    return made.emplace(key, std::move(models)).first->second;
}

}  // namespace plimsoll::test
