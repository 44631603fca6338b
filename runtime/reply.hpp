#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat.hpp"

namespace plimsoll {

/// What a generated turn says.
struct Reply {
    std::string reasoning;
    std::string content;
    std::vector<ToolCall> tool_calls;  // without ids; arguments as a JSON object
    bool malformed_calls = false;  // a block of calls that cannot be read; it is left in `content`

    bool operator==(const Reply&) const = default;
};

/// Takes a generated turn apart. `text` is what the model wrote after the marker, without EOS.
///
/// In thinking mode all up to the last `</think>` is reasoning, or all there is where the turn was
/// cut off before. A block of calls may lack the marker or its first bar, as the model at times
/// writes it. Values of string parameters are taken as they are, except that a closing tag escaped
/// by `render_tool_calls` is restored.
[[nodiscard]] Reply parse_reply(std::string_view text, ThinkMode think);

}  // namespace plimsoll
