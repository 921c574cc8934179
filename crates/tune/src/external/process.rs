//! One process, bounded in all it can do to us.
//!
//! A candidate of a search is code that nobody has run before. It may hang, crash, print without end, fill the disk, fork and go
//! away. Each of these has to end as an [`End`] of this process, in bounded time and space:
//!
//! - **Its own group**, killed whole when the leader ends, for whatever reason. The leader is not reaped before, so that its
//!   number cannot have passed to somebody else.
//! - **Limits before the first instruction.** Limits of another process can be set only once it exists; setting them in between `fork` and `exec`
//!   would take unsafe code. So what is started first is a shell that waits for a line, and then becomes the program.
//!   It gets the arguments as they are and interprets none.
//! - **A loop of one thread** that sleeps until there is output, the process ends or a moment has passed, and looks at the
//!   clock, the flag and, now and then, at what the candidate has put on disk and how many processes it has become.

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernelwise_measure::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::folder;
use super::kin::{self, Kin};
use super::spec::Limits;

/// Waits for a line, then becomes the program. What is read is of no account.
const GATE: &str = r#"read -r go && exec "$@" </dev/null"#;
/// How long the loop sleeps at most where the end of a process wakes it; a cancel is noticed that late.
const TICK: Duration = Duration::from_millis(20);
/// And where it does not.
const SHORT_TICK: Duration = Duration::from_millis(1);
/// How often disk and processes are looked at: rarely enough not to disturb what is measured.
const WATCH: Duration = Duration::from_millis(200);
const CHUNK: usize = 1 << 16;

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself.
    Exit(i32),
    /// By a signal that was not ours.
    Signal(i32),
    /// It took too long.
    Timeout,
    /// It printed too much.
    Output,
    /// It wrote too much.
    Disk,
    /// It became too many.
    Processes,
    /// It never began.
    NotStarted(String),
    /// The caller wants to stop.
    Cancelled,
    /// The budget of the whole search is spent.
    Deadline,
}

/// What became of a process.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// From the permission to begin to the end.
    pub(crate) seconds: f64,
}

/// What is to run.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) arguments: &'a [String],
    pub(crate) environment: &'a [(String, String)],
    /// Where it runs, and where what it writes is counted.
    pub(crate) folder: &'a Path,
    pub(crate) timeout: Duration,
}

/// Runs one process at a time.
#[derive(Debug)]
pub(crate) struct Runner<'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) cancel: &'a AtomicBool,
    pub(crate) limits: Limits,
    pub(crate) kin: Kin,
    /// When the budget is spent, by the clock.
    pub(crate) deadline: Option<u64>,
}

impl Runner<'_> {
    /// Runs a job to its end. Errors are those of this side only.
    pub(crate) fn run(&self, job: &Job<'_>) -> io::Result<Ran> {
        let not_started = |why: String| Ran {
            end: End::NotStarted(why),
            stdout: Vec::new(),
            stderr: Vec::new(),
            seconds: 0.0,
        };
        let Some((name, rest)) = job.arguments.split_first() else {
            return Ok(not_started("there is no command".into()));
        };
        let Some(program) = program(name, job.folder) else {
            let remedy = "paths begin at {work}, or write {spec_dir}/…";
            return Ok(not_started(format!(
                "there is no program `{name}`: {remedy}"
            )));
        };
        if !job.folder.is_dir() {
            return Ok(not_started("its folder is gone".into()));
        }
        let spawned = Command::new("/bin/sh")
            .arg("-c")
            .arg(GATE)
            .arg("sh")
            .arg(program)
            .args(rest)
            .envs(job.environment.iter().map(|(name, value)| (name, value)))
            .env("TMPDIR", job.folder)
            .env(kin::MARK, self.kin.mark())
            .current_dir(job.folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        match spawned {
            Ok(child) => self.attend(child, job),
            // What the arguments are to blame for: one holds a zero byte, or they are too long.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Ok(not_started(error.to_string()))
            }
            Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => {
                Ok(not_started(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    fn attend(&self, mut child: Child, job: &Job<'_>) -> io::Result<Ran> {
        // From here on every way out has to kill the group.
        let mut group = Group::new(&mut child);
        self.bound(group.pid, job.timeout);
        let pidfd = end_of(group.pid);
        let mut stdout = Pipe::new(group.child.stdout.take().map(OwnedFd::from));
        let mut stderr = Pipe::new(group.child.stderr.take().map(OwnedFd::from));
        let begin = self.clock.now();
        if let Some(mut gate) = group.child.stdin.take() {
            // A shell that is gone already is noticed below.
            let _ = gate.write_all(b"\n");
        }
        let mut watched = begin;
        let (killed, seconds) = loop {
            wait([&stdout, &stderr], pidfd.as_ref())?;
            stdout.read(self.limits.output)?;
            stderr.read(self.limits.output)?;
            let ended = group.ended()?;
            let now = self.clock.now();
            let elapsed = Duration::from_nanos(now.saturating_sub(begin));
            if ended {
                break (None, elapsed.as_secs_f64());
            }
            let mut why = if self.cancel.load(Ordering::Relaxed) {
                Some(End::Cancelled)
            } else if self.deadline.is_some_and(|deadline| now >= deadline) {
                Some(End::Deadline)
            } else if elapsed >= job.timeout {
                Some(End::Timeout)
            } else if stdout.over || stderr.over {
                Some(End::Output)
            } else {
                None
            };
            if why.is_none() && now.saturating_sub(watched) >= WATCH.as_nanos() as u64 {
                why = self.watch(job.folder);
                watched = now;
            }
            if why.is_some() {
                break (why, elapsed.as_secs_f64());
            }
        };
        let status = group.end()?;
        // What was printed before the end is still in the pipes. Nobody holds their other ends, unless somebody left the group.
        for pipe in [&mut stdout, &mut stderr] {
            while pipe.ready()? {
                pipe.read(self.limits.output)?;
            }
        }
        let over = stdout.over || stderr.over;
        let end = match killed {
            Some(why) => why,
            None if over => End::Output,
            None if status.signal() == Some(Signal::XFSZ.as_raw()) => End::Disk,
            None if folder::size(job.folder, self.limits.disk) >= self.limits.disk => End::Disk,
            None => match (status.code(), status.signal()) {
                (Some(code), _) => End::Exit(code),
                (None, signal) => End::Signal(signal.unwrap_or(0)),
            },
        };
        Ok(Ran {
            end,
            stdout: stdout.kept,
            stderr: stderr.kept,
            seconds,
        })
    }

    /// What a look from outside finds.
    fn watch(&self, at: &Path) -> Option<End> {
        if folder::size(at, self.limits.disk) >= self.limits.disk {
            return Some(End::Disk);
        }
        let most = usize::try_from(self.limits.processes).unwrap_or(usize::MAX);
        (self.kin.count() > most).then_some(End::Processes)
    }

    /// Sets what the system itself can hold a process to. As much as it allows: what cannot be set is watched, or bounded by the timeout.
    #[cfg(target_os = "linux")]
    fn bound(&self, pid: Pid, timeout: Duration) {
        use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
        let set = |resource: Resource, most: u64| {
            // The hard limit can only be lowered.
            let most = getrlimit(resource)
                .maximum
                .map_or(most, |hard| hard.min(most));
            let limit = Rlimit {
                current: Some(most),
                maximum: Some(most),
            };
            let _ = prlimit(Some(pid), resource, limit);
        };
        set(Resource::Core, 0);
        set(Resource::Fsize, self.limits.disk);
        // Should we be killed ourselves, nobody looks at the timeout any more: what spins then ends by this.
        let threads =
            std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
        set(
            Resource::Cpu,
            (timeout.as_secs() + 1).saturating_mul(threads + 1),
        );
        if let Some(bytes) = self.limits.memory {
            set(Resource::As, bytes);
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn bound(&self, _: Pid, _: Duration) {}
}

/// A child and all in its group. Killed and reaped when dropped.
struct Group<'a> {
    child: &'a mut Child,
    pid: Pid,
    reaped: bool,
}

impl<'a> Group<'a> {
    fn new(child: &'a mut Child) -> Self {
        let pid = Pid::from_child(child);
        Self {
            child,
            pid,
            reaped: false,
        }
    }

    /// Whether the leader has ended. It keeps its number.
    fn ended(&self) -> io::Result<bool> {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        match waitid(WaitId::Pid(self.pid), how) {
            Ok(status) => Ok(status.is_some()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends all of it.
    fn end(&mut self) -> io::Result<ExitStatus> {
        self.reaped = true;
        let _ = kill_process_group(self.pid, Signal::KILL);
        self.child.wait()
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.end();
        }
    }
}

/// The near end of a pipe, and what of it is kept.
struct Pipe {
    from: Option<File>,
    kept: Vec<u8>,
    over: bool,
}

impl Pipe {
    fn new(from: Option<OwnedFd>) -> Self {
        Self {
            from: from.map(File::from),
            kept: Vec::new(),
            over: false,
        }
    }

    /// What to wait for; nothing once it is closed or has brought too much.
    fn fd(&self) -> Option<&File> {
        self.from.as_ref().filter(|_| !self.over)
    }

    fn ready(&self) -> io::Result<bool> {
        let Some(from) = self.fd() else {
            return Ok(false);
        };
        let mut fds = [PollFd::new(from, PollFlags::IN)];
        let found = poll(&mut fds, Some(&Timespec::default()));
        Ok(found? > 0)
    }

    /// Takes what is there, without waiting.
    fn read(&mut self, most: u64) -> io::Result<()> {
        if !self.ready()? {
            return Ok(());
        }
        let mut chunk = [0; CHUNK];
        let taken = match self.from.as_mut().map(|from| from.read(&mut chunk)) {
            Some(Ok(taken)) => taken,
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Some(Err(error)) => return Err(error),
            None => 0,
        };
        if taken == 0 {
            self.from = None;
            return Ok(());
        }
        let room = usize::try_from(most).unwrap_or(usize::MAX) - self.kept.len();
        self.over = taken > room;
        self.kept.extend_from_slice(&chunk[..taken.min(room)]);
        Ok(())
    }
}

/// Sleeps until one of these has something to say.
fn wait(from: [&Pipe; 2], end: Option<&OwnedFd>) -> io::Result<()> {
    let open = from.into_iter().filter_map(Pipe::fd);
    let mut fds: Vec<PollFd<'_>> = open.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    fds.extend(end.map(|fd| PollFd::new(fd, PollFlags::IN)));
    let tick = if end.is_some() { TICK } else { SHORT_TICK };
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: tick.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&tick)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Something that wakes us when the process ends, where there is such a thing.
#[cfg(target_os = "linux")]
fn end_of(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn end_of(_: Pid) -> Option<OwnedFd> {
    None
}

/// The file of a program: as it says, from the folder it runs in, or looked for in `PATH`.
fn program(name: &str, folder: &Path) -> Option<PathBuf> {
    match name.contains('/') {
        true => Some(folder.join(name)).filter(|path| path.is_file()),
        false => find(name),
    }
}

/// The file of a program by its name alone.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut places = env::split_paths(&path).map(|place| place.join(name));
    places
        .find(|path| path.is_file())
        .and_then(|path| std::path::absolute(path).ok())
}
