//! How many threads, and how much memory each works on, so that the data lies where the figure says.
//!
//! Everything here follows from the description of the machine alone. Where the description does not
//! suffice, the answer is a sentence for the list of what was skipped, never a guess.

use kernelwise_types::Machine;
use kernelwise_types::calibration::{AccessPattern, MemoryPlace};
use kernelwise_types::machine::Cache;
use kernelwise_types::units::Bytes;

use super::loops::Block;

/// Third-level sets begin here: large enough that second-level caches of today do not hold them.
const L3_FLOOR: u64 = 8 << 20;

/// Smaller sets are over before a loop is up to speed.
const SMALLEST_SET: u64 = 4 << 10;

/// What is touched before memory is touched again, in sizes of the last-level cache. A cache that
/// forgets the oldest line needs a little more than one; four gave the same figures as two on a
/// 260 MiB cache, so two suffices and pages are expensive to get.
const FOOTPRINT: u64 = 2;

/// 1, the powers of two below `usable`, and `usable`.
pub(super) fn thread_counts(usable: u32) -> Vec<u32> {
    let powers = std::iter::successors(Some(1u32), |count| count.checked_mul(2));
    powers
        .take_while(|count| *count < usable)
        .chain([usable.max(1)])
        .collect()
}

/// How many streams of memory a pattern has.
pub(super) fn streams(pattern: AccessPattern) -> usize {
    match pattern {
        AccessPattern::Read | AccessPattern::Write => 1,
        AccessPattern::Copy => 2,
        AccessPattern::Triad => 3,
    }
}

/// The blocks each stream of a pattern gets of `bytes`. Streams whose beginnings differ by a multiple
/// of 4 KiB slow each other down on processors that compare only the low bits of addresses, so the
/// length leaves five blocks (2.5 KiB) over.
pub(super) fn stream_blocks(bytes: u64, pattern: AccessPattern) -> usize {
    let streams = streams(pattern);
    let blocks = usize::try_from(bytes).unwrap_or(usize::MAX) / Block::BYTES / streams;
    if streams == 1 || blocks < 5 {
        blocks.max(1)
    } else {
        blocks - (blocks + 3) % 8
    }
}

/// Bytes each of `threads` works on so that they stay in this cache, and in no nearer one.
pub(super) fn cached_set(
    machine: &Machine,
    place: MemoryPlace,
    threads: u32,
) -> Result<u64, String> {
    let level: u8 = match place {
        MemoryPlace::L1 => 1,
        MemoryPlace::L2 => 2,
        MemoryPlace::L3 => 3,
        MemoryPlace::Dram => return Err("main memory is not a cache".to_owned()),
    };
    // Of the nearer level the largest counts, of this one the smallest share: threads may run on cores of
    // several kinds.
    let sizes = caches(machine, level - 1).map(|cache| cache.size_bytes.0);
    let nearer = sizes.max().unwrap_or(0);
    if let Some(reason) = machine.caches.reason() {
        return Err(format!("the caches are not known: {reason}"));
    }
    let shares = caches(machine, level).map(|cache| share(cache, threads));
    let half = shares.min().ok_or("the machine reports no such cache")? / 2;
    let set = match place {
        MemoryPlace::L3 => half.min(L3_FLOOR.max(4 * nearer)),
        _ => half,
    };
    if set < SMALLEST_SET {
        Err(format!(
            "half a thread's share of it, {}, is too small to measure",
            Bytes(half)
        ))
    } else if set <= nearer {
        Err(format!(
            "half a thread's share of it, {}, fits the nearer cache of {}",
            Bytes(half),
            Bytes(nearer)
        ))
    } else {
        Ok(set)
    }
}

fn caches(machine: &Machine, level: u8) -> impl Iterator<Item = &Cache> {
    let known = machine
        .caches
        .known()
        .map(Vec::as_slice)
        .unwrap_or_default();
    known.iter().filter(move |cache| cache.level == level)
}

/// What one of `threads` may count on. If it is not known who shares the cache, all do.
fn share(cache: &Cache, threads: u32) -> u64 {
    let sharers = cache.shared_by.known().copied().unwrap_or(threads);
    cache.size_bytes.0 / u64::from(sharers.min(threads).max(1))
}

/// Bytes to walk through, by all threads together, so that none is still in a cache when its turn
/// comes again: twice the last-level caches, within `cap` and a quarter of the memory.
pub(super) fn memory_footprint(machine: &Machine, cap: Bytes) -> Result<u64, String> {
    if let Some(reason) = machine.caches.reason() {
        return Err(format!("the caches are not known: {reason}"));
    }
    let mut caches = 0u64;
    for cache in machine.last_level_caches() {
        let instances = cache.instances.known().ok_or_else(|| {
            let reason = cache.instances.reason().unwrap_or_default();
            format!("the number of last-level caches is not known: {reason}")
        })?;
        let size = cache.size_bytes.0.saturating_mul(u64::from(*instances));
        caches = caches.saturating_add(size);
    }
    if caches == 0 {
        return Err(
            "the machine reports no caches, so nothing says what would lie beyond them".to_owned(),
        );
    }
    let memory = machine
        .usable_memory()
        .ok_or("the amount of memory is not known")?;
    let allowed = cap.0.min(memory.0 / 4);
    let footprint = caches.saturating_mul(FOOTPRINT);
    if allowed < footprint {
        return Err(format!(
            "{} may be used, less than {FOOTPRINT} times the last-level caches of {}: the figure \
             would be the cache's",
            Bytes(allowed),
            Bytes(caches)
        ));
    }
    Ok(footprint)
}

#[cfg(test)]
mod tests {
    use kernelwise_types::Reading;

    use super::super::tests::{MIB, machine};
    use super::*;

    /// A machine with caches of these levels, sizes and numbers of sharers.
    fn levels(caches: &[(u8, u64, u32)]) -> Machine {
        let sizes: Vec<_> = caches
            .iter()
            .map(|&(_, size, sharers)| (size, sharers))
            .collect();
        let mut machine = machine(&sizes);
        if let Reading::Known(known) = &mut machine.caches {
            for (cache, (level, ..)) in known.iter_mut().zip(caches) {
                cache.level = *level;
            }
        }
        machine
    }

    /// Two kinds of last-level cache, one of them on one die only.
    #[test]
    fn every_last_level_cache_is_outgrown() {
        let mut mixed = levels(&[(1, 32 << 10, 1), (3, 96 * MIB, 8), (3, 32 * MIB, 8)]);
        mixed.memory = Reading::Known(Bytes(8 << 30));
        assert_eq!(memory_footprint(&mixed, Bytes(1 << 30)), Ok(256 * MIB));
        // Of a cache per die, the number of dies must be known.
        let caches = mixed.caches.known().cloned().unwrap_or_default();
        let hidden = |mut cache: Cache| {
            cache.instances = Reading::unknown("no /sys");
            cache
        };
        mixed.caches = Reading::Known(caches.into_iter().map(hidden).collect());
        let reason = memory_footprint(&mixed, Bytes(1 << 30)).unwrap_err();
        assert!(reason.ends_with("is not known: no /sys"), "{reason}");
    }

    /// Fast cores with 2 MiB each, slow ones that share 4 MiB among four.
    #[test]
    fn sets_fit_the_smallest_share() {
        let hybrid = levels(&[(1, 48 << 10, 1), (2, 4 * MIB, 4), (2, 2 * MIB, 1)]);
        assert_eq!(cached_set(&hybrid, MemoryPlace::L2, 1), Ok(MIB));
        assert_eq!(cached_set(&hybrid, MemoryPlace::L2, 4), Ok(MIB / 2));
    }

    #[test]
    fn counts_are_powers_of_two_and_all() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
        assert_eq!(thread_counts(8), [1, 2, 4, 8]);
        assert_eq!(thread_counts(0), [1]);
    }

    #[test]
    fn sets_fit_their_cache_and_not_the_nearer_one() {
        // 48 KiB and 2 MiB per core, 260 MiB shared by both: the third level is the host's, of which
        // nobody knows how much is ours, so the set stays small.
        let machine = machine(&[(48 << 10, 1), (2 * MIB, 1), (260 * MIB, 2)]);
        let set = |place, threads| cached_set(&machine, place, threads).unwrap();
        assert_eq!(set(MemoryPlace::L1, 2), 24 << 10);
        assert_eq!(set(MemoryPlace::L2, 2), MIB);
        assert_eq!(set(MemoryPlace::L3, 1), 8 * MIB);
        assert_eq!(set(MemoryPlace::L3, 2), 8 * MIB);
    }

    #[test]
    fn a_shared_cache_is_divided() {
        let machine = machine(&[(32 << 10, 2), (512 << 10, 2), (16 * MIB, 8)]);
        let set = |place, threads| cached_set(&machine, place, threads);
        assert_eq!(set(MemoryPlace::L1, 1), Ok(16 << 10));
        assert_eq!(set(MemoryPlace::L1, 8), Ok(8 << 10));
        assert_eq!(set(MemoryPlace::L3, 1), Ok(8 * MIB));
        assert_eq!(set(MemoryPlace::L3, 8), Ok(MIB));
        assert_eq!(
            set(MemoryPlace::L3, 16),
            Ok(MIB),
            "two instances serve sixteen"
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let mut machine = machine(&[(32 << 10, 1), (2 * MIB, 1), (4 * MIB, 4)]);
        let refused =
            |machine: &Machine, place, threads| cached_set(machine, place, threads).unwrap_err();
        assert_eq!(
            refused(&machine, MemoryPlace::L3, 4),
            "half a thread's share of it, 512 KiB, fits the nearer cache of 2 MiB"
        );
        if let Reading::Known(caches) = &mut machine.caches {
            caches[0].shared_by = Reading::unknown("no topology");
            caches.pop();
        }
        assert_eq!(
            refused(&machine, MemoryPlace::L1, 16),
            "half a thread's share of it, 1 KiB, is too small to measure"
        );
        assert_eq!(
            refused(&machine, MemoryPlace::L3, 1),
            "the machine reports no such cache"
        );
        machine.caches = Reading::unknown("no /sys");
        assert_eq!(
            refused(&machine, MemoryPlace::L1, 1),
            "the caches are not known: no /sys"
        );
    }

    #[test]
    fn memory_is_walked_beyond_the_caches_or_not_at_all() {
        let mut machine = machine(&[(48 << 10, 1), (2 * MIB, 1), (260 * MIB, 2)]);
        let footprint = |machine: &Machine, cap| memory_footprint(machine, Bytes(cap));
        machine.memory = Reading::Known(Bytes(24 << 30));
        assert_eq!(footprint(&machine, 1 << 30), Ok(520 * MIB));
        assert_eq!(
            footprint(&machine, 512 * MIB).unwrap_err(),
            "512 MiB may be used, less than 2 times the last-level caches of 260 MiB: the figure would \
             be the cache's"
        );
        machine.memory = Reading::Known(Bytes(1 << 30));
        assert!(
            footprint(&machine, 1 << 30).is_err(),
            "a quarter is 256 MiB"
        );
        machine.memory = Reading::unknown("no /proc/meminfo");
        assert!(footprint(&machine, 1 << 30).is_err());
        machine.caches = Reading::Known(Vec::new());
        assert!(footprint(&machine, 1 << 30).is_err());
    }

    #[test]
    fn several_last_level_caches_count_together() {
        let mut machine = machine(&[(32 << 10, 1), (32 * MIB, 8)]);
        machine.memory = Reading::Known(Bytes(64 << 30));
        if let Reading::Known(caches) = &mut machine.caches {
            caches[1].instances = Reading::Known(8);
        }
        assert_eq!(memory_footprint(&machine, Bytes(1 << 30)), Ok(512 * MIB));
        assert!(memory_footprint(&machine, Bytes(256 * MIB)).is_err());
    }

    #[test]
    fn streams_do_not_begin_a_multiple_of_a_page_apart() {
        for bytes in [5 << 10, 24 << 10, MIB, 8 * MIB] {
            assert_eq!(
                stream_blocks(bytes, AccessPattern::Read) as u64 * 512,
                bytes
            );
            for pattern in [AccessPattern::Copy, AccessPattern::Triad] {
                let blocks = stream_blocks(bytes, pattern);
                assert!(blocks as u64 * 512 * streams(pattern) as u64 <= bytes.max(1536));
                assert_ne!(blocks % 8, 0, "{bytes} {pattern}");
                assert_ne!(2 * blocks % 8, 0, "{bytes} {pattern}");
            }
        }
        assert_eq!(stream_blocks(1, AccessPattern::Triad), 1);
    }
}
