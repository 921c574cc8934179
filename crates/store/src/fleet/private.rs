//! A PostgreSQL server of this process's own: in a temporary directory, for as long as it is needed. For measuring and for tests.
//!
//! The server is started by a shell whose input this process holds the other end of. When that input ends, the shell stops the server
//! and removes the directory. So neither outlives this process, however it ends: by Ctrl-C, or killed without warning.

use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{FleetError, FleetOptions, open};

/// Where a private server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// On a socket in its directory, which no other user can open.
    Socket,
    /// On a free port of the loopback device, where every user of this machine can connect: for tests of what needs a port.
    Loopback,
}

/// A server in a directory of its own, stopped and removed when dropped.
#[derive(Debug)]
pub struct PrivateServer {
    /// Where the programs of PostgreSQL are.
    programs: PathBuf,
    dir: PathBuf,
    /// Whom to become, if this process is root's: the server refuses to run as root.
    user: Option<(u32, u32)>,
    port: u16,
    listen: Listen,
    settings: Vec<String>,
    /// The shell that holds the server.
    guard: Option<Child>,
}

/// The shell: `$0` is the directory, the rest the server with its arguments. A word means that the server is to stop and may start
/// again; the end of the input without one, that nobody is left who would.
const GUARD: &str = r#"trap '' INT TERM HUP
"$@" & server=$!
read -r word
kill -QUIT $server
wait $server
[ -n "$word" ] || rm -rf "$0""#;

/// How often a server that starts is asked whether it is there.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 600;

impl PrivateServer {
    /// The directory with the programs of a server; `None` where none is installed. The newest of Debian's, or that of the path.
    pub fn programs() -> Option<PathBuf> {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let number = |dir: &Path| dir.file_name()?.to_str()?.parse::<u32>().ok();
        let mut versions: Vec<PathBuf> = versions.flatten().map(|v| v.path()).collect();
        versions.sort_by_key(|dir| number(dir));
        let debian = versions.into_iter().rev().map(|dir| dir.join("bin"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let complete = |dir: &PathBuf| {
            let mut needed = ["initdb", "postgres"].iter();
            needed.all(|program| dir.join(program).is_file())
        };
        debian.chain(std::env::split_paths(&path)).find(complete)
    }

    /// Starts one, with settings made from the directory of its data, as in `fsync=off`.
    pub fn start(
        listen: Listen,
        settings: impl FnOnce(&Path) -> Vec<String>,
    ) -> Result<Self, FleetError> {
        let failed = |reason: String| FleetError::Private { reason };
        let programs =
            Self::programs().ok_or_else(|| failed("initdb and postgres were not found".into()))?;
        let started = Self::made(programs, listen, settings);
        let mut server = started.map_err(|e| failed(e.to_string()))?;
        server.run()?;
        Ok(server)
    }

    fn made(
        programs: PathBuf,
        listen: Listen,
        settings: impl FnOnce(&Path) -> Vec<String>,
    ) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let user = match id(&["-u"])? {
            0 => Some(unprivileged()?),
            _ => None,
        };
        let port = match listen {
            Listen::Socket => 5432,
            Listen::Loopback => TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(),
        };
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // A short name: that of a socket may have a hundred bytes.
        let dir = std::env::temp_dir().join(format!("kernelwise-pg-{process}-{count}"));
        // Fails if it is there, so it is nobody else's.
        fs::DirBuilder::new().mode(0o700).create(&dir)?;
        let mut server = Self {
            programs,
            dir,
            user,
            port,
            listen,
            settings: vec![],
            guard: None,
        };
        if let Some((uid, gid)) = user {
            chown(&server.dir, Some(uid), Some(gid))?;
        }
        let data = server.data();
        let made = server
            .command(&server.programs.join("initdb"))
            .args(["--no-sync", "--auth=trust", "--no-locale"])
            .args(["--encoding=UTF8", "--username=owner", "-D"])
            .arg(&data)
            .output()?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(io::Error::other(said.trim().to_owned()));
        }
        server.settings = settings(&data);
        // What the settings put there.
        if let Some((uid, gid)) = user {
            for entry in fs::read_dir(&data)? {
                chown(entry?.path(), Some(uid), Some(gid))?;
            }
        }
        Ok(server)
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// A program, as the user and in the directory of the server.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command.current_dir(&self.dir).stdin(Stdio::null());
        command
    }

    /// Starts it, if it was stopped, and waits until it answers.
    pub fn run(&mut self) -> Result<(), FleetError> {
        if self.guard.is_some() {
            return Ok(());
        }
        self.spawn().map_err(|e| FleetError::Private {
            reason: e.to_string(),
        })?;
        let options = FleetOptions::new(&self.url("owner"));
        let mut answer = open(&options);
        for _ in 0..LOOKS {
            if answer.is_ok() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
            answer = open(&options);
        }
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(3).collect();
        Err(FleetError::Private {
            reason: format!("it does not answer: {}", last.join("; ")),
        })
    }

    fn spawn(&mut self) -> io::Result<()> {
        let mut guard = self.command(Path::new("sh"));
        guard.args(["-c", GUARD]).arg(&self.dir);
        guard.arg(self.programs.join("postgres"));
        guard.arg("-D").arg(self.data());
        guard.arg("-k").arg(&self.dir);
        guard.args(["-p", &self.port.to_string(), "-c"]);
        guard.arg(match self.listen {
            Listen::Socket => "listen_addresses=",
            Listen::Loopback => "listen_addresses=127.0.0.1",
        });
        for setting in &self.settings {
            guard.args(["-c", setting]);
        }
        let log = fs::File::create(self.dir.join("log"))?;
        guard
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log);
        // Ctrl-C is for this process: the server is to stop after it, not before.
        guard.process_group(0);
        self.guard = Some(guard.spawn()?);
        Ok(())
    }

    /// Stops it as a power cut would: transactions that are open are lost, and clients are cut off.
    pub fn stop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            // Nothing else can be done about a shell that does not listen.
            let _ = guard
                .stdin
                .take()
                .map(|mut input| input.write_all(b"stop\n"));
            let _ = guard.wait();
        }
    }

    /// The address for this user; `owner` may do everything, and no password is asked for.
    pub fn url(&self, user: &str) -> String {
        let port = self.port;
        match self.listen {
            Listen::Loopback => {
                format!("postgresql://{user}@127.0.0.1:{port}/postgres?sslmode=disable")
            }
            Listen::Socket => {
                let bytes = self.dir.as_os_str().as_encoded_bytes();
                let dir: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
                format!("postgresql://{user}@{dir}:{port}/postgres")
            }
        }
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn id(args: &[&str]) -> io::Result<u32> {
    let output = Command::new("id").args(args).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = text.trim().parse();
    number.map_err(|_| io::Error::other(format!("`id {}` says no number", args.join(" "))))
}

/// A user who is not root: PostgreSQL's own, or nobody.
fn unprivileged() -> io::Result<(u32, u32)> {
    let of = |name| Ok((id(&["-u", name])?, id(&["-g", name])?));
    of("postgres").or_else(|_: io::Error| of("nobody"))
}
