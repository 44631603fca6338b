#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "planner/model.hpp"
#include "runtime/token_id.hpp"

namespace plimsoll::test {

/// A folder of its own under the system's temporary one; gone with this object.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    [[nodiscard]] std::string path_of(const std::string& name) const {
        return (path_ / name).string();
    }

private:
    std::filesystem::path path_;
};

/// A case of tests/data/golden.
struct GoldenCase {
    std::string name;
    std::uint32_t vocab_size = 0;
    bool rounding = false;
    bool is_sparse = false;  // the indexer chooses
    std::vector<TokenId> tokens;
    std::vector<std::uint64_t> rows;      // positions of `logits`
    std::vector<std::uint64_t> mtp_rows;  // positions of `mtp_logits`
    std::vector<float> logits;            // [rows, vocab]
    std::vector<float> mtp_logits;        // [mtp_rows, vocab]
};
GoldenCase read_golden_case(const std::string& name);

/// The two files of a case, made once a process, and their headers as read back.
struct CaseModels {
    Model main;
    Model mtp;
};
const CaseModels& models_of_case(std::string name);

/// The models of a case with something changed.
struct CaseChange {
    std::uint32_t vocab_size = 0;                              // 0: as in the case
    std::vector<std::pair<std::string, std::string>> storage;  // rules before the recipe's own

    auto operator<=>(const CaseChange&) const = default;
};
const CaseModels& models_of_case(std::string name, CaseChange change);

}  // namespace plimsoll::test
