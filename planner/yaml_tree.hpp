#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/result.hpp"

namespace plimsoll {

struct YamlEntry;

/// A YAML document as a plain tree that remembers line numbers. Deliberately less than YAML: one
/// document, no anchors, aliases, tags or merge keys, so that no file can grow when it is read.
struct YamlNode {
    enum class Kind : std::uint8_t { null, scalar, sequence, mapping };

    Kind kind = Kind::null;
    bool quoted = false;     // a quoted scalar is text even where it looks like a number
    std::uint32_t line = 0;  // from 1
    std::string scalar;
    std::vector<YamlNode> items;     // of a sequence
    std::vector<YamlEntry> entries;  // of a mapping, in file order, keys unique

    /// The entry, or null where the mapping lacks it.
    [[nodiscard]] const YamlNode* find(std::string_view key) const;
};

struct YamlEntry {
    std::string key;
    YamlNode value;
};

/// Reads a document. `source` names the file in errors: "profile.yaml:12: …". Refuses duplicate
/// keys, non-scalar keys, tabs as indentation, more than 32 levels, and text over 64 MiB. An empty
/// document is an error.
[[nodiscard]] Result<YamlNode> parse_yaml(std::string_view text, const std::string& source);

/// "source:line: message" as an error of kind bad_file.
[[nodiscard]] Error yaml_error(const std::string& source, std::uint32_t line, std::string message);

/// Walks a mapping with a closed schema. The first thing that is wrong is kept and everything later
/// is ignored, so that a reader is a straight list of fields with one check at its end.
class YamlReader {
public:
    YamlReader(const YamlNode& node, std::string source, std::string what);

    /// Each leaves `out` alone where the key is absent; a `require` makes absence an error.
    YamlReader& text(std::string_view key, std::string& out);
    YamlReader& boolean(std::string_view key, bool& out);
    YamlReader& count(std::string_view key, std::uint64_t& out, std::uint64_t min,
                      std::uint64_t max);
    /// A size in bytes: a plain integer, or with a unit ("256MiB").
    YamlReader& size(std::string_view key, std::uint64_t& out);
    YamlReader& real(std::string_view key, double& out, double min, double max);
    /// Index of the scalar in `names`.
    YamlReader& choice(std::string_view key, std::size_t& out,
                       std::span<const std::string_view> names);
    /// The child node, for the caller to walk; null where absent.
    const YamlNode* child(std::string_view key);
    YamlReader& require(std::string_view key);

    /// Records a problem found by the caller.
    void fail(std::uint32_t line, std::string message);
    /// Records a problem of a child that was walked by a reader of its own.
    void adopt(Error error);
    /// Where the mapping starts.
    [[nodiscard]] std::uint32_t line() const { return node_.line; }
    [[nodiscard]] bool failed() const { return failed_; }
    [[nodiscard]] const std::string& source() const { return source_; }

    /// The first problem, an unknown key included; call when every known key has been asked for.
    [[nodiscard]] Status finish();

private:
    const YamlNode* scalar_at(std::string_view key);

    const YamlNode& node_;
    std::string source_;
    std::string what_;
    std::vector<std::string> known_;
    bool failed_ = false;
    Error error_;
};

/// `text` as YAML scalar: quoted where it would not read back as the same string.
[[nodiscard]] std::string yaml_scalar(std::string_view text);

}  // namespace plimsoll
