#include "planner/pack_exact.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <tuple>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

constexpr std::uint64_t kDead = std::numeric_limits<std::uint64_t>::max();

struct Strategy { int section; int order; };

struct Item {
    std::uint64_t size;
    std::uint64_t align;
    std::uint32_t lo, hi;   // sections
    std::uint32_t source;
    std::vector<std::uint32_t> neighbours;
    std::uint32_t hull_lo, hull_hi;
};

struct Search {
    std::vector<Item> items;
    std::vector<std::vector<std::uint32_t>> live;  // by section: items
    std::uint64_t capacity;
    // state
    std::vector<std::uint64_t> floor, total, min_off, real_off, offset;
    std::vector<std::uint32_t> cut;  // cut[s]: unplaced crossing s-1|s
    std::vector<char> placed;
    std::vector<std::pair<std::uint64_t*, std::uint64_t>> trail;
    std::vector<std::uint32_t> placements;
    std::uint64_t nodes = 0, limit = 0;
    bool stopped = false;
    Strategy strategy{};

    void set(std::uint64_t& cell, std::uint64_t v) { trail.emplace_back(&cell, cell); cell = v; }

    void undo(std::size_t trail_mark, std::size_t place_mark) {
        while (trail.size() > trail_mark) { *trail.back().first = trail.back().second; trail.pop_back(); }
        while (placements.size() > place_mark) {
            auto j = placements.back(); placements.pop_back();
            placed[j] = 0;
            for (auto s = items[j].lo + 1; s < items[j].hi; ++s) ++cut[s];
        }
    }

    // recompute the sections [lo,hi)
    bool refresh(std::uint32_t lo, std::uint32_t hi) {
        for (auto s = lo; s < hi; ++s) {
            std::uint64_t m = kDead;
            for (auto k : live[s]) if (!placed[k]) m = std::min(m, min_off[k]);
            if (m > floor[s]) set(floor[s], m);
            if (m == kDead) continue;
            if (m + total[s] > capacity) return false;
        }
        static const bool heads = !getenv("NOHEADS");
        if (heads) {
            static thread_local std::vector<std::pair<std::uint64_t, std::uint64_t>> h;
            for (auto s = lo; s < hi; ++s) {
                h.clear();
                for (auto k : live[s]) if (!placed[k]) h.emplace_back(min_off[k], items[k].size);
                std::sort(h.begin(), h.end());
                std::uint64_t end = 0;
                for (auto& [o, z] : h) end = std::max(end, o) + z;
                if (end > capacity) return false;
            }
        }
        static const bool dom = !getenv("NODOM");
        if (dom) {
        for (auto s = lo; s < hi; ++s)
            for (auto k : live[s]) {
                if (placed[k] || (items[k].lo != s && s != lo)) continue;
                const std::uint64_t top = real_off[k] + items[k].size;
                if (floor[s] < top) continue;
                bool drop = true;
                for (auto t = items[k].lo; t < items[k].hi; ++t) if (floor[t] < top) { drop = false; break; }
                if (drop) return false;
            }
        }
        return true;
    }

    bool place(std::uint32_t j, std::uint64_t off) {
        const Item& it = items[j];
        placed[j] = 1; offset[j] = off; placements.push_back(j);
        const std::uint64_t end = off + it.size;
        for (auto s = it.lo; s < it.hi; ++s) { set(total[s], total[s] - it.size); set(floor[s], end); }
        for (auto s = it.lo + 1; s < it.hi; ++s) --cut[s];
        std::uint32_t lo = it.lo, hi = it.hi;
        for (auto m : it.neighbours) {
            if (placed[m]) continue;
            const std::uint64_t at = align_up(end, items[m].align);
            if (at > real_off[m]) set(real_off[m], at);
            if (at > min_off[m]) {
                if (at + items[m].size > capacity) return false;
                set(min_off[m], at);
                lo = std::min(lo, items[m].lo); hi = std::max(hi, items[m].hi);
            }
        }
        return refresh(lo, hi);
    }

    std::uint64_t waste_floor(std::uint32_t s) const {
        std::uint64_t best = kDead;
        for (auto k : live[s]) {
            if (placed[k]) continue;
            if (real_off[k] > floor[s] && real_off[k] >= min_off[k]) { best = std::min(best, min_off[k]); continue; }
            std::uint64_t lb = kDead;
            for (auto m : items[k].neighbours) {
                if (placed[m] || (items[m].lo <= s && s < items[m].hi)) continue;
                lb = std::min(lb, align_up(min_off[m] + items[m].size, items[k].align));
            }
            if (real_off[k] > floor[s]) lb = std::min(lb, real_off[k]);
            lb = std::max(lb, min_off[k]);
            best = std::min(best, lb);
        }
        return best;
    }

    bool waste(std::uint32_t s) {
        const std::uint64_t f = waste_floor(s);
        if (f == kDead || f + total[s] > capacity) return false;
        set(floor[s], f);
        std::uint32_t lo = s, hi = s + 1;
        for (auto k : live[s]) {
            if (placed[k]) continue;
            const std::uint64_t at = align_up(f, items[k].align);
            if (at <= min_off[k]) continue;
            if (at + items[k].size > capacity) return false;
            set(min_off[k], at);
            lo = std::min(lo, items[k].lo); hi = std::max(hi, items[k].hi);
        }
        return refresh(lo, hi);
    }

    bool solve(std::uint32_t lo, std::uint32_t hi) {
        // split into components
        for (auto s = lo; s < hi;) {
            if (floor[s] == kDead) { ++s; continue; }
            auto e = s + 1;
            while (e < hi && cut[e] != 0) ++e;
            if (!branch(s, e)) return false;
            s = e;
        }
        return true;
    }

    bool candidate(std::uint32_t k, std::uint64_t f) const {
        return !placed[k] && min_off[k] == f && real_off[k] == f;
    }
    bool twin_first(std::uint32_t k, std::uint32_t s) const {
        for (auto m : live[s]) { if (m >= k) return false;
            if (!placed[m] && items[m].lo == items[k].lo && items[m].hi == items[k].hi && items[m].size == items[k].size && items[m].align == items[k].align) return true; }
        return false;
    }

    std::uint32_t choose(std::uint32_t lo, std::uint32_t hi) const {
        std::uint32_t best = lo; std::tuple<std::uint64_t, std::uint64_t> best_key{kDead, kDead};
        for (auto s = lo; s < hi;) {
            if (floor[s] == kDead) { ++s; continue; }
            auto e = s + 1;
            while (e < hi && floor[e] == floor[s]) ++e;
            const bool valley = (s == lo || floor[s - 1] > floor[s]) && (e == hi || floor[e] > floor[s]);
            if (valley)
                for (auto t = s; t < e; ++t) {
                    const std::uint64_t slack = capacity - floor[t] - total[t];
                    std::uint64_t c = 0;
                    for (auto k : live[t]) c += candidate(k, floor[t]);
                    std::tuple<std::uint64_t, std::uint64_t> key;
                    switch (strategy.section) {
                        case 0: key = {slack, c}; break;
                        case 1: key = {c, slack}; break;
                        case 2: key = {floor[t], slack}; break;
                        case 3: key = {floor[t], c}; break;
                        default: key = {slack + c * capacity / 16, c}; break;
                    }
                    if (key < best_key) { best_key = key; best = t; }
                }
            s = e;
        }
        return best;
    }

    bool branch(std::uint32_t lo, std::uint32_t hi) {
        if (stopped) return false;
        if (nodes >= limit) { stopped = true; return false; }
        ++nodes;
        const std::uint32_t s = choose(lo, hi);
        const std::uint64_t f = floor[s];
        std::vector<std::uint32_t> options;
        for (auto k : live[s]) if (candidate(k, f) && !twin_first(k, s)) options.push_back(k);
        const auto tm = trail.size(), pm = placements.size();
        for (auto k : options) {
            bool covers = true;
            for (auto m : items[k].neighbours) if (!placed[m] && min_off[m] < f + items[k].size) { covers = false; break; }
            if (place(k, f) && solve(lo, hi)) return true;
            undo(tm, pm);
            if (covers || stopped) return false;
        }
        if (waste(s) && solve(lo, hi)) return true;
        undo(tm, pm);
        return false;
    }
};

}  // namespace

static std::uint64_t order_key(const Item& i, std::uint64_t t, int order) {
    const std::uint64_t w = i.hi - i.lo;
    switch (order) {
        case 0: return w << 40 | i.size >> 0;
        case 1: return w * i.size;
        case 2: return i.size << 12 | w;
        case 3: return t;
        default: return i.neighbours.size() << 40 | i.size;
    }
}

ExactResult pack_within(std::span<const Block> blocks, std::uint64_t capacity_bytes,
                        std::uint64_t node_count_max) {
    ExactResult result;
    result.offset_bytes.assign(blocks.size(), 0);
    std::vector<std::uint32_t> starts, ends;
    std::uint64_t unit = 0;
    for (auto& b : blocks) { starts.push_back(b.lifetime.first_op); ends.push_back(b.lifetime.last_op); unit = std::gcd(unit, b.size_bytes); }
    bool all = true;
    for (auto& b : blocks) if (unit % b.alignment_bytes) all = false;
    if (!all) for (auto& b : blocks) unit = std::gcd(unit, b.alignment_bytes);
    if (unit) capacity_bytes -= capacity_bytes % unit;
    std::sort(starts.begin(), starts.end()); std::sort(ends.begin(), ends.end());
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    std::vector<std::uint32_t> points;
    for (std::size_t i = 0; i < starts.size(); ++i) {
        auto it = std::upper_bound(ends.begin(), ends.end(), starts[i]);
        if (i + 1 == starts.size() || (it != ends.end() && *it <= starts[i + 1])) points.push_back(starts[i]);
    }
    const char* e1 = getenv("SEC"); const char* e2 = getenv("ORD");
    for (std::uint64_t budget = 2 * blocks.size();; budget *= 2) {
        for (int sec = e1 ? atoi(e1) : 0; sec < (e1 ? atoi(e1) + 1 : 4); ++sec)
        for (int ord = e2 ? atoi(e2) : 0; ord < (e2 ? atoi(e2) + 1 : 5); ++ord) {
            Search q; q.capacity = capacity_bytes; q.strategy = {sec, ord};
            const auto S = (std::uint32_t)points.size();
            std::vector<std::uint64_t> tot(S);
            for (std::uint32_t i = 0; i < blocks.size(); ++i) {
                if (!blocks[i].size_bytes) continue;
                auto lo = std::lower_bound(points.begin(), points.end(), blocks[i].lifetime.first_op) - points.begin();
                auto hi = std::lower_bound(points.begin(), points.end(), blocks[i].lifetime.last_op) - points.begin();
                q.items.push_back({blocks[i].size_bytes, blocks[i].alignment_bytes, (std::uint32_t)lo, (std::uint32_t)hi, i, {}, 0, 0});
                for (auto s = lo; s < hi; ++s) tot[(size_t)s] += blocks[i].size_bytes;
            }
            auto tmax = [&](const Item& i) { return *std::max_element(tot.begin() + i.lo, tot.begin() + i.hi); };
            for (auto& i : q.items) for (std::uint32_t m = 0; m < q.items.size(); ++m) if (&q.items[m] != &i && q.items[m].lo < i.hi && i.lo < q.items[m].hi) i.neighbours.push_back(m);
            std::stable_sort(q.items.begin(), q.items.end(), [&](const Item& a, const Item& b) { return order_key(a, tmax(a), ord) > order_key(b, tmax(b), ord); });
            for (auto& i : q.items) { i.neighbours.clear(); for (std::uint32_t m = 0; m < q.items.size(); ++m) if (&q.items[m] != &i && q.items[m].lo < i.hi && i.lo < q.items[m].hi) i.neighbours.push_back(m); }
            q.live.resize(S); q.cut.assign(S + 1, 0);
            for (std::uint32_t m = 0; m < q.items.size(); ++m) for (auto s = q.items[m].lo; s < q.items[m].hi; ++s) { q.live[s].push_back(m); if (s > q.items[m].lo) ++q.cut[s]; }
            q.floor.assign(S, 0); q.total = tot; q.min_off.assign(q.items.size(), 0); q.real_off = q.min_off; q.offset = q.min_off; q.placed.assign(q.items.size(), 0);
            q.limit = std::min(budget, node_count_max - result.node_count);
            bool ok = q.refresh(0, S) && q.solve(0, S);
            result.node_count += q.nodes;
            if (ok) { result.outcome = ExactOutcome::found; for (std::size_t m = 0; m < q.items.size(); ++m) result.offset_bytes[q.items[m].source] = q.offset[m];
                if (getenv("VERB")) fprintf(stderr, "won sec %d ord %d nodes %lu\n", sec, ord, q.nodes);
                return result; }
            if (!q.stopped) { result.outcome = ExactOutcome::refuted; if (getenv("VERB")) fprintf(stderr, "refuted sec %d ord %d nodes %lu\n", sec, ord, q.nodes); return result; }
            if (result.node_count >= node_count_max) return result;
        }
    }
}

}  // namespace plimsoll
