#include "runtime/utf8.hpp"

namespace plimsoll {
namespace {

/// Table 3-7 of the Unicode standard: which first bytes exist, and the range of the second byte.
/// Bytes after the second are always 80..BF.
struct LeadByte {
    std::uint8_t first, last;  // of the lead byte
    std::uint8_t size_bytes;
    std::uint8_t second_min, second_max;
};
constexpr LeadByte kLeadBytes[] = {
    {0xC2, 0xDF, 2, 0x80, 0xBF}, {0xE0, 0xE0, 3, 0xA0, 0xBF}, {0xE1, 0xEC, 3, 0x80, 0xBF},
    {0xED, 0xED, 3, 0x80, 0x9F}, {0xEE, 0xEF, 3, 0x80, 0xBF}, {0xF0, 0xF0, 4, 0x90, 0xBF},
    {0xF1, 0xF3, 4, 0x80, 0xBF}, {0xF4, 0xF4, 4, 0x80, 0x8F},
};

const LeadByte* find_lead(std::uint8_t byte) {
    for (const LeadByte& lead : kLeadBytes) {
        if (byte >= lead.first && byte <= lead.last) return &lead;
    }
    return nullptr;
}

}  // namespace

Utf8Char decode_utf8(std::string_view text) {
    const auto byte_at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
    const std::uint8_t first = byte_at(0);
    if (first < 0x80) return {.code_point = first, .size_bytes = 1};
    const LeadByte* lead = find_lead(first);
    if (lead == nullptr) return {.invalid_bytes = 1};

    char32_t code_point = first & (0x7Fu >> lead->size_bytes);
    for (std::uint8_t i = 1; i < lead->size_bytes; ++i) {
        if (i == text.size()) return {.truncated_bytes = i};
        const std::uint8_t next = byte_at(i);
        const std::uint8_t min = i == 1 ? lead->second_min : std::uint8_t{0x80};
        const std::uint8_t max = i == 1 ? lead->second_max : std::uint8_t{0xBF};
        if (next < min || next > max) return {.invalid_bytes = i};
        code_point = (code_point << 6) | (next & 0x3Fu);
    }
    return {.code_point = code_point, .size_bytes = lead->size_bytes};
}

void append_utf8(char32_t code_point, std::string& out) {
    const auto push = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code_point < 0x80) {
        push(code_point);
    } else if (code_point < 0x800) {
        push(0xC0 | code_point >> 6);
        push(0x80 | (code_point & 0x3F));
    } else if (code_point < 0x10000) {
        push(0xE0 | code_point >> 12);
        push(0x80 | (code_point >> 6 & 0x3F));
        push(0x80 | (code_point & 0x3F));
    } else {
        push(0xF0 | code_point >> 18);
        push(0x80 | (code_point >> 12 & 0x3F));
        push(0x80 | (code_point >> 6 & 0x3F));
        push(0x80 | (code_point & 0x3F));
    }
}

std::size_t valid_utf8_prefix_bytes(std::string_view text) {
    std::size_t end = 0;
    while (end < text.size()) {
        const Utf8Char next = decode_utf8(text.substr(end));
        if (next.size_bytes == 0) break;
        end += next.size_bytes;
    }
    return end;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
    held_.append(bytes);
    std::string_view rest = held_;
    while (!rest.empty()) {
        const Utf8Char next = decode_utf8(rest);
        if (next.truncated_bytes != 0) break;
        if (next.size_bytes != 0) {
            out.append(rest.substr(0, next.size_bytes));
        } else {
            out.append(kReplacementCharacter);
        }
        rest.remove_prefix(next.size_bytes + next.invalid_bytes);
    }
    held_.erase(0, held_.size() - rest.size());
}

void Utf8Stream::finish(std::string& out) {
    if (!held_.empty()) out.append(kReplacementCharacter);
    held_.clear();
}

}  // namespace plimsoll
