//! What the control groups of this process allow: processor time and memory.
//!
//! A group is limited by its own settings and by those of every group around it, so the tightest
//! limit on the way from the process's group up to the root is the one that holds. There are two
//! generations of the interface, and a hybrid in which some controllers live in the old hierarchies
//! and the rest in the unified one:
//!
//! - `/proc/self/cgroup` says which group the process is in, per hierarchy;
//! - `/proc/self/mountinfo` says where each hierarchy is mounted, and from which group downwards:
//!   a container often sees only its own part;
//! - the limit is `cpu.max` and `memory.max` in the unified hierarchy, `cpu.cfs_quota_us` with
//!   `cpu.cfs_period_us` and `memory.limit_in_bytes` in the old ones.
//!
//! A group above the mount is out of sight: a limit set there is not found, and cannot be.

use kernelwise_types::Reading;
use kernelwise_types::machine::Limits;
use kernelwise_types::units::Bytes;

use crate::tree::{ReadError, Tree};

const GROUPS: &str = "/proc/self/cgroup";
const MOUNTS: &str = "/proc/self/mountinfo";

/// The old interface says "no limit" with the largest number of pages; nothing real comes near.
const NO_MEMORY_LIMIT: u64 = 1 << 60;

/// No machine has this many processors: a quota above it limits nothing.
const NO_CPU_LIMIT: f64 = 1e6;

/// The limits of this process, its affinity mask being known already.
pub(crate) fn read(tree: &Tree, affinity: Reading<u32>) -> Limits {
    match (memberships(tree), mounts(tree)) {
        (Ok(memberships), Ok(mounts)) => {
            let cpu = folders(tree, &memberships, &mounts, "cpu");
            let memory = folders(tree, &memberships, &mounts, "memory");
            Limits {
                affinity,
                cpu_quota: cpu
                    .and_then(|folders| tightest(&folders, |folder| cpu_quota(tree, folder)))
                    .into(),
                memory: memory
                    .and_then(|folders| tightest(&folders, |folder| memory_limit(tree, folder)))
                    .map(|limit| limit.map(Bytes))
                    .into(),
            }
        }
        (Err(error), _) | (_, Err(error)) => Limits {
            affinity,
            cpu_quota: Reading::unknown(error.to_string()),
            memory: Reading::unknown(error.to_string()),
        },
    }
}

/// The group of this process in one hierarchy.
#[derive(Debug)]
struct Membership {
    /// Empty for the unified hierarchy.
    controllers: Vec<String>,
    path: String,
}

fn memberships(tree: &Tree) -> Result<Vec<Membership>, ReadError> {
    let text = tree.text(GROUPS)?;
    text.lines()
        .map(|line| {
            // `4:memory:/user.slice`; the path may itself contain colons.
            let mut parts = line.splitn(3, ':').skip(1);
            match (parts.next(), parts.next()) {
                (Some(controllers), Some(path)) if path.starts_with('/') => Ok(Membership {
                    controllers: words(controllers),
                    path: path.to_owned(),
                }),
                _ => Err(ReadError::unexpected(
                    GROUPS,
                    "number:controllers:path",
                    line,
                )),
            }
        })
        .collect()
}

fn words(list: &str) -> Vec<String> {
    list.split(',')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// A mounted hierarchy.
#[derive(Debug)]
struct Mount {
    unified: bool,
    controllers: Vec<String>,
    /// The group that appears at the mount point.
    top: String,
    point: String,
}

fn mounts(tree: &Tree) -> Result<Vec<Mount>, ReadError> {
    let text = tree.text(MOUNTS)?;
    Ok(text.lines().filter_map(parse_mount).collect())
}

/// `41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw`; other mounts are `None`.
fn parse_mount(line: &str) -> Option<Mount> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (top, point) = (unescape(place.next()?), unescape(place.next()?));
    let mut kind = kind.split(' ');
    let unified = match kind.next()? {
        "cgroup2" => true,
        "cgroup" => false,
        _ => return None,
    };
    let controllers = kind.nth(1).map(words).unwrap_or_default();
    Some(Mount {
        unified,
        controllers,
        top,
        point,
    })
}

/// The kernel writes blanks and the like in paths as three octal digits after a backslash.
fn unescape(path: &str) -> String {
    let mut parts = path.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok())
            .filter(u8::is_ascii);
        match code {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

/// A group's folder, and in which generation's files it states its limits.
#[derive(Debug)]
struct Folder {
    path: String,
    unified: bool,
}

/// The folders whose limits bind this process, innermost first.
///
/// A controller belongs to one hierarchy at a time: an old one that lists it, or else the unified one.
fn folders(
    tree: &Tree,
    memberships: &[Membership],
    mounts: &[Mount],
    controller: &str,
) -> Result<Vec<Folder>, ReadError> {
    let lists = |names: &[String]| names.iter().any(|name| name == controller);
    let membership = memberships
        .iter()
        .find(|membership| lists(&membership.controllers))
        .or_else(|| memberships.iter().find(|m| m.controllers.is_empty()))
        .ok_or_else(|| ReadError::lacks(GROUPS, &format!("group for {controller}")))?;
    let unified = membership.controllers.is_empty();
    mounts
        .iter()
        .filter(|mount| mount.unified == unified && (unified || lists(&mount.controllers)))
        .filter_map(|mount| Some((mount, inside(&membership.path, &mount.top)?)))
        .map(|(mount, path)| upwards(&mount.point, path))
        .find(|folders| {
            folders
                .first()
                .is_some_and(|innermost| tree.exists(innermost))
        })
        .map(|folders| {
            let folder = |path| Folder { path, unified };
            folders.into_iter().map(folder).collect()
        })
        .ok_or_else(|| {
            let wanted = format!("mount that shows {controller} group {}", membership.path);
            ReadError::lacks(MOUNTS, &wanted)
        })
}

/// The part of `path` below `top`; `None` if it lies elsewhere, or above (`/..` in a namespace).
fn inside<'a>(path: &'a str, top: &str) -> Option<&'a str> {
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    let rest = path.strip_prefix(top.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// `point/a/b`, `point/a`, `point`.
fn upwards(point: &str, path: &str) -> Vec<String> {
    let whole = format!(
        "{}{}",
        point.trim_end_matches('/'),
        path.trim_end_matches('/')
    );
    let floor = point.trim_end_matches('/').len();
    let mut ends: Vec<usize> = vec![whole.len()];
    ends.extend(
        whole
            .rmatch_indices('/')
            .map(|(at, _)| at)
            .filter(|at| *at >= floor),
    );
    ends.dedup();
    ends.iter().map(|end| whole[..*end].to_owned()).collect()
}

/// The smallest limit any folder states. One that cannot be read might be the tightest, so it makes
/// the answer unknown.
fn tightest<T: PartialOrd>(
    folders: &[Folder],
    limit: impl Fn(&Folder) -> Result<Option<T>, ReadError>,
) -> Result<Option<T>, ReadError> {
    let mut tightest: Option<T> = None;
    for folder in folders {
        if let Some(limit) = limit(folder)?
            && tightest.as_ref().is_none_or(|tightest| limit < *tightest)
        {
            tightest = Some(limit);
        }
    }
    Ok(tightest)
}

/// The text of a limit file; `None` where a group has no such file because its controller is off,
/// or because it is the root.
fn setting(tree: &Tree, path: &str) -> Result<Option<String>, ReadError> {
    match tree.text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

fn cpu_quota(tree: &Tree, folder: &Folder) -> Result<Option<f64>, ReadError> {
    let Folder { path, unified } = folder;
    let (file, quota, period) = if *unified {
        let file = format!("{path}/cpu.max");
        let Some(text) = setting(tree, &file)? else {
            return Ok(None);
        };
        match text.split_once(' ') {
            Some((quota, period)) => (file, quota.to_owned(), period.trim().to_owned()),
            None => return Err(ReadError::unexpected(&file, "a quota and a period", &text)),
        }
    } else {
        let file = format!("{path}/cpu.cfs_quota_us");
        let Some(quota) = setting(tree, &file)? else {
            return Ok(None);
        };
        let period = tree.text(&format!("{path}/cpu.cfs_period_us"))?;
        (file, quota, period)
    };
    if quota == "max" || quota == "-1" {
        return Ok(None);
    }
    let share = match (quota.parse::<u64>(), period.parse::<u64>()) {
        (Ok(quota), Ok(period)) if quota > 0 && period > 0 => quota as f64 / period as f64,
        _ => {
            let found = format!("{quota} {period}");
            return Err(ReadError::unexpected(
                &file,
                "microseconds per period",
                &found,
            ));
        }
    };
    Ok(Some(share).filter(|share| *share < NO_CPU_LIMIT))
}

fn memory_limit(tree: &Tree, folder: &Folder) -> Result<Option<u64>, ReadError> {
    let file = if folder.unified {
        format!("{}/memory.max", folder.path)
    } else {
        format!("{}/memory.limit_in_bytes", folder.path)
    };
    let Some(text) = setting(tree, &file)? else {
        return Ok(None);
    };
    match text.as_str() {
        "max" | "-1" => Ok(None),
        number => number
            .parse()
            .map(|limit| Some(limit).filter(|limit| *limit < NO_MEMORY_LIMIT))
            .map_err(|_| ReadError::unexpected(&file, "a number of bytes", number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";

    fn system(groups: &str, mounts: &str) -> FakeTree {
        let fake = FakeTree::new();
        fake.write(GROUPS, groups);
        fake.write(
            MOUNTS,
            &format!("22 27 0:21 / /proc rw - proc proc rw\n{mounts}"),
        );
        fake
    }

    fn quota(fake: &FakeTree) -> Reading<Option<f64>> {
        read(&fake.tree(), Reading::Known(1)).cpu_quota
    }

    fn memory(fake: &FakeTree) -> Reading<Option<Bytes>> {
        read(&fake.tree(), Reading::Known(1)).memory
    }

    #[test]
    fn half_a_processor_in_the_unified_hierarchy() {
        let fake = system("0::/app\n", UNIFIED);
        fake.write("/sys/fs/cgroup/app/cpu.max", "50000 100000\n");
        fake.write("/sys/fs/cgroup/app/memory.max", "1073741824\n");
        assert_eq!(quota(&fake), Reading::Known(Some(0.5)));
        assert_eq!(memory(&fake), Reading::Known(Some(Bytes(1 << 30))));
        fake.write("/sys/fs/cgroup/app/cpu.max", "max 100000\n");
        fake.write("/sys/fs/cgroup/app/memory.max", "max\n");
        assert_eq!(quota(&fake), Reading::Known(None));
        assert_eq!(memory(&fake), Reading::Known(None));
    }

    #[test]
    fn the_tightest_limit_up_to_the_root_wins() {
        let fake = system("0::/a/b/c\n", UNIFIED);
        fake.write("/sys/fs/cgroup/a/cpu.max", "150000 100000");
        fake.write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
        fake.write("/sys/fs/cgroup/a/b/c/cpu.max", "400000 100000");
        fake.write("/sys/fs/cgroup/a/memory.max", "max");
        fake.write("/sys/fs/cgroup/a/b/memory.max", "5000");
        fake.write("/sys/fs/cgroup/a/b/c/memory.max", "9000");
        assert_eq!(quota(&fake), Reading::Known(Some(1.5)));
        assert_eq!(memory(&fake), Reading::Known(Some(Bytes(5000))));
        // A neighbour's limit is not ours.
        fake.write("/sys/fs/cgroup/a/x/cpu.max", "1000 100000");
        assert_eq!(quota(&fake), Reading::Known(Some(1.5)));
    }

    const OLD: &str = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                       35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[test]
    fn the_old_hierarchies_have_a_quota_each() {
        let fake = system("4:memory:/m\n1:cpu,cpuacct:/c\n", OLD);
        fake.write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "250000\n");
        fake.write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
        fake.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
        fake.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
        fake.write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "4096\n");
        fake.write(
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        assert_eq!(quota(&fake), Reading::Known(Some(2.5)));
        assert_eq!(memory(&fake), Reading::Known(Some(Bytes(4096))));
        fake.write(
            "/sys/fs/cgroup/memory/m/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        assert_eq!(memory(&fake), Reading::Known(None));
    }

    #[test]
    fn a_hybrid_finds_each_controller_where_it_lives() {
        let unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let fake = system(
            "1:cpu,cpuacct:/c\n0::/u\n",
            &format!(
                "{}{unified}",
                OLD.lines().next().map(|l| format!("{l}\n")).unwrap()
            ),
        );
        fake.write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "50000");
        fake.write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000");
        fake.write("/sys/fs/cgroup/unified/u/memory.max", "777");
        fake.write("/sys/fs/cgroup/unified/u/cpu.max", "1000 100000");
        assert_eq!(
            quota(&fake),
            Reading::Known(Some(0.5)),
            "not the unified one"
        );
        assert_eq!(memory(&fake), Reading::Known(Some(Bytes(777))));
    }

    #[test]
    fn a_container_sees_its_group_at_the_mount_point() {
        // Without a namespace the path is the host's, and the mount shows only the group.
        let mount = "33 31 0:30 /docker/ab\\040c /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let fake = system("0::/docker/ab c/inner\n", mount);
        fake.write("/sys/fs/cgroup/cpu.max", "200000 100000");
        fake.write("/sys/fs/cgroup/inner/cpu.max", "300000 100000");
        assert_eq!(quota(&fake), Reading::Known(Some(2.0)));
        // A group of which nothing can be seen has unknown limits, not none.
        for path in ["0::/docker/ab cd\n", "0::/../x\n", "0::/docker/ab c/gone\n"] {
            fake.write(GROUPS, path);
            let reason = quota(&fake);
            let reason = reason.reason().unwrap();
            assert!(
                reason.starts_with("/proc/self/mountinfo: "),
                "{path}: {reason}"
            );
        }
    }

    #[test]
    fn garbage_is_unknown_and_names_the_file() {
        let fake = system("0::/\n", UNIFIED);
        let file = "/sys/fs/cgroup/cpu.max";
        for bad in [
            "",
            "50000",
            "x 100000",
            "50000 0",
            "0 100000",
            "-5 100000",
            "1 2 3",
        ] {
            fake.write(file, bad);
            let quota = quota(&fake);
            assert!(
                quota.reason().is_some_and(|r| r.starts_with(file)),
                "{bad}: {quota:?}"
            );
        }
        fake.write(file, "18446744073709551615 100000");
        assert_eq!(quota(&fake), Reading::Known(None), "huge is none");
        fake.write("/sys/fs/cgroup/memory.max", "lots");
        assert!(memory(&fake).reason().unwrap().contains("memory.max"));
        fake.write(GROUPS, "nonsense");
        assert!(memory(&fake).reason().unwrap().starts_with(GROUPS));
        fake.remove(MOUNTS);
        fake.write(GROUPS, "0::/\n");
        assert_eq!(
            quota(&fake).reason(),
            Some("/proc/self/mountinfo: not found")
        );
        fake.remove(GROUPS);
        assert_eq!(quota(&fake).reason(), Some("/proc/self/cgroup: not found"));
    }

    #[test]
    fn folders_climb_to_the_mount_point_and_no_further() {
        assert_eq!(upwards("/m/n", "/a/b"), ["/m/n/a/b", "/m/n/a", "/m/n"]);
        assert_eq!(upwards("/m/n", "/"), ["/m/n"]);
        assert_eq!(upwards("/m/n", ""), ["/m/n"]);
        assert_eq!(unescape(r"/a\040b\134c"), r"/a b\c");
        assert_eq!(unescape(r"/a\9\é"), r"/a\9\é");
    }
}
