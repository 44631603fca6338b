#include "runtime/pretokenizer.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "planner/check.hpp"
#include "runtime/utf8.hpp"

namespace plimsoll {
namespace {

/// The white space of the reference, Unicode's White_Space. Spelled out because PCRE2's own \s also
/// takes U+180E.
#define SPACE_SET "\\t-\\r\\x{85}\\p{Z}"

/// The three splits of the reference (tokenizer.json of DeepSeek-V3, `pre_tokenizer`), each applied
/// inside the pieces that the one before it left, matched or not.
constexpr std::array<std::string_view, 3> kSplits = {
    "\\p{N}{1,3}",

    "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",

    "[!-/:-@\\[-`{-~][A-Za-z]+"
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*"
    "|[" SPACE_SET
    "]*[\\r\\n]+"
    "|[" SPACE_SET "]+(?![^" SPACE_SET
    "])"
    "|[" SPACE_SET "]+",
};
#undef SPACE_SET

struct CodeDeleter {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataDeleter {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextDeleter {
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;
using MatchData = std::unique_ptr<pcre2_match_data, MatchDataDeleter>;
using MatchContext = std::unique_ptr<pcre2_match_context, MatchContextDeleter>;

Result<Code> compile(std::string_view pattern) {
    int code_or_error = 0;
    PCRE2_SIZE offset = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                            PCRE2_UTF | PCRE2_UCP, &code_or_error, &offset, nullptr));
    if (code == nullptr) {
        std::array<PCRE2_UCHAR, 128> text{};
        pcre2_get_error_message(code_or_error, text.data(), text.size());
        return Error{ErrorKind::internal,
                     std::string("the PCRE2 library cannot compile the tokenizer's patterns (") +
                         reinterpret_cast<const char*>(text.data()) +
                         "); it must be built with Unicode support"};
    }
    // Where there is no JIT for the machine, or executable pages are forbidden, the interpreter
    // does the same slower.
    (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    return code;
}

/// Appends the matches of `code` in `piece` and the text between them. `piece` is valid UTF-8.
void split_piece(const pcre2_code* code, pcre2_match_data* data, pcre2_match_context* context,
                 std::string_view piece, std::vector<std::string_view>& out) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
    std::size_t begin = 0;
    while (begin < piece.size()) {
        const int found =
            pcre2_match(code, subject, piece.size(), begin, PCRE2_NO_UTF_CHECK, data, context);
        if (found == PCRE2_ERROR_NOMATCH) break;
        PLIMSOLL_CHECK(found > 0, "PCRE2 error " + std::to_string(found) + " in a piece of " +
                                      std::to_string(piece.size()) + " bytes");
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);  // no pattern matches nothing
        if (range[0] > begin) out.push_back(piece.substr(begin, range[0] - begin));
        out.push_back(piece.substr(range[0], range[1] - range[0]));
        begin = range[1];
    }
    if (begin < piece.size()) out.push_back(piece.substr(begin));
}

/// Length of the run of bytes at the front of `text` that belong to no code point.
std::size_t invalid_run_bytes(std::string_view text) {
    std::size_t end = 0;
    while (end < text.size()) {
        const Utf8Char next = decode_utf8(text.substr(end));
        if (next.size_bytes != 0) break;
        end += next.invalid_bytes + next.truncated_bytes;
    }
    return end;
}

}  // namespace

struct Pretokenizer::Patterns {
    std::array<Code, kSplits.size()> codes;
    MatchContext context;
};

Pretokenizer::Pretokenizer(std::unique_ptr<Patterns> patterns) : patterns_(std::move(patterns)) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Result<Pretokenizer> Pretokenizer::create() {
    auto patterns = std::make_unique<Patterns>();
    for (std::size_t i = 0; i < kSplits.size(); ++i) {
        Result<Code> code = compile(kSplits[i]);
        if (!code) return code.error();
        patterns->codes[i] = std::move(code).value();
    }
    // The default limit of ten million steps would end a match inside a few megabytes of blanks.
    // Every pattern here takes time linear in the text, so no limit is needed.
    patterns->context.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(patterns->context.get(), std::numeric_limits<std::uint32_t>::max());
    return Pretokenizer(std::move(patterns));
}

std::vector<std::string_view> Pretokenizer::split(std::string_view text) const {
    std::vector<std::string_view> out;
    const MatchData data(pcre2_match_data_create(1, nullptr));
    while (!text.empty()) {
        const std::size_t valid_bytes = valid_utf8_prefix_bytes(text);
        if (valid_bytes == 0) {
            const std::size_t invalid_bytes = invalid_run_bytes(text);
            out.push_back(text.substr(0, invalid_bytes));
            text.remove_prefix(invalid_bytes);
            continue;
        }
        std::vector<std::string_view> pieces = {text.substr(0, valid_bytes)};
        text.remove_prefix(valid_bytes);
        for (const Code& code : patterns_->codes) {
            std::vector<std::string_view> finer;
            finer.reserve(pieces.size() + 8);
            for (const std::string_view piece : pieces) {
                split_piece(code.get(), data.get(), patterns_->context.get(), piece, finer);
            }
            pieces = std::move(finer);
        }
        out.insert(out.end(), pieces.begin(), pieces.end());
    }
    return out;
}

}  // namespace plimsoll
