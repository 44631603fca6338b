#include "tools/synth_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "planner/units.hpp"
#include "runtime/synthetic.hpp"

namespace plimsoll {
namespace {

// Large enough that a write costs less than making its bytes, small enough to share out evenly.
constexpr std::uint64_t kPieceBytes = 4 * kMiB;

/// A piece of one tensor, made and written at once.
struct Piece {
    std::uint32_t tensor = 0;
    std::uint64_t offset_bytes = 0;  // in the tensor
    std::uint64_t size_bytes = 0;
};

/// The ranges cut by tensors and to pieces; ranges outside all tensors have no bytes of ours.
std::vector<Piece> cut(const SynthJob& job) {
    std::vector<Piece> pieces;
    for (const FileRange& range : job.ranges) {
        const std::uint64_t range_end = range.first_byte + range.size_bytes;
        for (std::uint32_t index = 0; index < job.model->tensors.size(); ++index) {
            const Tensor& tensor = job.model->tensors[index];
            const std::uint64_t tensor_end = tensor.file_offset_bytes + tensor.size_bytes;
            const std::uint64_t end = std::min(range_end, tensor_end);
            for (std::uint64_t at = std::max(range.first_byte, tensor.file_offset_bytes);
                 at < end;) {
                const std::uint64_t size_bytes = std::min(kPieceBytes, end - at);
                pieces.push_back({index, at - tensor.file_offset_bytes, size_bytes});
                at += size_bytes;
            }
        }
    }
    return pieces;
}

/// A file descriptor that closes itself, and the file that goes away unless it is kept.
class PartFile {
public:
    explicit PartFile(std::string path)
        : path_(std::move(path)),
          descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {}
    ~PartFile() {
        if (descriptor_ >= 0) ::close(descriptor_);
        if (descriptor_ >= 0 && !kept_) ::unlink(path_.c_str());
    }
    PartFile(const PartFile&) = delete;
    PartFile& operator=(const PartFile&) = delete;

    [[nodiscard]] int descriptor() const { return descriptor_; }
    /// Moves the file to its place; 0, or an errno.
    [[nodiscard]] int keep_as(const std::string& path) {
        if (::rename(path_.c_str(), path.c_str()) != 0) return errno;
        kept_ = true;
        return 0;
    }

private:
    std::string path_;
    int descriptor_;
    bool kept_ = false;
};

/// 0, or the errno that stopped it.
int write_all(int descriptor, std::uint64_t offset_bytes, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t done =
            ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        offset_bytes += static_cast<std::uint64_t>(done);
        bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
    return 0;
}

Error failed(const std::string& path, int problem) {
    return {ErrorKind::bad_file, fmt::format("{}: {}", path, std::strerror(problem))};
}

Status check_room(const SynthJob& job) {
    std::uint64_t needed_bytes = job.model->header.size();
    for (const FileRange& range : job.ranges) needed_bytes += range.size_bytes;
    std::filesystem::path folder = std::filesystem::path(job.path).parent_path();
    if (folder.empty()) folder = ".";
    std::error_code problem;
    const std::filesystem::space_info space = std::filesystem::space(folder, problem);
    if (problem)
        return Error{ErrorKind::bad_file,
                     fmt::format("{}: {}", folder.string(), problem.message())};
    if (space.available >= needed_bytes) return ok_status();
    return Error{
        ErrorKind::bad_file,
        fmt::format(
            "{}: needs {}, the disk has {} free: short by {} (--sparse writes the header and "
            "leaves holes)",
            job.path, format_bytes(needed_bytes), format_bytes(space.available),
            format_mib(needed_bytes - space.available))};
}

/// Takes pieces in turn until none is left or a write fails.
class PieceWriter {
public:
    PieceWriter(const SynthJob& job, const std::vector<Piece>& pieces, int descriptor)
        : job_(job), pieces_(pieces), descriptor_(descriptor) {
        for (const Tensor& tensor : job.model->tensors)
            tensors_.emplace_back(job.model->seed, tensor, job.model->hyper.n_experts);
    }

    void work() {
        std::vector<std::byte> bytes;
        while (problem_.load() == 0) {
            const std::size_t index = next_.fetch_add(1);
            if (index >= pieces_.size()) return;
            const Piece& piece = pieces_[index];
            bytes.resize(piece.size_bytes);
            tensors_[piece.tensor].fill(piece.offset_bytes, bytes);
            const std::uint64_t at =
                job_.model->tensors[piece.tensor].file_offset_bytes + piece.offset_bytes;
            if (const int problem = write_all(descriptor_, at, bytes); problem != 0)
                problem_.store(problem);
            done_bytes_.fetch_add(piece.size_bytes);
        }
    }

    /// Lets no thread begin another piece.
    void stop(int problem) { problem_.store(problem); }
    [[nodiscard]] bool finished() const {
        return problem_.load() != 0 || next_.load() >= pieces_.size();
    }
    [[nodiscard]] std::uint64_t done_bytes() const { return done_bytes_.load(); }
    [[nodiscard]] int problem() const { return problem_.load(); }

private:
    const SynthJob& job_;
    const std::vector<Piece>& pieces_;
    int descriptor_;
    std::vector<SyntheticTensor> tensors_;
    std::atomic<std::size_t> next_ = 0;
    std::atomic<std::uint64_t> done_bytes_ = 0;
    std::atomic<int> problem_ = 0;
};

}  // namespace

std::vector<FileRange> all_ranges(const SyntheticModel& model) {
    std::vector<FileRange> ranges;
    for (const Tensor& tensor : model.tensors)
        ranges.push_back({tensor.file_offset_bytes, tensor.size_bytes});
    return ranges;
}

Status write_synthetic_file(const SynthJob& job, const std::function<bool(std::uint64_t)>& go_on) {
    if (const Status room = check_room(job); !room) return room;
    const std::vector<Piece> pieces = cut(job);
    PartFile part(job.path + ".part");
    if (part.descriptor() < 0) return failed(job.path + ".part", errno);
    if (::ftruncate(part.descriptor(), static_cast<off_t>(job.model->file_bytes)) != 0)
        return failed(job.path, errno);
    const auto header = std::as_bytes(std::span(job.model->header));
    if (const int problem = write_all(part.descriptor(), 0, header); problem != 0)
        return failed(job.path, problem);

    PieceWriter writer(job, pieces, part.descriptor());
    std::vector<std::thread> threads;
    for (std::uint32_t index = 0; index < std::max(1u, job.threads); ++index)
        threads.emplace_back([&] { writer.work(); });
    while (!writer.finished()) {
        if (!go_on(writer.done_bytes())) writer.stop(ECANCELED);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    for (std::thread& thread : threads) thread.join();
    (void)go_on(writer.done_bytes());
    if (writer.problem() == ECANCELED) return Error{ErrorKind::interrupted, "interrupted"};
    if (writer.problem() != 0) return failed(job.path, writer.problem());
    if (const int problem = part.keep_as(job.path); problem != 0) return failed(job.path, problem);
    return ok_status();
}

}  // namespace plimsoll
