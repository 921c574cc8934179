//! How many processors others keep busy: other programs, and with steal other machines on the same hardware.
//!
//! What all together were busy, less what this process was. Tasks that share a processor each look as if they needed less than one, so little
//! more than half of one is taken for one. Once taken, a third keeps it, and two looks have to agree on a change, so that the answer does not
//! flutter with what every system does beside.

use crate::state::Stat;
use crate::tree::{ReadError, Tree};

const OWN: &str = "/proc/self/stat";

/// A share of a processor from which it counts as taken, and below which it counts as free again.
const TAKEN: f64 = 0.55;
const FREE: f64 = 0.35;

/// Looks at what others do, again and again.
#[derive(Debug)]
pub struct Others {
    tree: Tree,
    before: Option<(Stat, u64)>,
    busy: u32,
    /// What the last look said.
    said: u32,
}

impl Others {
    /// Of this tree of files.
    pub fn new(tree: Tree) -> Self {
        Self {
            tree,
            before: None,
            busy: 0,
            said: 0,
        }
    }

    /// Processors that others kept busy during the last two looks, as a whole number; `None` on the first look, where nothing can be read, or
    /// if no time has passed. Looks should be a tenth of a second apart, or more: the system counts in hundredths.
    pub fn look(&mut self) -> Option<u32> {
        let now = (Stat::read(&self.tree).ok()?, own_ticks(&self.tree).ok()?);
        let (before, own_before) = self.before.replace(now)?;
        let (now, own_now) = self.before.as_ref()?;
        let others = Stat::processors_busy(&before, now, own_now.saturating_sub(own_before))?;
        let says = settled(self.busy, others);
        if says == self.said {
            self.busy = says;
        }
        self.said = says;
        Some(self.busy)
    }
}

/// Whole processors, with some reluctance to leave what was said before.
fn settled(before: u32, others: f64) -> u32 {
    let up = (others + 1.0 - TAKEN).max(0.0) as u32;
    let down = (others + 1.0 - FREE).max(0.0) as u32;
    before.clamp(up, down.max(up))
}

/// Ticks that this process ran, in all its threads.
fn own_ticks(tree: &Tree) -> Result<u64, ReadError> {
    let text = tree.text(OWN)?;
    // The second field is a name in brackets, which may hold anything.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next().and_then(|field| field.parse::<u64>().ok());
    let sum = ticks().zip(ticks()).map(|(user, system)| user + system);
    sum.ok_or_else(|| ReadError::unexpected(OWN, "ticks of user and system", &text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    fn put(fake: &FakeTree, busy: u64, idle: u64, own: u64) {
        // Two processors, alike.
        let half = format!("{} 0 0 {}", busy / 2, idle / 2);
        let all = format!("cpu {busy} 0 0 {idle}\ncpu0 {half}\ncpu1 {half}\nprocs_running 1\n");
        fake.write("/proc/stat", &all);
        let fields = format!(
            "7 (a ) name) S 1 1 1 0 -1 0 0 0 0 0 {} {} 0 0",
            own / 2,
            own / 2
        );
        fake.write("/proc/self/stat", &fields);
    }

    #[test]
    fn what_this_process_does_is_not_others() {
        let fake = FakeTree::new();
        let mut others = Others::new(fake.tree());
        assert_eq!(others.look(), None, "nothing can be read");
        put(&fake, 1000, 1000, 100);
        assert_eq!(others.look(), None, "the first look");
        // 100 ticks: one processor of ours, the other idle.
        put(&fake, 1100, 1100, 200);
        assert_eq!(others.look(), Some(0));
        // The other is somebody else's, and stays so.
        put(&fake, 1300, 1100, 300);
        assert_eq!(others.look(), Some(0));
        put(&fake, 1500, 1100, 400);
        assert_eq!(others.look(), Some(1));
        // Ours runs on both, and has to share one.
        put(&fake, 1700, 1100, 540);
        assert_eq!(others.look(), Some(1));
        put(&fake, 1900, 1100, 740);
        assert_eq!(others.look(), Some(1));
        put(&fake, 2100, 1100, 940);
        assert_eq!(others.look(), Some(0));
        assert_eq!(others.look(), None, "no time has passed");
    }

    #[test]
    fn answers_do_not_flutter() {
        assert_eq!(settled(0, 0.54), 0);
        assert_eq!(settled(0, 0.56), 1);
        assert_eq!(settled(1, 0.4), 1);
        assert_eq!(settled(1, 0.3), 0);
        assert_eq!(settled(0, 2.6), 3);
        assert_eq!(settled(5, 1.0), 1);
    }

    #[test]
    fn this_process_can_be_read() {
        let mut others = Others::new(Tree::system());
        others.look();
        std::thread::sleep(std::time::Duration::from_millis(150));
        if std::path::Path::new("/proc/self/stat").exists() {
            assert!(others.look().is_some());
        }
    }
}
