//! Data and unified caches: sizes, sharing and how many of each there are.
//!
//! `/sys/devices/system/cpu/cpu*/cache` knows which processors share an instance and is the first
//! choice. CPUID knows the cache of one core: it fills in what the files leave open and stands in when
//! they cannot be read. A machine that mixes core designs has several entries for one level, the
//! largest first.

use std::collections::BTreeMap;

use kernelwise_types::Reading;
use kernelwise_types::machine::Cache;
use kernelwise_types::units::Bytes;

use crate::cpu::topology::{CPUS, Processors};
use crate::tree::{ReadError, Tree};

/// The caches by both sources; `by_cpuid` is what the processor says itself.
pub(crate) fn read(
    tree: &Tree,
    processors: &Processors,
    by_cpuid: &Reading<Vec<Cache>>,
) -> Reading<Vec<Cache>> {
    let listed = processors
        .online
        .clone()
        .and_then(|online| in_sysfs(tree, &online));
    match (listed, by_cpuid.known()) {
        (Ok(mut caches), Some(said)) => {
            for cache in &mut caches {
                complete(cache, said);
            }
            Reading::Known(caches)
        }
        (Ok(caches), None) => Reading::Known(caches),
        (Err(_), Some(said)) => Reading::Known(said.clone()),
        (Err(error), None) => Reading::unknown(error.to_string()),
    }
}

/// Fills in from CPUID what the files do not tell of the same cache.
fn complete(cache: &mut Cache, said: &[Cache]) {
    let twin = |other: &&Cache| other.level == cache.level && other.unified == cache.unified;
    let Some(said) = said.iter().find(twin) else {
        return;
    };
    if said.size_bytes != cache.size_bytes {
        // Hybrid processors differ between cores, and hypervisors may rewrite one of the two. The
        // kernel has seen every core; CPUID answers for the one it was asked on.
        tracing::debug!(
            level = cache.level,
            files = %cache.size_bytes,
            cpuid = %said.size_bytes,
            "cache sizes disagree; the files win"
        );
        return;
    }
    for (gap, filling) in [
        (&mut cache.line_bytes, &said.line_bytes),
        (&mut cache.ways, &said.ways),
        (&mut cache.shared_by, &said.shared_by),
    ] {
        if gap.known().is_none() && filling.known().is_some() {
            *gap = filling.clone();
        }
    }
}

/// What makes two instances the same kind of cache.
type Kind = (u8, bool, std::cmp::Reverse<u64>);

#[derive(Debug)]
struct Seen {
    cache: Cache,
    /// The processors of each instance; `None` once one of them could not be read.
    instances: Result<Vec<Vec<u32>>, ReadError>,
}

fn in_sysfs(tree: &Tree, online: &[u32]) -> Result<Vec<Cache>, ReadError> {
    let mut kinds: BTreeMap<Kind, Seen> = BTreeMap::new();
    for cpu in online {
        let folder = format!("{CPUS}/cpu{cpu}/cache");
        for index in tree.names(&folder)? {
            if index.starts_with("index") {
                note(tree, &format!("{folder}/{index}"), &mut kinds)?;
            }
        }
    }
    if kinds.is_empty() {
        let path = format!("{CPUS}/cpu0/cache");
        return Err(ReadError::lacks(&path, "data cache"));
    }
    Ok(kinds.into_values().map(Seen::into_cache).collect())
}

/// Adds the cache in `folder`, unless it holds instructions only or was met on another processor.
fn note(tree: &Tree, folder: &str, kinds: &mut BTreeMap<Kind, Seen>) -> Result<(), ReadError> {
    let file = |name: &str| format!("{folder}/{name}");
    let unified = match tree.text(&file("type"))?.as_str() {
        "Data" => false,
        "Unified" => true,
        "Instruction" => return Ok(()),
        other => {
            return Err(ReadError::unexpected(
                &file("type"),
                "a kind of cache",
                other,
            ));
        }
    };
    let level: u8 = tree.number(&file("level"))?;
    let size = size(tree, &file("size"))?;
    let sharers = tree.id_list(&file("shared_cpu_list")).and_then(|cpus| {
        if cpus.is_empty() {
            return Err(ReadError::unexpected(
                &file("shared_cpu_list"),
                "processors",
                "",
            ));
        }
        Ok(cpus)
    });
    let seen = kinds
        .entry((level, unified, std::cmp::Reverse(size)))
        .or_insert_with(|| Seen {
            cache: Cache {
                level,
                unified,
                size_bytes: Bytes(size),
                line_bytes: positive(tree, &file("coherency_line_size")),
                ways: positive(tree, &file("ways_of_associativity")),
                shared_by: Reading::unknown("not counted yet"),
                instances: Reading::unknown("not counted yet"),
            },
            instances: Ok(Vec::new()),
        });
    match (&mut seen.instances, sharers) {
        (Ok(instances), Ok(cpus)) if !instances.contains(&cpus) => instances.push(cpus),
        (Ok(_), Ok(_)) | (Err(_), _) => {}
        (instances, Err(error)) => *instances = Err(error),
    }
    Ok(())
}

impl Seen {
    fn into_cache(self) -> Cache {
        let (shared_by, instances) = match self.instances {
            Ok(instances) => (
                // With some processors offline instances differ; the fullest one shows the design.
                Reading::Known(instances.iter().map(Vec::len).max().unwrap_or(0) as u32),
                Reading::Known(instances.len() as u32),
            ),
            Err(error) => (
                Reading::unknown(error.to_string()),
                Reading::unknown(error.to_string()),
            ),
        };
        Cache {
            shared_by,
            instances,
            ..self.cache
        }
    }
}

/// A number that is zero when the firmware did not say.
fn positive(tree: &Tree, path: &str) -> Reading<u32> {
    match tree.number(path) {
        Ok(0) => Reading::unknown(format!("{path}: zero, so it is not known")),
        other => other.into(),
    }
}

/// A size such as `48K`, in bytes.
fn size(tree: &Tree, path: &str) -> Result<u64, ReadError> {
    let text = tree.text(path)?;
    let (digits, scale) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text.as_str(), 1),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(scale))
        .filter(|size| *size > 0)
        .ok_or_else(|| ReadError::unexpected(path, "a size such as 48K", &text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    fn put(fake: &FakeTree, cpu: u32, index: u32, text: [&str; 4], ways: &str) {
        let folder = format!("{CPUS}/cpu{cpu}/cache/index{index}");
        let [level, kind, size, shared] = text;
        for (name, text) in [
            ("level", level),
            ("type", kind),
            ("size", size),
            ("shared_cpu_list", shared),
            ("ways_of_associativity", ways),
            ("coherency_line_size", "64"),
        ] {
            fake.write(&format!("{folder}/{name}"), text);
        }
    }

    /// Eight processors, two per core, and two third-level caches of four processors each.
    fn two_l3s() -> FakeTree {
        let fake = FakeTree::new();
        fake.write("/sys/devices/system/cpu/online", "0-7");
        for cpu in 0..8 {
            let (core, half) = (format!("{},{}", cpu % 4, cpu % 4 + 4), cpu % 4 / 2);
            let third = ["0-1,4-5", "2-3,6-7"][half as usize];
            put(&fake, cpu, 0, ["1", "Data", "48K", &core], "12");
            put(&fake, cpu, 1, ["1", "Instruction", "32K", &core], "8");
            put(&fake, cpu, 2, ["2", "Unified", "1024K", &core], "16");
            put(&fake, cpu, 3, ["3", "Unified", "16M", third], "0");
        }
        fake
    }

    fn read_with(fake: &FakeTree, cpuid: &Reading<Vec<Cache>>) -> Reading<Vec<Cache>> {
        read(&fake.tree(), &Processors::read(&fake.tree()), cpuid)
    }

    fn silent() -> Reading<Vec<Cache>> {
        Reading::unknown("silent")
    }

    #[test]
    fn sharing_and_instances_follow_the_processor_lists() {
        let caches = read_with(&two_l3s(), &silent());
        let facts: Vec<_> = caches
            .known()
            .unwrap()
            .iter()
            .map(|c| {
                (
                    c.level,
                    c.unified,
                    c.size_bytes.0 >> 10,
                    c.shared_by.known(),
                    c.instances.known(),
                )
            })
            .collect();
        assert_eq!(
            facts,
            [
                (1, false, 48, Some(&2), Some(&4)),
                (2, true, 1024, Some(&2), Some(&4)),
                (3, true, 16 << 10, Some(&4), Some(&2)),
            ]
        );
    }

    #[test]
    fn cpuid_fills_gaps_of_the_same_cache_only() {
        let said = |size: u64| {
            Reading::Known(vec![Cache {
                level: 3,
                unified: true,
                size_bytes: Bytes(size),
                line_bytes: Reading::Known(128),
                ways: Reading::Known(11),
                shared_by: Reading::unknown("at most 64"),
                instances: Reading::unknown("one core"),
            }])
        };
        let third = |size| read_with(&two_l3s(), &said(size)).known().unwrap()[2].clone();
        assert_eq!(third(16 << 20).ways, Reading::Known(11));
        assert_eq!(third(16 << 20).line_bytes, Reading::Known(64), "files win");
        assert!(third(8 << 20).ways.known().is_none(), "another cache");
        // Without files, what the processor says is all there is.
        assert_eq!(read_with(&FakeTree::new(), &said(4 << 20)), said(4 << 20));
    }

    #[test]
    fn mixed_cores_are_listed_apart() {
        let fake = FakeTree::new();
        fake.write("/sys/devices/system/cpu/online", "0-1");
        put(&fake, 0, 0, ["1", "Data", "32K", "0"], "8");
        put(&fake, 1, 0, ["1", "Data", "48K", "1"], "12");
        let caches = read_with(&fake, &silent());
        let sizes: Vec<u64> = caches
            .known()
            .unwrap()
            .iter()
            .map(|c| c.size_bytes.0 >> 10)
            .collect();
        assert_eq!(sizes, [48, 32]);
    }

    #[test]
    fn a_garbled_cache_is_no_cache() {
        let fake = two_l3s();
        let file = |name: &str| format!("{CPUS}/cpu3/cache/index2/{name}");
        fake.write(&file("shared_cpu_list"), "x");
        let caches = read_with(&fake, &silent());
        let second = &caches.known().unwrap()[1];
        assert!(
            second
                .instances
                .reason()
                .unwrap()
                .contains("cpu3/cache/index2")
        );
        for (name, text) in [
            ("size", "0K"),
            ("size", "99999999999999999999K"),
            ("level", "300"),
            ("type", "Odd"),
        ] {
            let fake = two_l3s();
            fake.write(&file(name), text);
            let reason = read_with(&fake, &silent());
            assert!(
                reason.reason().unwrap().starts_with(&file(name)),
                "{name}: {reason:?}"
            );
        }
    }
}
