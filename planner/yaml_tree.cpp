#include "planner/yaml_tree.hpp"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

constexpr std::size_t kDepthMax = 32;
constexpr std::size_t kTextBytesMax = 64 << 20;
constexpr std::size_t kMessageBytesMax = 1000;

/// Thrown through yaml-cpp, whose event interface has no other way to stop; caught in parse_yaml.
struct Stop {
    std::uint32_t line;
    std::string message;
};

std::uint32_t line_of(const YAML::Mark& mark) {
    return mark.line < 0 ? 1 : static_cast<std::uint32_t>(mark.line) + 1;
}

/// Messages quote the file, which may hold anything: line breaks, escape sequences, a megabyte.
std::string on_one_line(std::string_view message) {
    std::string out;
    for (const char c : message) {
        const auto byte = static_cast<unsigned char>(c);
        const bool inside_character = (byte & 0xc0) == 0x80;
        if (out.size() >= kMessageBytesMax + (inside_character ? 3 : 0)) return out + "…";
        if (byte < 0x20 || byte == 0x7f)
            out += fmt::format("\\x{:02x}", byte);
        else
            out += c;
    }
    return out;
}

class TreeBuilder final : public YAML::EventHandler {
public:
    YamlNode root;
    bool any = false;

    void OnDocumentStart(const YAML::Mark&) override {}
    void OnDocumentEnd() override {}
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
        throw Stop{line_of(mark), "aliases (*name) are not allowed"};
    }
    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        refuse_anchor(mark, anchor);
        add(YamlNode{.line = line_of(mark)});
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  const std::string& value) override {
        refuse_anchor(mark, anchor);
        const bool quoted = tag == "!";
        if (!quoted && !tag.empty() && tag != "?")
            throw Stop{line_of(mark), "tags are not allowed"};
        const bool is_null = !quoted && (value.empty() || value == "~" || value == "null");
        add(YamlNode{.kind = is_null ? YamlNode::Kind::null : YamlNode::Kind::scalar,
                     .quoted = quoted,
                     .line = line_of(mark),
                     .scalar = value});
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        open(mark, anchor, YamlNode::Kind::sequence);
    }
    void OnSequenceEnd() override { close(); }
    void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value) override {
        open(mark, anchor, YamlNode::Kind::mapping);
    }
    void OnMapEnd() override { close(); }

private:
    struct Open {
        YamlNode node;
        std::string key;
        std::uint32_t key_line = 0;
        bool has_key = false;
    };
    std::vector<Open> open_;

    static void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
        if (anchor != 0) throw Stop{line_of(mark), "anchors (&name) are not allowed"};
    }

    void open(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode::Kind kind) {
        refuse_anchor(mark, anchor);
        if (open_.size() >= kDepthMax)
            throw Stop{line_of(mark), fmt::format("nested more than {} levels", kDepthMax)};
        open_.push_back({.node = {.kind = kind, .line = line_of(mark)}});
    }

    void close() {
        YamlNode node = std::move(open_.back().node);
        open_.pop_back();
        add(std::move(node));
    }

    void add(YamlNode node) {
        any = true;
        if (open_.empty()) {
            root = std::move(node);
            return;
        }
        Open& top = open_.back();
        if (top.node.kind == YamlNode::Kind::sequence) {
            top.node.items.push_back(std::move(node));
        } else if (!top.has_key) {
            if (node.kind != YamlNode::Kind::scalar)
                throw Stop{node.line, "a key must be plain text"};
            if (top.node.find(node.scalar) != nullptr)
                throw Stop{node.line, fmt::format("key '{}' is given twice", node.scalar)};
            top.key = std::move(node.scalar);
            top.has_key = true;
        } else {
            top.node.entries.push_back({std::move(top.key), std::move(node)});
            top.has_key = false;
        }
    }
};

template <class Number>
bool read_number(std::string_view text, Number& out) {
    const char* end = text.data() + text.size();
    const auto [at, problem] = std::from_chars(text.data(), end, out);
    return problem == std::errc{} && at == end;
}

std::string join(std::span<const std::string_view> names) {
    return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
    for (const auto& [name, node] : entries)
        if (name == key) return &node;
    return nullptr;
}

Error yaml_error(const std::string& source, std::uint32_t line, std::string message) {
    return {ErrorKind::bad_file, fmt::format("{}:{}: {}", source, line, on_one_line(message))};
}

Result<YamlNode> parse_yaml(std::string_view text, const std::string& source) {
    if (text.size() > kTextBytesMax)
        return Error{ErrorKind::bad_file,
                     fmt::format("{}: larger than {} bytes", source, kTextBytesMax)};
    // yaml-cpp accepts some tabs as indentation and mistakes others; a plain rule with a line helps
    // more.
    std::uint32_t line = 1;
    bool at_indent = true;
    for (const char c : text) {
        if (c == '\0') return yaml_error(source, line, "a zero byte is not text");
        if (c == '\t' && at_indent)
            return yaml_error(source, line, "indented with a tab; use spaces");
        if (c == '\n') ++line;
        at_indent = c == '\n' || (at_indent && c == ' ');
    }
    TreeBuilder builder;
    try {
        std::istringstream stream{std::string(text)};
        YAML::Parser parser(stream);
        if (!parser.HandleNextDocument(builder) || !builder.any)
            return yaml_error(source, 1, "the file is empty");
        TreeBuilder second;
        if (parser.HandleNextDocument(second) && second.any)
            return yaml_error(source, second.root.line, "more than one document");
    } catch (const Stop& stop) {
        return yaml_error(source, stop.line, stop.message);
    } catch (const YAML::Exception& problem) {
        return yaml_error(source, line_of(problem.mark), problem.msg);
    } catch (const std::exception& problem) {
        return yaml_error(source, 1, problem.what());
    }
    if (builder.root.kind == YamlNode::Kind::null)
        return yaml_error(source, 1, "the file is empty");
    return std::move(builder.root);
}

YamlReader::YamlReader(const YamlNode& node, std::string source, std::string what)
    : node_(node), source_(std::move(source)), what_(std::move(what)) {
    if (node.kind != YamlNode::Kind::mapping)
        fail(node.line, fmt::format("{} must be a mapping", what_));
}

void YamlReader::fail(std::uint32_t line, std::string message) {
    adopt(yaml_error(source_, line, std::move(message)));
}

void YamlReader::adopt(Error error) {
    if (failed_) return;
    failed_ = true;
    error_ = std::move(error);
}

const YamlNode* YamlReader::child(std::string_view key) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
    return node_.find(key);
}

YamlReader& YamlReader::require(std::string_view key) {
    if (node_.find(key) == nullptr) fail(node_.line, fmt::format("{} lacks '{}'", what_, key));
    return *this;
}

const YamlNode* YamlReader::scalar_at(std::string_view key) {
    const YamlNode* node = child(key);
    if (node == nullptr) return nullptr;
    if (node->kind == YamlNode::Kind::scalar) return node;
    fail(node->line, fmt::format("{}.{} must be a single value", what_, key));
    return nullptr;
}

YamlReader& YamlReader::text(std::string_view key, std::string& out) {
    if (const YamlNode* node = scalar_at(key)) out = node->scalar;
    return *this;
}

YamlReader& YamlReader::boolean(std::string_view key, bool& out) {
    const YamlNode* node = scalar_at(key);
    if (node == nullptr) return *this;
    if (!node->quoted && (node->scalar == "true" || node->scalar == "on"))
        out = true;
    else if (!node->quoted && (node->scalar == "false" || node->scalar == "off"))
        out = false;
    else
        fail(node->line,
             fmt::format("{}.{} is '{}', must be true or false", what_, key, node->scalar));
    return *this;
}

YamlReader& YamlReader::count(std::string_view key, std::uint64_t& out, std::uint64_t min,
                              std::uint64_t max) {
    const YamlNode* node = scalar_at(key);
    if (node == nullptr) return *this;
    std::uint64_t value = 0;
    if (!read_number(node->scalar, value) || value < min || value > max)
        fail(node->line, fmt::format("{}.{} is '{}', must be a whole number from {} to {}", what_,
                                     key, node->scalar, min, max));
    else
        out = value;
    return *this;
}

YamlReader& YamlReader::size(std::string_view key, std::uint64_t& out) {
    const YamlNode* node = scalar_at(key);
    if (node == nullptr) return *this;
    const Result<std::uint64_t> value = parse_size(node->scalar);
    if (!value)
        fail(node->line, fmt::format("{}.{}: {}", what_, key, value.error().message));
    else
        out = *value;
    return *this;
}

YamlReader& YamlReader::real(std::string_view key, double& out, double min, double max) {
    const YamlNode* node = scalar_at(key);
    if (node == nullptr) return *this;
    double value = 0;
    if (!read_number(node->scalar, value) || !std::isfinite(value) || value < min || value > max)
        fail(node->line, fmt::format("{}.{} is '{}', must be a number from {} to {}", what_, key,
                                     node->scalar, min, max));
    else
        out = value;
    return *this;
}

YamlReader& YamlReader::choice(std::string_view key, std::size_t& out,
                               std::span<const std::string_view> names) {
    const YamlNode* node = scalar_at(key);
    if (node == nullptr) return *this;
    const auto at = std::find(names.begin(), names.end(), node->scalar);
    if (at == names.end())
        fail(node->line, fmt::format("{}.{} is '{}', must be one of {}", what_, key, node->scalar,
                                     join(names)));
    else
        out = static_cast<std::size_t>(at - names.begin());
    return *this;
}

Status YamlReader::finish() {
    if (failed_) return error_;
    for (const auto& [name, child_node] : node_.entries) {
        if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
        return yaml_error(source_, child_node.line,
                          fmt::format("unknown key '{}' in {} (known: {})", name, what_,
                                      fmt::join(known_, ", ")));
    }
    return ok_status();
}

std::string yaml_scalar(std::string_view text) {
    const auto plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-' || c == '.' || c == '/';
    };
    const bool starts_plain =
        !text.empty() && ((text[0] >= 'a' && text[0] <= 'z') ||
                          (text[0] >= 'A' && text[0] <= 'Z') || text[0] == '/');
    constexpr std::string_view kReserved[] = {"null", "true", "false", "on", "off", "yes", "no"};
    const bool reserved =
        std::find(std::begin(kReserved), std::end(kReserved), text) != std::end(kReserved);
    if (starts_plain && !reserved && std::all_of(text.begin(), text.end(), plain))
        return std::string(text);
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (c == '\n')
            out += "\\n";
        else if (static_cast<unsigned char>(c) < 0x20)
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
            out += c;
    }
    return out + "\"";
}

}  // namespace plimsoll
