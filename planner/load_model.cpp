#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "planner/gguf.hpp"
#include "planner/gguf_model.hpp"
#include "planner/inventory.hpp"
#include "planner/model.hpp"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> inventory_names(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
        if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
    std::sort(names.begin(), names.end());
    return names;
}

Result<Model> load_inventory(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) return Error{ErrorKind::bad_file, fmt::format("{}: cannot read", path.string())};
    const Result<Inventory> inventory = parse_inventory(text.str(), path.string());
    if (!inventory) return inventory.error();
    return model_from_inventory(*inventory);
}

/// A name is a file of the models folder and nothing else: no path, no ending.
bool is_name(const std::string& text) {
    return !text.empty() && text.find_first_of("/.") == std::string::npos;
}

}  // namespace

Result<Model> load_model(const std::string& text, const std::string& config_dir) {
    std::error_code ignored;
    const fs::path folder = fs::path(config_dir) / "models";
    const fs::path named = folder / (text + ".yaml");
    // A file in the working folder does not hide an inventory of the same name: "./flash-q2" names
    // the file.
    if (is_name(text) && fs::is_regular_file(named, ignored)) return load_inventory(named);
    if (fs::path(text).extension() == ".yaml" && fs::is_regular_file(text, ignored))
        return load_inventory(text);
    if (is_name(text) && !fs::exists(text, ignored))
        return Error{ErrorKind::bad_file,
                     fmt::format("no model '{}': neither a file nor one of {}", text,
                                 fmt::join(inventory_names(folder), ", "))};
    const Result<GgufFile> file = read_gguf(text);
    if (!file) return file.error();
    return model_from_gguf(*file);
}

}  // namespace plimsoll
