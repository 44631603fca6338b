#include "tests/fuzz/mutation.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

namespace plimsoll::test {
namespace {

using Random = std::mt19937_64;
using Pool = std::vector<std::string>;

constexpr std::size_t kPieceBytesMax = 256;
constexpr std::size_t kInputBytesMax = 1 << 20;

/// Where counts, lengths and offsets wrap, end or change sign.
constexpr std::uint64_t kNumbers[] = {0,
                                      1,
                                      3,
                                      0x7f,
                                      0x80,
                                      0xff,
                                      0xffff,
                                      0x10000,
                                      0x7fffffff,
                                      0x80000000,
                                      0xffffffff,
                                      0x100000000,
                                      std::uint64_t{1} << 61,
                                      ~std::uint64_t{0} >> 1,
                                      ~std::uint64_t{0} - 31,
                                      ~std::uint64_t{0}};
/// The same in text, and what means something to a reader of YAML.
constexpr std::string_view kWords[] = {"0",
                                       "-1",
                                       "1e309",
                                       "nan",
                                       "18446744073709551616",
                                       "9223372036854775808",
                                       "null",
                                       "true",
                                       "{",
                                       "}",
                                       "[",
                                       "]",
                                       ": ",
                                       "- ",
                                       "\n",
                                       "\n  ",
                                       "\t",
                                       "&a",
                                       "*a",
                                       "!!",
                                       "<<: ",
                                       "\"\\n\"",
                                       "| ",
                                       "#"};

std::size_t below(std::size_t limit, Random& random) { return limit == 0 ? 0 : random() % limit; }

/// A piece of `text` that may be empty.
std::string_view piece_of(std::string_view text, Random& random) {
    const std::size_t first = below(text.size() + 1, random);
    return text.substr(first, below(kPieceBytesMax + 1, random));
}

void flip_bit(std::string& text, const Pool&, Random& random) {
    if (!text.empty()) text[below(text.size(), random)] ^= static_cast<char>(1 << random() % 8);
}

void set_byte(std::string& text, const Pool&, Random& random) {
    if (!text.empty()) text[below(text.size(), random)] = static_cast<char>(random() % 256);
}

void set_number(std::string& text, const Pool&, Random& random) {
    const std::uint64_t number = kNumbers[random() % std::size(kNumbers)];
    const std::size_t size = std::min<std::size_t>(std::size_t{1} << random() % 4, text.size());
    std::memcpy(text.data() + below(text.size() - size + 1, random), &number, size);
}

void insert_word(std::string& text, const Pool&, Random& random) {
    text.insert(below(text.size() + 1, random), kWords[random() % std::size(kWords)]);
}

/// A run of digits becomes another number.
void replace_digits(std::string& text, const Pool&, Random& random) {
    constexpr std::string_view kDigits = "0123456789";
    const std::size_t first = text.find_first_of(kDigits, below(text.size() + 1, random));
    if (first == std::string::npos) return;
    const std::size_t end = std::min(text.find_first_not_of(kDigits, first), text.size());
    text.replace(first, end - first, kWords[random() % std::size(kWords)]);
}

void drop_piece(std::string& text, const Pool&, Random& random) {
    const std::string_view piece = piece_of(text, random);
    text.erase(static_cast<std::size_t>(piece.data() - text.data()), piece.size());
}

void repeat_piece(std::string& text, const Pool&, Random& random) {
    const std::string piece(piece_of(text, random));
    std::size_t times = random() % 8 == 0 ? 1 + random() % 64 : 1;
    const std::size_t at = below(text.size() + 1, random);
    for (; times > 0 && text.size() < kInputBytesMax; --times) text.insert(at, piece);
}

void take_piece(std::string& text, const Pool& others, Random& random) {
    const std::string piece(piece_of(others[random() % others.size()], random));
    text.insert(below(text.size() + 1, random), piece);
}

void cut(std::string& text, const Pool&, Random& random) {
    if (random() % 4 == 0) text.resize(below(text.size() + 1, random));
}

using Mutation = void (*)(std::string&, const Pool&, Random&);
constexpr Mutation kMutations[] = {flip_bit,     set_byte,       set_number,
                                   insert_word,  replace_digits, drop_piece,
                                   repeat_piece, take_piece,     cut};

}  // namespace

std::string mutated(std::string text, const std::vector<std::string>& others,
                    std::mt19937_64& random) {
    for (std::uint64_t edits = 1 + random() % 4; edits > 0; --edits)
        kMutations[random() % std::size(kMutations)](text, others, random);
    return text;
}

}  // namespace plimsoll::test
