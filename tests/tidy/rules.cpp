#include "tests/tidy/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <span>

namespace plimsoll::test {
namespace {

constexpr std::size_t kColumnsMax = 100;
constexpr std::ptrdiff_t kTextCodeMax = 8;  // characters of code beside a text
constexpr std::size_t kFileLinesMax = 800;
constexpr std::size_t kFunctionLinesMax = 70;

/// Who may include whom. Standard headers are free but for those named here; a folder that is not
/// in the table may include everything.
struct Layer {
    std::string_view folder;
    std::vector<std::string_view> folders;  // of the project
    std::vector<std::string_view>
        libraries;                         // first part of headers in <> that have a slash or ".h"
    std::vector<std::string_view> banned;  // standard headers
    std::string_view why;
};
const std::vector<Layer> kLayers = {
    {"planner/",
     {"planner/"},
     {"yaml-cpp/", "nlohmann/", "fmt/", "fcntl.h", "sys/stat.h", "unistd.h"},
     {"thread", "mutex", "atomic", "condition_variable", "future", "chrono", "random"},
     "the planner is a pure function: hand it what it needs to know"},
    {"kernels/",
     {"kernels/"},
     {"immintrin.h"},
     {"fstream", "filesystem", "iostream", "chrono"},
     "kernels compute on memory they are handed: move this to runtime/"},
    {"offload/",
     {"offload/"},
     {"liburing.h", "fcntl.h", "sys/stat.h", "sys/mman.h", "sys/uio.h", "sys/vfs.h", "unistd.h"},
     {},
     "offload knows byte ranges and slots: move this to runtime/"},
    {"runtime/",
     {"planner/", "kernels/", "offload/", "runtime/"},
     {"fmt/", "nlohmann/", "pcre2.h", "fcntl.h", "sys/stat.h", "sys/mman.h", "unistd.h"},
     {"iostream"},
     "the runtime serves tools/, not the other way round"},
};

/// Words that may stand only in some places, and what to write instead.
struct Ban {
    std::string_view pattern;               // of code, without comments and strings
    std::vector<std::string_view> only_in;  // prefixes of paths where it may stand
    std::vector<std::string_view> not_in;   // prefixes where it may not; empty: everywhere else
    std::string_view instead;
};
const std::vector<Ban> kBans = {
    {R"(\bcudaMalloc\w*\s*\()",
     {"kernels/cuda/device.cu", "kernels/cuda/device_facts.cu", "tests/"},
     {},
     "carve a region of the arena (runtime/arena.hpp): nothing else allocates on a device"},
    {R"(\bcudaHostAlloc\s*\()",
     {"kernels/cuda/device.cu", "tests/"},
     {},
     "take a region of the pinned arena (runtime/arena.hpp)"},
    {R"(\bcudaDeviceSynchronize\s*\()",
     {},
     {"runtime/", "kernels/"},
     "wait for an event of the stream that is handed down"},
    {R"(\bgetenv\s*\()",
     {"tools/"},
     {},
     "read the environment once in tools/ and hand the value down"},
    {R"(\bassert\s*\()", {}, {}, "PLIMSOLL_CHECK, which stays on in release builds"},
    {R"(\b(std::)?(exit|_Exit|quick_exit)\s*\()",
     {},
     {"planner/", "kernels/", "offload/", "runtime/"},
     "return an error: only main decides the exit status"},
    {R"(\bstd::(cout|cerr|endl)\b)",
     {"tests/"},
     {},
     "hand the text to tools/, or fmt::print(stderr, ...) there"},
    {R"(\b(rand|srand)\s*\()", {}, {}, "a std::mt19937_64 with a seed that is printed"},
    {R"(\bcatch\s*\(\s*\.\.\.\s*\))", {"tests/"}, {}, "catch what the library documents"},
};

bool starts_with_any(std::string_view text, std::span<const std::string_view> prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](std::string_view prefix) { return text.starts_with(prefix); });
}

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        lines.push_back(text.substr(0, end));
        if (end == std::string_view::npos) break;
        text.remove_prefix(end + 1);
    }
    return lines;
}

/// One file on its way through the rules.
class Check {
public:
    Check(std::string_view path, std::string_view text)
        : path_(path),
          text_(text),
          code_(code_of(text)),
          lines_(lines_of(text)),
          code_lines_(lines_of(code_)) {}

    std::vector<Finding> run() {
        check_layout();
        check_includes();
        check_bans();
        check_todos();
        check_functions();
        return std::move(findings_);
    }

private:
    void add(std::size_t line_index, std::string message) {
        findings_.push_back(
            {std::string(path_), static_cast<std::uint32_t>(line_index + 1), std::move(message)});
    }
    void add_for_file(std::string message) {
        findings_.push_back({std::string(path_), 0, std::move(message)});
    }

    void check_layout();
    void check_includes();
    void check_include(std::size_t at, const Layer& layer, bool quoted, std::string_view header);
    void check_bans();
    void check_todos();
    void check_functions();

    std::string_view path_;
    std::string_view text_;
    std::string code_;
    std::vector<std::string_view> lines_;
    std::vector<std::string_view> code_lines_;
    std::vector<Finding> findings_;
};

std::size_t columns_of(std::string_view line) {
    // Code points; wide characters count as one, as clang-format's default does not.
    return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    }));
}

std::ptrdiff_t n_marks_of(std::string_view line) {
    return std::count_if(line.begin(), line.end(), [](char c) { return c != ' '; });
}

void Check::check_layout() {
    if (!text_.ends_with('\n')) add_for_file("no newline at the end: add one");
    if (lines_.size() > kFileLinesMax)
        add_for_file(fmt::format("{} lines: split it, one subject a file (at most {})",
                                 lines_.size(), kFileLinesMax));
    if (path_.ends_with(".hpp") && code_.find("#pragma once") == std::string::npos)
        add_for_file("no #pragma once: add it as the first line");
    bool is_table = false;  // a wide table is easier to read than a broken one
    for (std::size_t at = 0; at < lines_.size(); ++at) {
        const std::string_view line = lines_[at];
        if (line.ends_with("// clang-format off")) is_table = true;
        if (line.ends_with("// clang-format on")) is_table = false;
        if (line.find('\t') != std::string_view::npos) add(at, "a tab: use four spaces");
        if (line.ends_with(' ') || line.ends_with('\r'))
            add(at, "space at the end of the line: remove it");
        // Text that cannot be broken: a raw string with hardly any code about it.
        const bool is_text = n_marks_of(code_lines_[at]) <= kTextCodeMax &&
                             line.find("//") == std::string_view::npos;
        if (columns_of(line) > kColumnsMax && !is_table && !is_text)
            add(at, fmt::format("{} columns: break it at {}", columns_of(line), kColumnsMax));
    }
}

void Check::check_include(std::size_t at, const Layer& layer, bool quoted,
                          std::string_view header) {
    if (quoted) {
        if (!starts_with_any(header, layer.folders))
            add(at, fmt::format("{} may not include {}: {}", layer.folder, header, layer.why));
        return;
    }
    const bool is_library = header.find_first_of("/.") != std::string_view::npos;
    const bool is_cuda = path_.starts_with("kernels/cuda/") &&
                         (header.starts_with("cuda") || header.starts_with("cublas") ||
                          header.starts_with("cub/") || header.starts_with("mma"));
    const bool allowed = is_library ? is_cuda || starts_with_any(header, layer.libraries)
                                    : std::find(layer.banned.begin(), layer.banned.end(), header) ==
                                          layer.banned.end();
    if (!allowed)
        add(at, fmt::format("{} may not include <{}>: {}", layer.folder, header, layer.why));
}

void Check::check_includes() {
    static const std::regex kInclude(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
    const auto layer = std::find_if(kLayers.begin(), kLayers.end(), [&](const Layer& row) {
        return path_.starts_with(row.folder);
    });
    for (std::size_t at = 0; at < lines_.size(); ++at) {
        std::cmatch match;
        const std::string_view line = lines_[at];
        if (!std::regex_search(line.data(), line.data() + line.size(), match, kInclude)) continue;
        const std::string header = match[2];
        const bool quoted = match[1] == "\"";
        if (quoted && header.find('/') == std::string::npos)
            add(at,
                fmt::format("\"{}\" without its folder: write it from the source root", header));
        if (layer != kLayers.end()) check_include(at, *layer, quoted, header);
    }
}

void Check::check_bans() {
    for (const Ban& ban : kBans) {
        if (starts_with_any(path_, ban.only_in)) continue;
        if (!ban.not_in.empty() && !starts_with_any(path_, ban.not_in)) continue;
        const std::regex pattern{std::string(ban.pattern)};
        for (std::size_t at = 0; at < code_lines_.size(); ++at) {
            std::cmatch match;
            const std::string_view line = code_lines_[at];
            if (std::regex_search(line.data(), line.data() + line.size(), match, pattern))
                add(at, fmt::format("{}: {}", match.str(), ban.instead));
        }
    }
}

void Check::check_todos() {
    // Put together, so that this file does not find itself.
    static const std::regex kTodo(std::string("\\b(TO") + "DO|FIX" + "ME)\\b(?!\\([^)]{10,}\\))");
    for (std::size_t at = 0; at < lines_.size(); ++at) {
        const std::string_view line = lines_[at];
        if (std::regex_search(line.data(), line.data() + line.size(), kTodo))
            add(at,
                "something left to do without a reason: do it, or say in parentheses why not now");
    }
}

/// First line of the statement that `at` belongs to.
std::size_t statement_start(const std::vector<std::string_view>& lines, std::size_t at) {
    static const std::regex kEnds(R"([;{}:]\s*$|^\s*$|^#)");
    while (at > 0) {
        const std::string_view before = lines[at - 1];
        if (std::regex_search(before.begin(), before.end(), kEnds)) break;
        --at;
    }
    return at;
}

bool is_case(std::string_view line) {
    const std::size_t first = line.find_first_not_of(' ');
    return first != std::string_view::npos && line.substr(first).starts_with("case ");
}

/// Relies on the layout that clang-format gives: a function ends at a brace in the column where it
/// began, which is the first or, in a class, the fifth.
void Check::check_functions() {
    static const std::regex kOpens(R"(\)[^;=]*\{\s*$)");
    static const std::regex kFunction(
        "^( {4})?(?!if|for|while|switch|else|do\\b|try|namespace|struct|class|enum|union)"
        "[A-Za-z_~\\[:]");
    for (std::size_t at = 0; at < code_lines_.size(); ++at) {
        const std::string_view line = code_lines_[at];
        if (!std::regex_search(line.begin(), line.end(), kOpens)) continue;
        const std::size_t first = statement_start(code_lines_, at);
        std::cmatch match;
        const std::string_view begin = code_lines_[first];
        if (!std::regex_search(begin.data(), begin.data() + begin.size(), match, kFunction))
            continue;
        const std::string end = match.str(1) + "}";
        std::size_t last = at + 1;
        std::size_t n_cases = 0;  // a switch with a line a case is a table
        for (; last < code_lines_.size() && !code_lines_[last].starts_with(end); ++last)
            if (is_case(code_lines_[last])) ++n_cases;
        const std::size_t n_lines = last - first + 1 - n_cases;
        if (n_lines > kFunctionLinesMax)
            add(first, fmt::format("a function of {} lines: split it (at most {})", n_lines,
                                   kFunctionLinesMax));
        at = last;
    }
}

/// End of the literal that begins at `at` with its quote; `prefix` tells raw strings.
std::size_t literal_end(std::string_view text, std::size_t at) {
    const char quote = text[at];
    if (quote == '"' && at > 0 && text[at - 1] == 'R') {
        const std::size_t open = text.find('(', at);
        if (open == std::string_view::npos) return text.size();
        const std::string close = ")" + std::string(text.substr(at + 1, open - at - 1)) + "\"";
        const std::size_t end = text.find(close, open);
        return end == std::string_view::npos ? text.size() : end + close.size();
    }
    for (std::size_t end = at + 1; end < text.size(); ++end) {
        if (text[end] == '\\')
            ++end;
        else if (text[end] == quote)
            return end + 1;
        else if (text[end] == '\n')
            return end;
    }
    return text.size();
}

}  // namespace

std::string describe(const Finding& finding) {
    return finding.line == 0
               ? fmt::format("{}: {}", finding.path, finding.message)
               : fmt::format("{}:{}: {}", finding.path, finding.line, finding.message);
}

std::vector<Finding> check_source(std::string_view path, std::string_view text) {
    return Check(path, text).run();
}

std::string code_of(std::string_view text) {
    std::string code(text);
    const auto blank = [&](std::size_t first, std::size_t last) {
        for (std::size_t at = first; at < std::min(last, code.size()); ++at)
            if (code[at] != '\n') code[at] = ' ';
        return last;
    };
    const auto is_word = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    };
    for (std::size_t at = 0; at < text.size();) {
        if (text.substr(at).starts_with("//")) {
            at = blank(at, std::min(text.find('\n', at), text.size()));
        } else if (text.substr(at).starts_with("/*")) {
            const std::size_t end = text.find("*/", at + 2);
            at = blank(at, end == std::string_view::npos ? text.size() : end + 2);
        } else if (text[at] == '"') {
            at = blank(at, literal_end(text, at));
        } else if (text[at] == '\'' && (at == 0 || !is_word(text[at - 1]))) {
            // After a digit it separates thousands.
            at = blank(at, literal_end(text, at));
        } else {
            ++at;
        }
    }
    return code;
}

}  // namespace plimsoll::test
